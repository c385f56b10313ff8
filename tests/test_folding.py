"""Users and items without trained weights, folded in by what is known of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.components.given import N_ITEMS, N_USERS, STARS
from tests.folded import Cell, Problem, cost, least, rule, side_scores
from tests.inference.cases import UNTRAINED_ITEM, make_kind
from tests.listed import lines
from tests.queries import (
    NOTHING,
    item_of,
    of_item,
    of_user,
    stored,
    user_of,
    without,
)
from tests.queries import (
    known as ratings_of,
)
from tests.test_scorer import NEW_ITEM, NEW_USER, SIDES, known_of, make, said

from cfnade.components.base import Array, Pairs
from cfnade.components.row_states import RowStates
from cfnade.data.synthetic import synthetic
from cfnade.estimator import CFNADE
from cfnade.fitted_model import FittedModel
from cfnade.inference import fold_in
from cfnade.inference.column_basis import MAX_DIRECTIONS, gram, principal_directions
from cfnade.inference.explain import leave_each_out
from cfnade.inference.query import KnownRatings, Query
from cfnade.inference.scorer import Scorer
from cfnade.kernels import newton
from cfnade.kernels.newton import most_probable, most_probable_without_each

K = len(STARS)
each_side = pytest.mark.parametrize("side", list(SIDES))


def row(**levels: int) -> KnownRatings:
    """Of columns c1, c2 …"""
    columns = [int(name[1:]) for name in levels]
    return ratings_of(columns, list(levels.values()))


# -- the solver ------------------------------------------------------------------------------------


def some_problem(n: int, D: int, *, seed: int = 0, size: float = 1.0) -> Problem:
    rng = np.random.default_rng(seed)
    return Problem(
        base=rng.normal(size=(n, K)),
        slopes=size * rng.normal(size=(n, K, D)),
        levels=rng.integers(0, K, n),
        variances=rng.uniform(0.1, 2.0, D),
        sizes={0: D},
    )


def solved(one: Problem, start: Any = None) -> Any:
    return most_probable(one.base, one.slopes, one.levels, one.variances, start)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_the_solution_is_that_of_a_fine_grid(n: int) -> None:
    one = some_problem(n, 2)
    middle, width = np.zeros(2), 8.0
    for _ in range(12):  # each grid a quarter as wide
        ends = [np.linspace(c - width, c + width, 17) for c in middle]
        points = np.stack(np.meshgrid(*ends), -1).reshape(-1, 2)
        middle = points[np.argmin([cost(one, z) for z in points])]
        width /= 4
    np.testing.assert_allclose(solved(one), middle, atol=1e-5)


@pytest.mark.parametrize(("n", "D", "size"), [(3, 24, 1.0), (200, 24, 0.3), (50, 5, 12.0)])
def test_the_cost_is_flat_at_the_solution(n: int, D: int, size: float) -> None:
    one = some_problem(n, D, size=size)
    z = solved(one)
    for way in 1e-5 * np.eye(D):
        slope = (cost(one, z + way) - cost(one, z - way)) / 2e-5
        assert abs(slope) < 1e-5
    np.testing.assert_allclose(z, least(one), atol=1e-7)


def test_it_does_not_matter_where_it_starts() -> None:
    one = some_problem(30, 6)
    far = np.full(6, 40.0)
    np.testing.assert_allclose(solved(one, far), solved(one), atol=1e-8)
    assert (far == 40.0).all()


@pytest.mark.parametrize(("n", "D", "size"), [(4, 3, 1.0), (40, 6, 1.0), (50, 5, 12.0)])
def test_each_rating_is_left_out_of_its_own_problem(n: int, D: int, size: float) -> None:
    one = some_problem(n, D, size=size)
    left_out = np.array([2, 0, n - 1, 2])
    bases = one.base + 0.1 * np.random.default_rng(1).normal(size=(4, n, K))
    bases[np.arange(4), left_out] = 1e3  # must not matter
    fixed = one.slopes, one.levels, one.variances, solved(one), left_out
    found = most_probable_without_each(np.ascontiguousarray(bases.swapaxes(1, 2)), *fixed)
    for z, base, out in zip(found, bases, left_out, strict=True):
        kept = np.arange(n) != out
        rest = one._replace(base=base[kept], slopes=one.slopes[kept], levels=one.levels[kept])
        np.testing.assert_allclose(z, least(rest), atol=1e-5)


def test_similar_problems_need_no_curvature_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, left_out = some_problem(200, 6, size=0.5), np.arange(20)
    bases = np.repeat(one.base.T[None], 20, axis=0)
    start = solved(one)
    monkeypatch.setattr(newton, "most_probable", None)
    most_probable_without_each(bases, one.slopes, one.levels, one.variances, start, left_out)


# -- directions ------------------------------------------------------------------------------------


def test_columns_that_differ_in_two_ways_have_two_directions() -> None:
    rng = np.random.default_rng(2)
    mean, ways = rng.normal(size=(K, 3)), rng.normal(size=(2, K, 3))
    z = rng.normal(size=(50, 2))
    table = mean + np.einsum("nd,dkh->nkh", z, ways)
    states, counts = rng.normal(size=(20, 3)), np.arange(50)  # the first was not trained
    found = principal_directions(
        table, np.zeros((50, K)), counts, gram(states, counts[:20] + 1), shared=True
    )
    assert found is not None
    assert len(found.variances) == 2
    assert found.variances[0] > found.variances[1] > 0
    # Every column is the mean and these, up to what a softmax does not see.
    flat = found.table.swapaxes(0, 1).reshape(3, -1)  # mean and ways, cumulated
    aimed = table.cumsum(1) - table[:, :1]
    rest = aimed.reshape(50, -1) - flat[0]
    fitted = rest @ np.linalg.pinv(flat[1:]) @ flat[1:]
    np.testing.assert_allclose(fitted, rest, atol=1e-8)


def test_directions_are_few_and_need_columns() -> None:
    rng = np.random.default_rng(3)
    table, bias = rng.normal(size=(300, K, 12)), rng.normal(size=(300, K))
    found = principal_directions(table, bias, np.full(300, 9), np.eye(12), shared=False)
    assert found is not None
    assert len(found.variances) == MAX_DIRECTIONS
    counts = np.zeros(300, np.int64)
    assert principal_directions(table, bias, counts, np.eye(12), shared=True) is None
    counts[4] = 3
    assert principal_directions(table, bias, counts, np.eye(12), shared=True) is None
    same = np.tile(table[:1], (300, 1, 1)), np.tile(bias[:1], (300, 1))
    assert principal_directions(*same, np.full(300, 9), np.eye(12), shared=True) is None


# -- people and items ------------------------------------------------------------------------------


@each_side
def test_a_new_item_is_what_the_equations_say(side: str) -> None:
    fitted = make(side)
    raters = row(c2=3, c7=0, c5=1)
    assert NEW_USER in raters[0]
    known = known_of(fitted.context) | {
        (u, -1): k for u, k in zip(raters[0].tolist(), raters[1].tolist(), strict=True)
    }
    users = np.arange(-1, N_USERS)
    answer = of_item(Scorer(fitted), item_of(fitted.context, raters), users)
    expected = [said(fitted, known, user, -1) for user in users.tolist()]
    np.testing.assert_allclose(answer, expected, atol=1e-6)


@each_side
def test_a_new_item_for_a_new_person_is_what_the_equations_say(side: str) -> None:
    fitted, history, raters = make(side), row(c6=3, c4=0, c2=3), row(c2=3, c7=0, c5=1)
    assert NEW_ITEM in history[0]
    known = known_of(fitted.context)
    known |= {(-1, i): k for i, k in zip(history[0].tolist(), history[1].tolist(), strict=True)}
    known |= {(u, -1): k for u, k in zip(raters[0].tolist(), raters[1].tolist(), strict=True)}
    zero = np.zeros(1, np.int64)
    both = user_of(fitted.context, history), item_of(fitted.context, raters)
    answer = Scorer(fitted).rating_probabilities(Query(fitted.context, *both, zero, zero))
    # The two are in nobody's context, so all that each is known by stays as it is.
    np.testing.assert_allclose(answer[0], said(fitted, known, -1, -1), atol=1e-6)


@each_side
def test_the_order_of_a_history_does_not_matter(side: str) -> None:
    scorer, every = Scorer(make(side)), np.arange(N_ITEMS)
    context = scorer.fitted.context
    history = row(c6=3, c4=0, c2=3, c1=1)
    turned = history[0][::-1], history[1][::-1]
    one, other = (of_user(scorer, user_of(context, rated), every) for rated in (history, turned))
    np.testing.assert_allclose(one, other, atol=1e-6)
    users, raters = np.arange(N_USERS), row(c2=3, c7=0, c5=1)
    turned = raters[0][::-1], raters[1][::-1]
    one, other = (of_item(scorer, item_of(context, one), users) for one in (raters, turned))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("most", [500, 2])
@each_side
def test_a_rating_never_moves_its_own_prediction(
    side: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it if some of the ratings stand for all."""
    monkeypatch.setattr(fold_in, "MAX_RATINGS", most)
    scorer = Scorer(make(side))
    context = scorer.fitted.context
    for item in (6, NEW_ITEM, 2, 1):
        answers = []
        for level in range(K):
            history = row(c6=3, c4=0, c2=3, c1=1)
            levels = np.where(history[0] == item, level, history[1]).astype(np.uint8)
            who = user_of(context, (history[0], levels))
            (line,) = lines(scorer, who)
            answers.append((of_user(scorer, who, [item]), line[item]))
        for chances, scores in answers[1:]:
            # It is taken off a sum that it was in, which rounds.
            np.testing.assert_allclose(chances, answers[0][0], atol=1e-10)
            np.testing.assert_allclose(scores, answers[0][1], atol=1e-10)
    for user in (2, NEW_USER):
        asked = np.array([user])
        one, other = (
            of_item(scorer, item_of(context, row(c2=k, c5=k, c7=0)), asked) for k in (0, 3)
        )
        gone = [row(c5=k, c7=0) if user == 2 else row(c2=k, c7=0) for k in (0, 3)]
        for answer, rest in zip((one, other), gone, strict=True):
            alone = of_item(scorer, item_of(context, rest), asked)
            np.testing.assert_allclose(answer, alone, atol=1e-7)


@each_side
def test_who_is_known_by_nothing_gets_what_the_items_get(side: str) -> None:
    """Frequencies if the model reads histories, or else the mean of the trained."""
    fitted = make(side)
    scorer, known = Scorer(fitted), known_of(fitted.context)
    answer = of_user(scorer, user_of(fitted.context), np.arange(1, N_ITEMS))
    expected = [said(fitted, known, -1, item) for item in range(1, N_ITEMS)]
    np.testing.assert_allclose(answer, expected, atol=1e-6)
    if side == "item":  # of whose taste nothing is known, but the item's ratings are
        assert len({answered.argmax() for answered in answer}) > 1


def test_sides_without_features_keep_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = make("both")
    monkeypatch.setattr(
        "cfnade.components.row_states.RowStates.fold_in_output", lambda *_, **__: None
    )
    who = user_of(fitted.context, row(c6=3, c2=3))
    answer = of_user(Scorer(fitted), who, [1])
    chances = []
    for member in fitted.members:
        cells = known_of(fitted.context) | {(-1, 6): 3, (-1, 2): 3}
        parts = [side_scores(fitted, member, n, Cell(-1, 1), cells, fold=False) for n in (0, 1)]
        weights = np.exp(np.sum(parts, axis=0))
        chances.append(weights / weights.sum())
    np.testing.assert_allclose(answer[0], np.mean(chances, axis=0), atol=1e-6)


# -- of a model that was trained -------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> FittedModel:
    ratings = synthetic(150, 120, 4000, seed=1).ratings
    return CFNADE(side="both", hidden=(12,), epochs=12, n_threads=1).fit(ratings).fitted_


def test_the_history_of_a_trained_user_gives_what_the_user_gets(trained: FittedModel) -> None:
    scorer, every = Scorer(trained), np.arange(trained.context.n_items)
    values, gaps, rules = trained.context.scale.array(), [], []
    for user in range(0, 150, 5):
        who = stored(trained.context, user)
        free = np.setdiff1d(every, who.ratings(0)[0])
        aimed = of_user(scorer, who, free) @ values
        stranger = of_user(scorer, user_of(trained.context, who.ratings(0)), free) @ values
        nobody = of_user(scorer, user_of(trained.context, NOTHING), free) @ values
        gaps.append(np.square(stranger - aimed).mean())
        rules.append(np.square(nobody - aimed).mean())
    print(np.sqrt(np.mean(gaps)), np.sqrt(np.mean(rules)))
    assert np.sqrt(np.mean(gaps)) < 0.35 * np.sqrt(np.mean(rules))


@pytest.mark.parametrize(("n", "most"), [(30, 500), (30, 29), (30, 28), (40, 10)])
def test_leaving_out_each_rating_is_a_history_without_it(
    trained: FittedModel, n: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ratings are folded in, and some of items that training never saw."""
    monkeypatch.setattr(fold_in, "MAX_RATINGS", most)
    monkeypatch.setattr(fold_in, "MAX_SCORES", 9 * 5 * (1 + min(most, n)))  # several pieces
    rng = np.random.default_rng(n)
    columns = rng.permutation(trained.context.n_items)[: n + 1].astype(np.int32)
    scorer, rated = Scorer(trained), ratings_of(columns[1:], rng.integers(0, 5, n))
    item = columns[:1].astype(np.int64)
    user = user_of(trained.context, rated)
    found = scorer.rating_probabilities(leave_each_out(trained.context, user, int(item[0])))
    for column, one in zip(rated[0], found, strict=False):
        right = of_user(scorer, user_of(trained.context, without(rated, int(column))), item)[0]
        np.testing.assert_allclose(one, right, rtol=0, atol=1e-6)
    assert np.abs(found[:-1] - found[-1]).max() > 1e-3


@pytest.mark.parametrize("items", [[2, 0, 2, 1], [1, 1, 1], []])
def test_pairs_of_items_are_scored_once(trained: FittedModel, items: list[int]) -> None:
    n, user = len(items), user_of(trained.context, ratings_of([3, 4], [0, 1]))
    options = {"left_out": np.full(n, 1), "serial": True}
    query = Query.of_users(trained.context, user, np.zeros(n, int), np.array(items, int), **options)
    asked = []

    def score(pairs: Pairs) -> Array:
        asked.append(len(pairs.row))
        return np.stack([pairs.index, pairs.row + 10], 1)

    found = fold_in.score_distinct(query, "item", score)
    np.testing.assert_array_equal(found, score(query.pairs("item")))
    assert asked == [len(set(items)), n]


def test_known_users_and_items_are_not_touched(
    trained: FittedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("nothing is folded where there are weights")

    context = trained.context
    monkeypatch.setattr(fold_in.FoldIn, "_solution", never)
    Scorer(trained).probabilities(context.users[:500], context.items[:500])
    scorer = Scorer(trained)
    assert len(lines(scorer, stored(context, 3))) == 1


def test_without_features_the_rule_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first of several sides with weights for items: the others have nothing to add."""
    monkeypatch.setattr(RowStates, "fold_in_output", lambda *_, **__: None)
    fitted = make_kind("user-ridge")
    item, user = UNTRAINED_ITEM, 1
    levels = {
        int(u): int(k)
        for u, i, k in zip(
            fitted.context.users, fitted.context.items, fitted.context.levels, strict=True
        )
        if i == item and u != user
    }
    assert levels
    expected = rule(list(levels.values()), fitted.training_counts["item"].sum(0), prior=True)
    found = Scorer(fitted).probabilities(np.array([user]), np.array([item]))[0]
    np.testing.assert_allclose(found, np.exp(expected), atol=1e-6)
