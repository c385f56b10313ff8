"""Nothing said: which members are tried, what each counts, and what is told of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.queries import known, of_user, stored, user_of
from tests.support.close import assert_close

from cfnade import CFNADE, Split
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import TrainingError
from cfnade.inference.scorer import Scorer
from cfnade.training.calibration import Predictions, ValidationPredictions, mix_predictions
from cfnade.training.ensemble import Weights, fit_weights, select_stages
from cfnade.training.plan import (
    SEEDS,
    DataSize,
    MemberPlan,
    default_seconds,
    estimate_seconds,
    plan_members,
)
from cfnade.training.validation import baseline_rmse, warn_below_baseline

SMALL = DataSize(users=600, items=500, ratings=20_000, levels=5)
TINY = DataSize(users=100, items=100, ratings=2_000, levels=5)
LARGE = DataSize(users=480_000, items=17_770, ratings=100_000_000, levels=5)


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(synthetic(120, 80, 3_000, factors=2, seed=3).ratings, "paper:0")


@pytest.fixture(scope="module")
def fitted(parts: Split) -> CFNADE:
    return CFNADE(time_budget=0.1, n_threads=1).fit(parts)


# -- which members ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [SMALL, LARGE, replace(SMALL, levels=10), TINY])
@pytest.mark.parametrize("seconds", [1.0, 15.0, 60.0, 3600.0])
def test_factor_analyses_are_always_made_and_the_rest_fits_the_time(
    shape: DataSize, seconds: float
) -> None:
    plans = plan_members(shape, seconds=seconds)
    assert {"user-factors (10 samples)", "user-factors", "item-factors"} <= {
        plan.label for plan in plans
    }
    bare = [replace(plan, stage=0) for plan in plans]
    assert all(bare.count(plan) == 1 for plan in bare)
    assert len(plans) == 3 or estimate_seconds(shape, plans) <= seconds


@pytest.mark.parametrize(
    "shape",
    [SMALL, LARGE, replace(SMALL, levels=10), replace(SMALL, users=9_000), replace(SMALL, users=9)],
)
def test_more_time_keeps_all_members_of_less_time_and_adds_stages(shape: DataSize) -> None:
    before: list[MemberPlan] = []
    for seconds in (1.0, 5.0, 10.0, default_seconds(shape), 60.0, 600.0, 6000.0, 60_000.0):
        plans = plan_members(shape, seconds=seconds)
        assert all(plan in plans for plan in before)
        first = max((plan.stage for plan in before), default=-1)
        assert all(plan.stage > first for plan in plans if plan not in before)
        before = plans
    sides = [plan.label for plan in before]
    assert set(sides) == {
        "user-factors (10 samples)",
        "user-factors",
        "item-factors",
        "item",
        "both",
        "user",
    }
    assert max(plan.model["hidden"][0] for plan in before if plan.side == "both") == 500
    assert max(sides.count(side) for side in ("user", "item")) == SEEDS


@pytest.mark.parametrize(
    ("shape", "minutes"),
    [
        (DataSize(943, 1_682, 90_000, 5), (1, 3)),
        (DataSize(6_040, 3_706, 900_000, 5), (1, 3, 10)),
        (LARGE, (60,)),
    ],
    ids=["MovieLens 100K", "MovieLens 1M", "Netflix"],
)
def test_a_budget_is_used(shape: DataSize, minutes: tuple[int, ...]) -> None:
    for budget in minutes:
        used = estimate_seconds(shape, plan_members(shape, seconds=60.0 * budget))
        assert 0.5 < used / (60 * budget) <= 1


def test_the_default_has_one_member_of_each_kind() -> None:
    plans = plan_members(SMALL, seconds=default_seconds(SMALL))
    sides = [plan.label for plan in plans]
    assert sorted(sides) == [
        "both",
        "item",
        "item-factors",
        "user-factors",
        "user-factors (10 samples)",
    ]


def test_the_usual_time_grows_with_the_data_up_to_a_bound() -> None:
    times = [default_seconds(replace(SMALL, ratings=n)) for n in (1_000, 100_000, 10**7, 10**9)]
    assert times == sorted(times)
    assert times[-1] == times[-2] == 40


def test_finer_scales_are_trained_by_likelihood_alone() -> None:
    for levels, weight in ((5, None), (10, 0.0)):
        plans = plan_members(replace(SMALL, levels=levels), seconds=600)
        joints = [plan for plan in plans if plan.side == "both"]
        assert {plan.model.get("ordinal_weight") for plan in joints} == {weight}


# -- what they count -------------------------------------------------------------------------------


def replies(means: Any, truth: Any, *, few: bool) -> ValidationPredictions:
    """Of a model that expects these means of ratings on a scale 1, 2."""
    chances = np.stack([2 - means, means - 1], 1)
    answered = Predictions(chances, (truth - 1).astype(np.uint8), np.zeros_like(chances))
    return ValidationPredictions(answered, answered if few else None)


def made_up(n: int, noises: list[float]) -> tuple[Dataset, list[Any], Any]:
    rng = np.random.default_rng(1)
    truth = rng.integers(1, 3, n).astype(float)
    means = [np.clip(truth + rng.normal(0, size, n), 1, 2) for size in noises]
    drawn = synthetic(40, 40, 1_000, levels=2, seed=1).ratings
    return drawn.select(np.arange(1_000)), means, truth


def test_those_who_read_no_histories_count_nothing_for_new_people() -> None:
    valid, means, truth = made_up(5_000, [0.5, 0.5])
    answers = [replies(means[0], truth, few=True), replies(means[1], truth, few=False)]
    (known, new), (other_known, other_new) = fit_weights(answers, [0, 1], valid)
    assert 0.4 < known < 0.6
    assert known + other_known == pytest.approx(1)
    assert new == pytest.approx(1)
    assert other_new == 0


def test_who_adds_nothing_is_left_out_only_if_that_is_asked() -> None:
    valid, means, truth = made_up(50_000, [0.2, 0.9])
    answers = [replies(one, truth, few=True) for one in means]
    assert fit_weights(answers, [0, 1], valid, prune=True) == ((1.0, 1.0), (0.0, 0.0))
    valid, means, truth = made_up(50_000, [0.3, 0.5])
    answers = [replies(one, truth, few=True) for one in means]
    kept = fit_weights(answers, [0, 1], valid)
    assert kept == fit_weights(answers, [0, 1], valid, prune=True)
    assert 0.05 < kept[1][0] < 0.5


def test_a_small_validation_part_leaves_good_members_nearly_equal() -> None:
    valid, means, truth = made_up(60, [0.5, 0.42, 3.0])
    (first, _), (second, _), (bad, _) = fit_weights(
        [replies(one, truth, few=True) for one in means], [0, 1, 2], valid
    )
    assert abs(first - second) < 0.05
    assert bad < 0.05


def error_of(answers: list[ValidationPredictions], shares: Weights, truth: Any) -> float:
    """The squared error for known people, of a scale 1, 2."""
    together = sum(
        share * (1 + answer.known.probabilities[:, 1])
        for answer, (share, _) in zip(answers, shares, strict=True)
    )
    return float(np.square(together - truth).mean())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [30, 300, 5_000])
def test_further_stages_never_make_the_validation_score_worse(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(1, 3, count).astype(float)
    noises = rng.uniform(0.2, 1.5, 6)
    means = [np.clip(truth + rng.normal(0, noise, count), 1, 2) for noise in noises]
    valid = synthetic(40, 40, 1_000, levels=2, seed=1).ratings.select(np.arange(1_000))
    answers = [replies(one, truth, few=True) for one in means]
    groups, stages, priors = [0, 1, 0, 2, 1, 3], [0, 0, 1, 2, 3, 4], [3.0, 1.0, 3.0, 1.0, 1.0, 1.0]
    before = np.inf
    for last in range(5):
        some = [n for n, stage in enumerate(stages) if stage <= last]
        parts = [[one[n] for n in some] for one in (answers, groups, stages, priors)]
        shares = select_stages(parts[0], parts[1], parts[2], valid, parts[3])  # type: ignore[arg-type]
        np.testing.assert_allclose(np.sum(shares, 0), 1.0)
        error = error_of(parts[0], shares, truth)  # type: ignore[arg-type]
        assert error <= before + 1e-12
        before = error


def test_a_stage_that_adds_next_to_nothing_is_left_out() -> None:
    valid, means, truth = made_up(5_000, [0.5, 0.1])
    answers = [replies(one, truth, few=True) for one in (means[0], means[0], means[1])]
    shares = select_stages(answers, [0, 1, 2], [0, 1, 2], valid, [1.0, 1.0, 1.0])
    assert shares[1][0] == pytest.approx(shares[0][0])  # alike, and the last stage is worth it
    assert shares[2][0] > 0.8
    shares = select_stages(answers[:2], [0, 1], [0, 1], valid, [1.0, 1.0])
    assert shares == ((1.0, 1.0), (0.0, 0.0))


def test_a_mixture_is_the_weighted_mean_of_distributions() -> None:
    _, means, truth = made_up(100, [0.3, 0.6])
    answers = [replies(means[0], truth, few=True), replies(means[1], truth, few=False)]
    together = mix_predictions(answers, [(0.25, 1.0), (0.75, 0.0)])
    expected = 0.25 * (means[0] - 1) + 0.75 * (means[1] - 1)
    np.testing.assert_allclose(together.known.probabilities[:, 1], expected)
    assert together.new is not None
    np.testing.assert_allclose(together.new.probabilities[:, 1], means[0] - 1)


# -- trained ---------------------------------------------------------------------------------------


def test_what_was_tried_is_kept_with_what_it_gave(fitted: CFNADE) -> None:
    tried = fitted.fitted_.metadata["tried"]
    assert {"user-factors (10 samples)", "user-factors", "item-factors"} <= {
        one["side"] for one in tried
    }
    for key in ("share", "share_of_new"):
        assert sum(one[key] for one in tried) == pytest.approx(1, abs=1e-3)
    assert all(one["seconds"] > 0 for one in tried)
    kept = [one for one in tried if max(one["share"], one["share_of_new"]) > 0]
    assert len(fitted.fitted_.members) == len(kept)
    assert fitted.fitted_.metadata["valid"]["rmse"] < fitted.fitted_.metadata["valid"]["means_rmse"]


def test_it_predicts_nearly_as_well_as_can_be() -> None:
    """The truth is known here: two tastes, and enough ratings to see them."""
    made = synthetic(150, 120, 14_000, factors=1, seed=5)
    cut = split(made.ratings, "paper:0")
    best = np.sqrt(np.mean((made.means(cut.test.users, cut.test.items) - cut.test.values) ** 2))
    found = CFNADE(time_budget=0.05, n_threads=1).fit(cut).evaluate(cut.test).rmse
    assert found < best + 0.03
    assert baseline_rmse(cut.train, cut.test) > found + 0.05


def test_a_saved_one_comes_back_and_is_trained_again_alike(
    fitted: CFNADE, parts: Split, tmp_path: Path
) -> None:
    fitted.save(tmp_path)
    back = CFNADE.load(tmp_path)
    assert back.get_params() == fitted.get_params()
    cells = parts.test.user_ids[parts.test.users], parts.test.item_ids[parts.test.items]
    assert_close(back.predict_proba(*cells), fitted.predict_proba(*cells))
    again = back.fit(parts)
    assert_close(again.predict_proba(*cells), fitted.predict_proba(*cells))


@pytest.mark.parametrize(
    "arguments", [{"refit": True}, {"verbose": True, "learn_interactions": False, "side": "auto"}]
)
def test_an_automatic_model_comes_back_with_every_argument(
    arguments: dict[str, Any], parts: Split, tmp_path: Path
) -> None:
    model = CFNADE(time_budget=np.float64(0.01), seed=4, n_threads=1, **arguments).fit(parts)
    model.save(tmp_path)
    assert CFNADE.load(tmp_path).get_params() == model.get_params()


def test_members_trained_side_by_side_are_those_trained_one_after_another(
    fitted: CFNADE, parts: Split
) -> None:
    both = CFNADE(**(fitted.get_params() | {"n_threads": 2})).fit(parts)
    cells = parts.test.user_ids[parts.test.users], parts.test.item_ids[parts.test.items]
    one, other = (model.predict_proba(*cells) for model in (fitted, both))
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    assert [m["side"] for m in both.fitted_.metadata["tried"]] == [
        m["side"] for m in fitted.fitted_.metadata["tried"]
    ]


def test_new_people_are_answered_by_those_who_read_histories(fitted: CFNADE) -> None:
    item = fitted.fitted_.context.item_ids
    low, high = (
        fitted.predict("x", item[50:60], histories={"x": dict.fromkeys(item[:8].tolist(), stars)})
        for stars in (1, 5)
    )
    assert (high > low + 0.2).all()


def test_arguments_of_a_model_mean_a_named_side(parts: Split) -> None:
    one = CFNADE(side="user", hidden=(6,), epochs=1, n_threads=1).fit(parts)
    assert one.fitted_.side == "user"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"hidden": (6,)}, r"hidden \(=\(6,\)\) describes a model"),
        ({"side": "user", "time_budget": 1.0}, r'time_budget \(=1.0\) is for side="auto"'),
        ({"time_budget": -1.0}, r"time_budget \(=-1.0\) must be"),
        ({"seed": -1}, r"seed \(=-1\) must be"),
    ]
    for wrong, message in refused:
        with pytest.raises(TrainingError, match=message):
            CFNADE(**wrong).fit(parts)


# -- the floor -------------------------------------------------------------------------------------


def test_means_are_shrunk_offsets_of_items_then_users(parts: Split) -> None:
    train, valid = parts.train, parts.valid
    mean = train.values.mean()
    errors = []
    for user, item, value in zip(valid.users, valid.items, valid.values, strict=True):

        def offset(thing: int) -> float:
            own = train.values[train.items == thing] - mean
            return float(own.sum() / (len(own) + 5))

        mine = train.users == user
        rest = [v - mean - offset(i) for v, i in zip(train.values[mine], train.items[mine])]  # noqa: B905
        said = mean + offset(item) + sum(rest) / (len(rest) + 5)
        errors.append(np.clip(said, 1, 5) - value)
    assert baseline_rmse(train, valid) == pytest.approx(np.sqrt(np.mean(np.square(errors))))


def test_a_model_behind_plain_means_is_told(parts: Split, caplog: pytest.LogCaptureFixture) -> None:
    hasty: dict[str, Any] = {
        "side": "user",
        "ridge": 0,
        "hidden": (6,),
        "epochs": 1,
        "n_threads": 1,
    }
    with caplog.at_level(logging.WARNING, "cfnade"):
        model = CFNADE(**hasty, learning_rate=1e-9).fit(parts)
    assert "is no better than plain means" in caplog.text
    assert warn_below_baseline(model.fitted_.metadata) is not None
    assert warn_below_baseline({"valid": {"rmse": 0.8, "means_rmse": 0.9}}) is None
    assert warn_below_baseline({"valid": {}}) is None


def test_who_counts_nothing_is_not_asked(fitted: CFNADE, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of new people: members that have no weights for them would be folded in for nothing."""
    members = fitted.fitted_.members
    count = len(members)
    shares = ((0.5 / count, 1 / count),) * count + ((0.5 / count, 0.0),) * count
    silent = range(count, 2 * count)
    scorer = Scorer(replace(fitted.fitted_, members=members * 2, member_weights=shares))
    for number in silent:
        monkeypatch.setattr(scorer._members[number], "scores", None)
        monkeypatch.setattr(scorer._members[number], "item_scores", None)
    context = fitted.fitted_.context
    who = user_of(context, known([1, 5], [4, 0]))
    every = np.arange(fitted.n_items_)
    one = of_user(scorer, who, every)
    listed = scorer.item_scores(who, every, leave_one_out=True).probabilities(0 * every, every)
    np.testing.assert_allclose(listed, one, atol=1e-6)
    with pytest.raises(TypeError):
        of_user(scorer, stored(context, 1), every)
