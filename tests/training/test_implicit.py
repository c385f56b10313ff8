"""Selection of an interaction model: what is learned, and what more time may change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.inference.cases import estimator

from cfnade.data.dataset import Interactions
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic_interactions
from cfnade.exceptions import TrainingError
from cfnade.implicit import InteractionModel, interaction_components
from cfnade.implicit.base import DataShape
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.validation import Question, RankingMetric
from cfnade.training import implicit
from cfnade.training.callbacks import Callback, MessageCallback, Stage
from cfnade.training.implicit import (
    ImplicitPlan,
    ImplicitTraining,
    _affordable,
    default_seconds,
    implicit_plan,
)
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.train import train

MADE = synthetic_interactions(600, 40, 12, seed=1)
PLAN = ImplicitPlan(seconds=2.0, seed=3)


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(MADE.interactions, "paper:0")


def run(
    parts: Split, plan: ImplicitPlan, callback: Callback | None = None, **options: Any
) -> tuple[InteractionModel, dict[str, Any]]:
    run_options = RunOptions(**{"n_threads": 1, **options})
    training = ImplicitTraining(parts, plan, run_options, callback or Callback())
    return training.run(), training.facts


def bits(model: InteractionModel) -> dict[str, Any]:
    found: dict[str, Any] = {name: array.tobytes() for name, array in model.arrays().items()}
    return found | dict(model.weights) | {"sharpness": model.sharpness}


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits(parts: Split, threads: int) -> None:
    one, other = (bits(run(parts, PLAN, n_threads=threads)[0]) for _ in range(2))
    assert one == other
    assert bits(run(parts, replace(PLAN, seed=4), n_threads=threads)[0]) != one


def test_more_time_than_the_default_never_gives_a_worse_validation_score(
    parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implicit, "BASE_SECONDS", 0.0)
    monkeypatch.setattr(implicit, "CORES", 0.02)  # as on a machine that is 85 times slower
    found = [run(parts, replace(PLAN, seconds=seconds))[1] for seconds in (1.0, 4.0, 20.0)]
    scores = [facts["score"] for facts in found]
    assert scores == sorted(scores)
    assert 0.9 < default_seconds(len(parts.train)) < 1
    fits = [sum(map(len, facts["tried"].values())) for facts in found]
    assert fits[0] < fits[-1]
    for facts in found:
        assert facts["score"] >= max(facts["component_scores"].values())


def test_the_validation_part_is_trained_on_in_the_end(parts: Split) -> None:
    """Nothing of train and valid stays outside of the final model, and all of test does."""
    model, _ = run(parts, PLAN)
    logs = model.components["popularity"].arrays["logs"]
    both = np.bincount(parts.train.items, minlength=40) + np.bincount(
        parts.valid.items, minlength=40
    )
    np.testing.assert_allclose(logs, np.log1p(both), rtol=1e-6)


def test_users_held_out_whole_stay_out_and_choose() -> None:
    held = split(MADE.interactions, "liang:40")
    model, facts = run(held, PLAN)
    counts = np.bincount(held.train.items, minlength=40)
    logs = model.components["popularity"].arrays["logs"]
    np.testing.assert_allclose(logs, np.log1p(counts), rtol=1e-6)
    assert facts["score"] > facts["component_scores"]["popularity"]


def test_a_stopped_training_has_a_model_of_what_was_tried(parts: Split) -> None:
    whole = run(parts, replace(PLAN, seconds=30.0))[1]
    model, facts = run(parts, replace(PLAN, seconds=30.0), should_stop=lambda: True)
    assert sum(map(len, facts["tried"].values())) < sum(map(len, whole["tried"].values()))
    trained = train(parts, TrainingPlan(implicit=PLAN), RunOptions(should_stop=lambda: True))
    assert trained.stopped
    assert estimator(trained.model).recommend([1], n=3).height == 3
    assert np.isfinite(model.scores(InteractionRows.from_ratings(parts.train))).all()


def test_what_was_tried_is_reported(parts: Split) -> None:
    lines: list[str] = []
    _, facts = run(parts, PLAN, MessageCallback(lines.append))
    assert set(facts["tried"]) == set(facts["component_scores"]) == set(facts["weights"])
    for name in facts["tried"]:
        assert any(name in line for line in lines)
    assert facts["plan"] == {
        "seconds": 2.0,
        "metric": {"metric": "ndcg", "k": 20},
        "seed": 3,
    }


def test_progress_names_components_and_says_how_much_is_done(parts: Split) -> None:
    steps: list[tuple[Stage, float]] = []

    class Recorder(Callback):
        def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
            assert cost is None
            steps.append((stage, progress))

    _, facts = run(parts, PLAN, Recorder())
    stages, progress = zip(*steps, strict=True)
    assert {*facts["tried"], "weights"} <= {stage.detail for stage in stages}
    assert {stage.seconds for stage in stages} == {PLAN.seconds}
    assert all(0 <= one <= 1 for one in progress)
    assert progress[-1] > 0.8 > progress[0]


@pytest.mark.parametrize("each", [1, 2])
def test_data_with_too_few_interactions_are_ranked_by_popularity(each: int) -> None:
    """One interaction of each user leaves nothing to hide; two leave one to know them by."""
    users = np.repeat(np.arange(7), each).astype(np.int32)
    items = np.minimum(np.arange(7 * each) % 3, 2).astype(np.int32)
    tiny = Interactions(users, items, np.arange(7), np.arange(3))
    model, facts = run(split(tiny, "all"), PLAN)
    if each == 1:
        assert facts["weights"] == {"popularity": 1.0}
        counts = np.bincount(items, minlength=3)
        expected = (counts + 1) / (counts + 1).sum()
        np.testing.assert_allclose(np.exp(model.base_log_probabilities), expected, rtol=1e-5)
    rows = InteractionRows.from_ratings(tiny)
    assert np.isfinite(model.scores(rows)).all()


def test_nothing_to_train_on_is_refused(parts: Split) -> None:
    bare = replace(parts, train=parts.train.select(np.empty(0, np.int64)))
    with pytest.raises(TrainingError, match="there are no interactions to train on"):
        train(bare, TrainingPlan(implicit=PLAN))


def test_lists_come_near_the_best_that_there_can_be() -> None:
    """How interactions were made is known, so the best order of items is, up to taste."""
    made = synthetic_interactions(1500, 60, 14, seed=2)
    parts = split(made.interactions, "paper:0")
    fitted = train(
        parts, TrainingPlan(implicit=implicit_plan(parts.train)), RunOptions(n_threads=1)
    ).model
    assert fitted.interaction_model is not None
    known = InteractionRows.from_ratings(parts.train.concat(parts.valid))
    users = np.unique(parts.test.users).astype(np.int64)
    answers = InteractionRows.from_ratings(parts.test).select(users)
    question = Question(known.select(users), answers)
    counts = np.bincount(parts.train.items, minlength=60).astype(np.float32)
    theirs, ours, best = (
        float(
            RankingMetric(k=10).evaluate(np.ascontiguousarray(scores, np.float32), question).mean()
        )
        for scores in (
            np.tile(counts, (len(users), 1)),
            fitted.interaction_model.scores(question.history),
            made.utility[users],  # each user's own taste, which nobody can know exactly
        )
    )
    assert theirs < ours < best
    assert ours > theirs + 0.4 * (best - theirs)


# -- budgets ---------------------------------------------------------------------------------------


def test_the_default_budget_grows_with_the_data_up_to_a_limit() -> None:
    assert default_seconds(0) == 15.0
    assert default_seconds(100_000) == 30.0
    assert default_seconds(10_000_000) == 90.0


@pytest.mark.parametrize(
    ("shape", "left_out"),
    [
        (DataShape(10_000, 5_000, 100_000, 10_000_000), {"set-nade"}),
        (DataShape(30_000, 41_000, 810_000, 90_000_000), {"ease", "set-nade"}),
        (DataShape(6_000, 3_500, 575_000, 150_000_000), set()),
    ],
)
def test_components_that_cost_too_much_are_left_out(shape: DataShape, left_out: set[str]) -> None:
    seconds = default_seconds(shape.interactions)
    assert set(interaction_components()) - set(_affordable(shape, seconds, 1)) == left_out
    cheap = _affordable(shape, 0.01, 1)
    assert "popularity" in cheap
    assert len(cheap) == 2
