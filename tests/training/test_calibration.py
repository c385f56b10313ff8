"""Validation ratings asked from few of a person's ratings, and what calibration makes of them."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.inference.cases import known_cells, literal, make_kind, ratings
from tests.queries import user_of

from cfnade.calibration import calibration
from cfnade.calibration.calibration import fit_calibration
from cfnade.calibration.per_user import LevelPreferences
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.evaluation.rating_metrics import nll
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Entities, KnownRatings, Query
from cfnade.training import calibration as training_calibration
from cfnade.training.calibration import (
    Predictions,
    ValidationPredictions,
    calibrate,
    pool_predictions,
    predict_as_new_users,
    predict_known_users,
    predict_validation,
    sample_users,
    short_histories,
)
from cfnade.training.plan import plan_side
from cfnade.training.train import train


def pairs(row: KnownRatings) -> set[tuple[int, int]]:
    return set(zip(row[0].tolist(), row[1].tolist(), strict=True))


def test_contexts_are_nested_parts_of_what_a_person_rated() -> None:
    rows = Entities.of_dataset(synthetic(30, 60, 700, seed=1).ratings, "user")
    for user in range(30):
        rated = rows.ratings(user)
        found = [pairs(row) for row in short_histories(rated, user, seed=4)]
        assert [len(part) for part in found] == [n for n in (1, 5, 20, 80) if n < len(rated[1])]
        for smaller, larger in zip(found, [*found[1:], pairs(rated)], strict=True):
            assert smaller < larger
        again = [pairs(row) for row in short_histories(rated, user, seed=4)]
        assert again == found
    firsts = [
        [pairs(next(short_histories(rows.ratings(user), user, seed))) for user in range(30)]
        for seed in (0, 1)
    ]
    assert sum(one != other for one, other in zip(*firsts, strict=True)) > 20


@pytest.mark.parametrize("kind", ["user", "user-seeds", "both"])
def test_people_are_asked_about_as_new_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_calibration, "HISTORY_SIZES", (1, 3))
    data = ratings()
    fitted, valid = make_kind(kind, data=data.select(np.arange(50))), data.select(np.arange(50, 70))
    few = predict_as_new_users(fitted, valid, seed=2)
    known, rows, asked = (
        known_cells(fitted.context),
        Entities.of_dataset(fitted.context, "user"),
        [],
    )
    for user in np.unique(valid.users).tolist():
        for row in short_histories(rows.ratings(user), user, 2):
            told = known | {(-1, item): level for item, level in pairs(row)}
            for item, level in pairs(Entities.of_dataset(valid, "user").ratings(user)):
                new, zero = user_of(fitted.context, row), np.zeros(1, np.int64)
                query = Query.of_users(fitted.context, new, zero, np.array([item]))
                leaning = LevelPreferences(fitted).for_query(query)
                asked.append((literal(fitted, -1, item, told), level, leaning))
    assert len(few.levels) == len(asked) > 30

    def sorted_lines(*parts: Any) -> Any:
        lines = np.column_stack([np.round(np.array(part, np.float64), 4) for part in parts])
        return lines[np.lexsort(lines.T)]

    chances, levels, leanings = zip(*asked, strict=True)
    np.testing.assert_allclose(
        sorted_lines(few.levels, few.preferences, few.probabilities),
        sorted_lines(levels, np.concatenate(leanings), chances),
        atol=2e-4,
    )


def test_who_is_asked_about_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ratings()
    fitted, valid = (
        make_kind("user", data=data.select(np.arange(50))),
        data.select(np.arange(50, 70)),
    )
    monkeypatch.setattr(training_calibration, "MAX_NEW_USERS", 3)
    one, same, other = (predict_as_new_users(fitted, valid, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.probabilities, same.probabilities)
    assert np.array_equal(one.preferences, same.preferences)
    assert len(sample_users(valid, 5)) == 3
    assert one.levels.tolist() != other.levels.tolist()


def made_up(n: int, seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    levels = np.arange(n).astype(np.uint8) % 5
    return Predictions(rng.dirichlet(np.ones(5), n), levels, rng.normal(size=(n, 5)))


@pytest.mark.parametrize(("n", "few", "took"), [(300, 10, 10), (30, 80, 10), (300, 80, 50)])
def test_three_ratings_from_all_go_with_one_from_few(
    n: int, few: int, took: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_calibration, "MAX_NEW_USER_RATINGS", 50)
    everything, some = made_up(n, 0), made_up(few, 1)
    pool = pool_predictions(everything, some)
    assert [len(part) for part in pool] == [4 * took] * 3
    lines = {tuple(line) for line in np.column_stack([*everything])[:, :5]}
    from_all = [tuple(line) in lines for line in pool.probabilities]
    assert from_all == [True] * 3 * took + [False] * took
    assert len({tuple(line) for line in pool.probabilities}) == 4 * took  # none of them twice


@pytest.mark.parametrize(("n", "few"), [(2, 10), (10, 0)])
def test_without_enough_of_either_all_is_what_counts(n: int, few: int) -> None:
    everything = made_up(n, 0)
    assert pool_predictions(everything, made_up(few, 1)) is everything


# -- what calibration makes of them ----------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> tuple[Split, FittedModel]:
    parts = split(synthetic(150, 80, 4_000, seed=2).ratings, "paper:0")
    settings = TrainingConfig(epochs=6, batch_rows=32)
    fitted = train(parts, plan_side("user", {"hidden": (12,)}, settings)).model
    return parts, fitted


def of_training(trained: tuple[Split, FittedModel]) -> tuple[FittedModel, Split]:
    parts, fitted = trained
    return replace(fitted, context=parts.train), parts


def test_it_is_fitted_on_few_and_all(trained: tuple[Split, FittedModel]) -> None:
    fitted, parts = of_training(trained)
    stars, everything = parts.valid.scale.array(), predict_known_users(fitted, parts.valid)
    pool = pool_predictions(everything, predict_as_new_users(fitted, parts.valid, seed=0))
    together = fit_calibration(pool.probabilities, pool.levels, stars, pool.preferences)
    alone = fit_calibration(
        everything.probabilities, everything.levels, stars, everything.preferences
    )
    found, new, metrics = calibrate(
        predict_validation(fitted, parts.valid, seed=0), parts.valid, knows_users=False
    )
    assert new is None
    before, after = (
        nll(one.apply(everything.probabilities, stars, everything.preferences), everything.levels)
        for one in (alone, together)
    )
    assert found == (together if after <= before + 0.001 else alone)
    assert metrics["nll"] == pytest.approx(after if found == together else before, abs=1e-12)


def test_those_who_are_known_do_not_pay_for_it(
    trained: tuple[Split, FittedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, parts = of_training(trained)
    everything = predict_known_users(fitted, parts.valid)
    alone = fit_calibration(*everything[:2], parts.valid.scale.array(), everything.preferences)
    monkeypatch.setattr(training_calibration, "MAX_NLL_INCREASE", 1.0)
    answers = predict_validation(fitted, parts.valid, seed=0)
    assert calibrate(answers, parts.valid, knows_users=False).known != alone
    monkeypatch.setattr(training_calibration, "MAX_NLL_INCREASE", -1.0)
    assert calibrate(answers, parts.valid, knows_users=False).known == alone


def test_known_and_new_people_have_each_their_own(trained: tuple[Split, FittedModel]) -> None:
    fitted, parts = of_training(trained)
    stars, everything = parts.valid.scale.array(), predict_known_users(fitted, parts.valid)
    few = predict_as_new_users(fitted, parts.valid, seed=0)
    known, new, metrics = calibrate(
        predict_validation(fitted, parts.valid, seed=0), parts.valid, knows_users=True
    )
    assert known == fit_calibration(*everything[:2], stars, everything.preferences)
    assert new == fit_calibration(*few[:2], stars, few.preferences) != known
    after = nll(
        known.apply(everything.probabilities, stars, everything.preferences), parts.valid.levels
    )
    assert metrics["nll"] == pytest.approx(after, abs=1e-12)


def test_only_a_model_with_weights_for_people_sets_new_ones_apart(
    trained: tuple[Split, FittedModel],
) -> None:
    parts, of_users = trained
    assert of_users.calibration_of_new is None
    settings = TrainingConfig(epochs=1, batch_rows=40, batch_columns=30)
    joint = train(parts, plan_side("both", {"hidden": (8,)}, settings)).model
    few = predict_as_new_users(replace(joint, context=parts.train), parts.valid, seed=0)
    stars = parts.valid.scale.array()
    assert (
        joint.calibration_of_new
        == fit_calibration(*few[:2], stars, few.preferences)
        != joint.calibration
    )


def test_only_one_calibrated_table_is_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("MAX_FIT_RATINGS", 1 << 10), ("_CHUNK", 1 << 10), ("_COPIED", 1 << 11)):
        monkeypatch.setattr(calibration, name, size)
    valid = synthetic(400, 300, 40_000, seed=3).ratings
    chances = np.random.default_rng(1).dirichlet(np.full(5, 3.0), len(valid))
    everything = Predictions(chances, valid.levels, np.zeros_like(chances))
    # Kernels are loaded before anything is measured.
    first = everything.sample(9)
    fit_calibration(first.probabilities, first.levels, valid.scale.array())
    tracemalloc.start()
    try:
        calibrate(
            ValidationPredictions(everything, everything.sample(1_000)), valid, knows_users=False
        )
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 3 * chances.nbytes


def test_a_handful_of_replies_is_not_fitted_on(
    trained: tuple[Split, FittedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, parts = of_training(trained)
    answers = predict_validation(fitted, parts.valid, seed=0)
    assert answers.new is not None
    monkeypatch.setattr(training_calibration, "MIN_NEW_USER_RATINGS", len(answers.new.levels) + 1)
    assert calibrate(answers, parts.valid, knows_users=True).new is None


def test_a_model_that_takes_no_histories_is_predict_known_users(
    trained: tuple[Split, FittedModel],
) -> None:
    parts, _ = trained
    settings = TrainingConfig(epochs=2, batch_rows=32)
    fitted = train(parts, plan_side("item", {"hidden": (8,)}, settings)).model
    items, _ = of_training((parts, fitted))
    everything = predict_known_users(items, parts.valid)
    alone = fit_calibration(*everything[:2], parts.valid.scale.array(), everything.preferences)
    assert fitted.calibration == alone
    assert fitted.calibration_of_new is None
