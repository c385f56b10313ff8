"""The side that knows what is near: pairs of columns, residuals, corrections, gains."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from tests.components.given import (
    N_ITEMS,
    N_USERS,
    make_up_pairs,
    network_of,
    some_member,
    some_ratings,
)
from tests.inference.cases import estimator
from tests.queries import component_scores, user_of
from tests.queries import known as ratings_of
from tests.support.close import assert_close

from cfnade.checkpoint import load, save
from cfnade.components import Axis
from cfnade.components import neighborhood as module
from cfnade.components.base import Pairs
from cfnade.components.neighborhood import NeighborhoodComponent, pairs_of
from cfnade.components.registry import component_names, new_member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.data.splits import Split, apply_labels
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import TrainingError
from cfnade.inference.query import Entities, Query
from cfnade.inference.scorer import Scorer
from cfnade.kernels.neighborhood import ResidualCovariance, solve_weights
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.train import train
from cfnade.training.validation import least_squares_gains

RATINGS = some_ratings()
BOTH: list[Axis] = ["user", "item"]


def near_of(axis: Axis, ratings: Dataset = RATINGS) -> NeighborhoodComponent:
    side = some_member((axis, f"{axis}-neighborhood"), {"hidden": (3,)}, ratings=ratings).components
    found = side[f"{axis}-neighborhood"]
    assert isinstance(found, NeighborhoodComponent)
    return found


def by_hand(side: NeighborhoodComponent, columns: Any, levels: Any, column: int) -> float:
    """c of a column by dense algebra: each residual by a regression without its own rating."""
    net = network_of(side)
    a, c = net.factors.a.numpy(), net.factors.c.numpy()
    mean, noise = net.factors.mean.numpy()[:, 0], float(net.factors.noise)
    left = []
    for place in range(len(columns)):
        rest = np.delete(columns, place)
        A, told = a[rest], np.delete(levels, place) - mean[rest]
        precision = np.eye(a.shape[1]) + (A.T @ A + np.diag(c[rest].sum(0))) / noise
        m = np.linalg.solve(precision, A.T @ told / noise)
        left.append(levels[place] - mean[columns[place]] - a[columns[place]] @ m)
    table = net.dense().numpy()
    matrix = table[np.ix_(columns, columns)] + np.diag(net.variances.numpy()[columns])
    return float(table[column, columns] @ np.linalg.solve(matrix, np.array(left)))


@pytest.mark.parametrize("axis", BOTH)
def test_a_correction_is_that_of_refitting_without_the_rating(axis: Axis) -> None:
    side = near_of(axis)
    gain, shift = float(side.arrays["gain"]), float(side.arrays["shift"])
    rows = RATINGS.rows(axis)
    met = 0
    for row in range(1, len(rows)):
        own = slice(rows.offsets[row], rows.offsets[row + 1])
        known, levels = rows.columns[own], rows.levels[own].astype(float)
        for column in range(rows.n_columns):
            rest = known != column
            c = by_hand(side, known[rest], levels[rest], column)
            cell = (row, column) if axis == "user" else (column, row)
            scores = component_scores(side, RATINGS, *(np.array([n]) for n in cell))[0]
            np.testing.assert_allclose(scores, np.arange(4) * (gain * c + shift), atol=1e-9)
            met += abs(c) > 1e-3 and not rest.all()
    assert met > 10


@pytest.mark.parametrize("axis", BOTH)
def test_a_known_cell_is_said_as_if_it_had_never_been_rated(axis: Axis) -> None:
    side = near_of(axis)
    for place in range(0, len(RATINGS), 5):
        rest = RATINGS.select(np.arange(len(RATINGS)) != place)
        cell = RATINGS.users[[place]].astype(np.int64), RATINGS.items[[place]].astype(np.int64)
        np.testing.assert_allclose(
            component_scores(side, RATINGS, *cell),
            component_scores(side, rest, *cell),
            rtol=0,
            atol=1e-10,
        )


@pytest.mark.parametrize("column", [0, 17])
def test_downdates_are_rows_without_each_rating(
    column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW_PIECE", 400)
    side = near_of("user", synthetic(60, 80, 3_000, seed=1).ratings)
    rng = np.random.default_rng(0)
    columns = np.setdiff1d(rng.permutation(80)[:60], [column]).astype(np.int32)
    levels = rng.integers(0, 5, len(columns)).astype(np.uint8)
    left_out = np.append(rng.permutation(len(columns)), -1)
    known = [(np.delete(columns, t), np.delete(levels, t)) for t in left_out[:-1]]

    def scores(histories: Any, rows: Any, left_out: Any = None) -> Any:
        data = Entities.of_histories([-1] * len(histories), histories, 80, 5).rows
        none = np.full(len(rows), -1)
        pairs = Pairs(data, rows, np.full(len(rows), column), none, none, left_out)
        return side.scorer(data).score_pairs(pairs)

    found = scores([(columns, levels)], np.zeros(len(left_out), int), left_out)
    expected = scores([*known, (columns, levels)], np.arange(len(left_out)))
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.ptp(found[:, 4]) > 0.01


# -- pairs -----------------------------------------------------------------------------------------


def dense_pairs(table: Any, sure: float, common: int) -> tuple[Any, Any]:
    """R and v of a table (rows, columns) with NaN where nothing was left over."""
    M, everything = table.shape[1], table[~np.isnan(table)]
    v = np.array(
        [
            (np.nansum(table[:, i] ** 2) + 20 * everything.var())
            / ((~np.isnan(table[:, i])).sum() + 20)
            for i in range(M)
        ]
    )
    R = np.zeros((M, M))
    for i in range(M):
        for j in range(M):
            both = ~np.isnan(table[:, i]) & ~np.isnan(table[:, j])
            C, n = (table[both, i] * table[both, j]).sum(), both.sum()
            if i != j and n >= common and C > 0:
                t = C / np.sqrt(n * v[i] * v[j])
                R[i, j] = C / (n + 100) * (1 - (sure / t) ** 2) if t > sure else 0.0
    return R, v


def as_table(found: Any, M: int) -> Any:
    R = np.zeros((M, M))
    R[np.repeat(np.arange(M), np.diff(found.starts)), found.others] = found.covariances
    return R


def some_rows(seed: int = 0, N: int = 200, M: int = 12) -> tuple[Dataset, Any, Any]:
    """Ratings, what is left of each by row, and the same as a table; columns 2 and 5 are alike."""
    random = np.random.default_rng(seed)
    held = random.random((N, M)) < 0.5
    left = random.normal(size=(N, M))
    left[:, 5] = 0.8 * left[:, 2] + 0.6 * left[:, 5]
    users, items = np.nonzero(held)
    ratings = Ratings(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        levels=(np.arange(len(users)) % 4).astype(np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0)),
        user_ids=np.arange(N),
        item_ids=np.arange(M),
    )
    return ratings, left[held], np.where(held, left, np.nan)


@pytest.mark.parametrize(("sure", "common"), [(1.0, 0), (0.5, 45), (3.0, 20)])
def test_covariances_are_those_of_a_dense_computation(
    sure: float, common: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_COMMON", common)
    ratings, left, table = some_rows()
    found = pairs_of(ratings.rows("user"), left, sure, 2)
    R, v = dense_pairs(table, sure, common)
    assert R.max() > 0.01
    np.testing.assert_allclose(as_table(found, 12), R, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.variances, v, rtol=1e-5)


def test_covariances_are_symmetric_to_the_last_bit() -> None:
    ratings, left, _ = some_rows(1)
    R = as_table(pairs_of(ratings.rows("user"), left, 0.3, 1), 12)
    assert (R > 0).sum() > 20
    np.testing.assert_array_equal(R, R.T)


def test_covariances_never_outweigh_variances(monkeypatch: pytest.MonkeyPatch) -> None:
    """A star: one column shares something else with each of many others."""
    monkeypatch.setattr(module, "DOUBT", 0.0)
    random = np.random.default_rng(3)
    N, M = 600, 10
    own = random.normal(size=(N, M))
    own[:, 0] = own[:, 1:].sum(1) * 1.5
    own[random.random((N, M)) < 0.02] *= 3
    users, items = (part.ravel() for part in np.indices((N, M)))
    keep = (items == 0) | (items == 1 + users % (M - 1))  # each row has two columns only
    ratings = Ratings(
        users=users[keep].astype(np.int32),
        items=items[keep].astype(np.int32),
        levels=np.zeros(keep.sum(), np.uint8),
        scale=Scale((1.0, 2.0)),
        user_ids=np.arange(N),
        item_ids=np.arange(M),
    )
    left = own.copy()
    left[:, 0] = [1.4 * own[n, 1 + n % (M - 1)] for n in range(N)]
    found = pairs_of(ratings.rows("user"), left.ravel()[keep], 0.1, 1)
    R, v = as_table(found, M), found.variances
    scaled = R / np.sqrt(v[:, None] * v)
    assert np.linalg.eigvalsh(scaled).min() == pytest.approx(-0.95, abs=1e-3)  # else about -3


@pytest.mark.parametrize(("M", "share"), [(2, 1.0), (30, 0.3), (800, 0.02), (800, 0.2)])
def test_the_lowest_eigenvalue_is_found_where_many_are_near_it(M: int, share: float) -> None:
    """Correlations above 0 have one large eigenvalue, and many close to the lowest."""
    random = np.random.default_rng(M)
    upper = np.triu((random.random((M, M)) < share) * random.random((M, M)), 1)
    table = upper + upper.T
    i, j = np.nonzero(table)
    values = np.linalg.eigvalsh(table)
    found = module._lowest(i, j, table[i, j], M)
    assert values[0] - 0.02 * np.ptp(values) < found <= values[0] + 1e-9


def test_weights_solve_the_systems_of_their_rows() -> None:
    random, M = np.random.default_rng(4), 30
    half = np.triu((random.random((M, M)) < 0.2) * random.uniform(0, 0.2, (M, M)), 1)
    R = half + half.T
    v = 1.01 * R.sum(1) + 0.001  # hardly more than needed, so that steps must be clever
    i, j = np.nonzero(R)
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=M))])
    near = ResidualCovariance(starts, j.astype(np.int32), R[i, j], v)
    rows = [np.sort(random.permutation(M)[:size]) for size in (0, 1, 7, 30, 18)]
    offsets, columns = np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(np.int32)
    left, out = random.normal(size=len(columns)), np.empty(len(columns))
    solve_weights(offsets, columns, left, near, out)
    for row, known in enumerate(rows):
        part = slice(offsets[row], offsets[row + 1])
        expected = np.linalg.solve(R[np.ix_(known, known)] + np.diag(v[known]), left[part])
        np.testing.assert_allclose(out[part], expected, rtol=1e-8, atol=1e-8)


# -- gains -----------------------------------------------------------------------------------------


def test_gains_are_those_of_the_smallest_squared_error() -> None:
    random, n = np.random.default_rng(5), 4_000
    plain = random.dirichlet(np.full(5, 2.0), n)
    features = np.column_stack([random.normal(size=(n, 2)), np.ones(n)])
    tilted = np.log(plain) + (features @ [0.7, 0.3, -0.2])[:, None] * np.arange(5)
    chances = np.exp(tilted) / np.exp(tilted).sum(1, keepdims=True)
    levels = np.array([random.choice(5, p=one) for one in chances])
    valid = some_of(levels)

    def error(gains: Any) -> float:
        scores = np.log(plain) + (features @ gains)[:, None] * np.arange(5)
        said = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        return float(np.square(levels - said @ np.arange(5)).sum() + 2 * np.square(gains).sum())

    found = least_squares_gains(plain, features, valid)
    np.testing.assert_allclose(found, minimize(error, np.zeros(3), tol=1e-10).x, atol=2e-3)
    turned = features * [1, -1, 1]  # a correction the wrong way round is not turned around
    found = least_squares_gains(plain, turned, valid)
    assert found[1] == 0.0
    without = minimize(lambda g: error(np.array([g[0], 0.0, g[1]])), np.zeros(2), tol=1e-10).x
    np.testing.assert_allclose(found[[0, 2]], without, atol=2e-3)


def some_of(levels: Any) -> Dataset:
    count = len(levels)
    return Ratings(
        users=np.zeros(count, np.int32),
        items=np.arange(count, dtype=np.int32),
        levels=levels.astype(np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.arange(1),
        item_ids=np.arange(count),
    )


# -- as a model ------------------------------------------------------------------------------------


def twins(seed: int = 0) -> Split:
    """People like or dislike films in twos, for no reason that other films share."""
    random, N, M = np.random.default_rng(seed), 400, 40
    users, items = np.nonzero(random.random((N, M)) < 0.5)
    taste = random.normal(size=(N, M // 2))
    level = 2 + 0.4 * random.normal(size=len(users)) + 1.2 * taste[users, items // 2]
    ratings = Ratings(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        levels=np.clip(np.round(level), 0, 4).astype(np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.arange(N),
        item_ids=np.arange(M),
    )
    parts = random.choice(3, len(users), p=[0.8, 0.1, 0.1]).astype(np.uint8)
    return apply_labels(ratings, parts, "twins")


SETTINGS = TrainingConfig(epochs=1, batch_rows=100, batch_columns=10, context_rate=(0.8, 1.0))


@pytest.fixture(scope="module")
def trained() -> Any:
    with pytest.MonkeyPatch.context() as few:
        few.setattr(module, "ROWS_AT_ONCE", 37)
        return train(twins(), plan_side("neighborhood", {"hidden": (4,)}, SETTINGS)).model


def twin_of_most(trained: Any) -> int:
    """A film whose twin is the one that it goes together with most of all."""
    table = network_of(trained.members[0].components["user-neighborhood"]).dense().numpy()
    best = int(table.max(1).argmax())
    assert table[best].argmax() == best ^ 1
    return best


def test_twins_are_found_and_said_to_be_why(trained: Any) -> None:
    side = trained.members[0].components["user-neighborhood"]
    table, film = network_of(side).dense().numpy(), twin_of_most(trained)
    assert (table.argmax(1) == np.arange(40) ^ 1).sum() > 20  # some are explained by factors
    assert float(side.arrays["gain"]) > 0.3
    predictor, others = estimator(trained), [i for i in range(40) if i // 2 != film // 2][:2]
    fan, other = ({film ^ 1: stars} | dict.fromkeys(others, 3.0) for stars in (5.0, 1.0))
    liked, disliked = (
        predictor.predict("me", [film], histories={"me": h})[0] for h in (fan, other)
    )
    assert liked > disliked + 0.5
    why = predictor.explain(history=fan, item=film)
    assert why["item"][0] == film ^ 1
    assert why["difference"][0] > 0.2


def test_new_people_hear_of_films_but_not_of_people_like_them(trained: Any) -> None:
    sides, film = trained.members[0].components, twin_of_most(trained)
    new, zero = user_of(trained.context, ratings_of([film ^ 1], [4])), np.zeros(1, np.int64)
    query = Query.of_users(trained.context, new, zero, np.array([film]))
    scores = {
        axis: sides[f"{axis}-neighborhood"]
        .scorer(query.pairs(axis).rows)
        .score_pairs(query.pairs(axis))
        for axis in ("user", "item")
    }
    (said,) = scores["user"]
    assert said[4] > said[0]
    assert not scores["item"].any()


def test_a_refit_keeps_the_gains(trained: Any) -> None:
    settings = TrainingConfig(**SETTINGS.to_dict() | {"refit": True})
    again = train(twins(), plan_side("neighborhood", {"hidden": (4,)}, settings)).model
    for name in ("user-neighborhood", "item-neighborhood"):
        one: Any = network_of(trained.members[0].components[name])
        other: Any = network_of(again.members[0].components[name])
        assert one.gain == other.gain
        assert one.shift == other.shift
        assert one.factors.a.shape == other.factors.a.shape
        assert not torch.equal(one.factors.a, other.factors.a)  # it has seen validation too


def test_without_validation_gains_are_those_given() -> None:
    parts = twins(2)
    nothing = parts.valid.select(np.empty(0, np.int64))
    whole = Split(parts.name, parts.train, nothing, parts.test, parts.fold_in, parts.fingerprint)
    fields = {"hidden": (4,), "gains": (1.5, 2.5, -0.1)}
    fitted = train(whole, plan_side("neighborhood", fields, SETTINGS)).model
    nets: list[Any] = [network_of(s) for s in fitted.members[0].components.values() if s.tunes]
    assert [float(net.gain) for net in nets] == pytest.approx([1.5, 2.5])
    assert [float(net.shift) for net in nets] == pytest.approx([-0.1, 0.0])


def test_nothing_is_said_while_the_others_are_trained() -> None:
    member = new_member(
        component_names("neighborhood"),
        RATINGS,
        {"hidden": (3,), "gains": (1.0, 1.0, 1.0)},
        SETTINGS,
    )
    users, items = np.arange(N_USERS), np.arange(N_USERS) % N_ITEMS
    for name in ("user-neighborhood", "item-neighborhood"):
        side = member.components[name]
        assert isinstance(side, NeighborhoodComponent)
        make_up_pairs(side)
        side.set_gain(0.0, 0.0)
        assert not component_scores(side, RATINGS, users, items).any()
        side.finish(RATINGS, member)
        assert side.arrays["gain"] == 1.0


def test_the_others_are_trained_as_if_it_were_not_there() -> None:
    settings = TrainingConfig(epochs=2, batch_rows=50, learning_rate=0.01)
    alone, with_near = (
        train(twins(), plan_side(side, {"hidden": (4,)}, settings), RunOptions(n_threads=1))
        for side in ("user", "user+user-neighborhood")
    )
    own, same = (one.model.members[0].components["user"].network for one in (alone, with_near))
    for name, weights in own.state_dict().items():
        assert torch.equal(weights, same.state_dict()[name])
    assert with_near.model.members[0].components["user-neighborhood"].arrays["gain"] > 0


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        TrainingError, match="user-neighborhood corrects other components; give one before it"
    ):
        new_member(("user-neighborhood",), RATINGS, {}, SETTINGS)
    monkeypatch.setattr(module, "MOST_COLUMNS", 5)
    with pytest.raises(
        TrainingError, match=r"of 8 items is too large \(at most 5\); leave out user"
    ):
        new_member(("user", "user-neighborhood"), RATINGS, {"hidden": (3,)}, SETTINGS)


def test_a_saved_model_says_the_same(trained: Any, tmp_path: Path) -> None:
    save(trained, tmp_path / "model")
    again = load(tmp_path / "model")
    test = twins().test
    cells = test.users.astype(np.int64), test.items.astype(np.int64)
    before, after = (Scorer(one).probabilities(*cells) for one in (trained, again))
    assert_close(after, before)


@pytest.mark.parametrize(
    ("name", "place", "value", "reason"),
    [
        ("starts", -1, 3, "are not those of 40 columns"),
        ("others", 0, 40, "run beyond the 40 columns"),
        ("variances", 1, 0.0, "not above 0"),
    ],
)
def test_pairs_that_lead_astray_are_refused(
    trained: Any, name: str, place: int, value: float, reason: str
) -> None:
    side = deepcopy(trained.members[0].components["user-neighborhood"])
    assert side.fault(trained.context) is None
    side.arrays[name][place] = value
    assert reason in side.fault(trained.context)
