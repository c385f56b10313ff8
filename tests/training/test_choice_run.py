"""How a choice is trained: what it learns, and the same bits however the run went."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cfnade import checkpoint
from cfnade.choice import Choice
from cfnade.choice.blending import mean_ndcg
from cfnade.choice.picks import Picks
from cfnade.choice.planning import ChoicePlan, choice_plan
from cfnade.data.splits import Split, split
from cfnade.data.synthetic_picks import TASTES, synthetic_picks
from cfnade.exceptions import TrainingError
from cfnade.kernels.threads import torch_threads
from cfnade.predictor import Predictor
from cfnade.training.choice_run import ChoiceRun, asked_of
from cfnade.training.loop import Saving
from cfnade.training.run import train_picks

MADE = synthetic_picks(600, 40, 12, seed=1)


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(MADE.ratings, "paper:0")


def plan_of(parts: Split, **changes: Any) -> ChoicePlan:
    plan = choice_plan(parts.train, seed=3)
    changes = {"epochs": 6} | changes
    nade = replace(plan.nade, hidden=12, batch=100, falls=True, **changes)
    return replace(plan, nade=nade, look_every=2, patience=9)


def run(parts: Split, plan: ChoicePlan, **how: Any) -> tuple[Choice, dict[str, Any]]:
    with torch_threads(how.pop("threads", 1)):
        return ChoiceRun(parts, plan, **how).go()


def bits(choice: Choice) -> dict[str, Any]:
    found: dict[str, Any] = {n: t.tobytes() for n, t in choice.tables().items()}
    return found | dict(choice.weights)


def after(epochs: int) -> Callable[[], bool]:
    """Says stop once so many epochs are done."""
    asked = iter(range(1, 100))
    return lambda: next(asked) >= epochs


@pytest.mark.parametrize("head", [0, 8])
@pytest.mark.parametrize("stopped", [1, 2, 3, 5])
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    parts: Split, stopped: int, head: int, tmp_path: Path
) -> None:
    plan = plan_of(parts, head=head, tail=5)
    whole, facts = run(parts, plan)
    run(parts, plan, saving=Saving(tmp_path), stop=after(stopped))
    assert (tmp_path / "lists" / "training.safetensors").exists()
    said: list[str] = []
    resumed, found = run(parts, plan, saving=Saving(tmp_path, resume=True), say=said.append)
    assert bits(resumed) == bits(whole)
    assert found["history"] == facts["history"]
    assert [one["epoch"] for one in found["history"]] == [2, 4, 6]
    first = min(epoch for epoch in (2, 4, 6) if epoch > stopped)
    assert said[0].startswith(f"lists: epoch {first},")


def test_a_run_that_was_killed_ends_with_the_same_bits(parts: Split, tmp_path: Path) -> None:
    """Its state is from some time before; nothing was written for the stop itself."""
    plan = plan_of(parts)

    class KilledError(Exception):
        pass

    def kill() -> bool:
        if stop():
            raise KilledError
        return False

    stop = after(4)
    with pytest.raises(KilledError):
        run(parts, plan, saving=Saving(tmp_path, seconds=0.0), stop=kill)
    resumed, _ = run(parts, plan, saving=Saving(tmp_path, resume=True))
    assert bits(resumed) == bits(run(parts, plan)[0])


def test_the_best_before_a_stop_is_the_best_after_it(parts: Split, tmp_path: Path) -> None:
    plan = plan_of(parts, learning_rate=0.3)
    nade = replace(plan.nade, falls=False, epochs=30)  # so much that it gets worse again
    plan = replace(plan, nade=nade, look_every=1, patience=3)
    whole, facts = run(parts, plan)
    best = 1 + int(np.argmax([one["ndcg"] for one in facts["history"]]))
    assert best < len(facts["history"])
    run(parts, plan, saving=Saving(tmp_path), stop=after(best + 1))
    assert bits(run(parts, plan, saving=Saving(tmp_path, resume=True))[0]) == bits(whole)


def test_a_run_that_was_stopped_makes_no_further_paths(parts: Split, tmp_path: Path) -> None:
    plan = plan_of(parts)
    said: list[str] = []
    stopped, _ = run(parts, plan, saving=Saving(tmp_path), stop=after(2), say=said.append)
    assert [*stopped.sides] == ["nade"]
    assert not [line for line in said if "linear" in line or "posterior" in line]
    epochs = plan.nade.epochs  # asked after each, and before each further path
    assert [*run(parts, plan, stop=after(epochs + 2))[1]["alone"]] == ["nade", "linear"]
    made = run(parts, plan, stop=after(epochs + 3))[1]["alone"]
    assert [*made] == ["nade", "linear", "posterior"]
    model = train_picks(parts, plan, stop=after(2))
    assert model.stopped
    assert Predictor(model.fitted).recommend([1], n=3).height == 3


def test_a_disk_without_room_for_lists_is_refused(
    parts: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(parts, epochs=1)
    plan = replace(plan, nade=replace(plan.nade, hidden=400))
    fitted = train_picks(parts, plan, saving=Saving(tmp_path)).fitted
    checkpoint.save(fitted, tmp_path / "model")
    state = (tmp_path / "lists" / "training.safetensors").stat().st_size
    model = sum(path.stat().st_size for path in (tmp_path / "model").rglob("*.safetensors"))
    truly = state + max(model, state)  # the model is written while the state is there

    def tried(free: float) -> None:
        usage = SimpleNamespace(free=int(free))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        train_picks(parts, plan, saving=Saving(tmp_path / "other"))

    with pytest.raises(TrainingError, match="the disk has"):
        tried(0.9 * truly)
    tried(1.1 * truly)


def test_a_state_of_another_run_is_refused(parts: Split, tmp_path: Path) -> None:
    run(parts, plan_of(parts), saving=Saving(tmp_path), stop=after(1))
    with pytest.raises(TrainingError, match="belongs to another run: plan was"):
        run(parts, plan_of(parts, target_power=0.3), saving=Saving(tmp_path, resume=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits(parts: Split, threads: int) -> None:
    plan = plan_of(parts, epochs=2)
    one, other = (bits(run(parts, plan, threads=threads)[0]) for _ in range(2))
    assert one == other
    seeded = replace(plan, nade=replace(plan.nade, seed=4))
    assert bits(run(parts, seeded, threads=threads)[0]) != one


def test_the_best_look_counts_and_patience_ends(parts: Split) -> None:
    plan = replace(plan_of(parts, learning_rate=0.3), look_every=1, patience=2)
    plan = replace(plan, nade=replace(plan.nade, epochs=40, falls=False))
    choice, facts = run(parts, plan)
    values = [one["ndcg"] for one in facts["history"]]
    assert len(values) < 40
    assert int(np.argmax(values)) == len(values) - 3
    asked = asked_of(parts, 3)
    assert asked is not None
    alone = mean_ndcg(choice.sides["nade"].scores(asked.known.evenly()), asked)
    assert alone == pytest.approx(max(values), abs=1e-5)


def test_without_validation_all_epochs_are_run_and_every_side_counts(parts: Split) -> None:
    bare = replace(parts, valid=parts.valid.select(np.empty(0, np.int64)))
    choice, facts = run(bare, plan_of(parts))
    assert [one["ndcg"] for one in facts["history"]] == [None] * 3
    spreads = {
        n: w * choice.sides[n].scores(Picks.of(parts.train)).std()
        for n, w in choice.weights.items()
    }
    assert spreads["linear"] == pytest.approx(0.35 * spreads["nade"], rel=1e-3)


def test_people_who_are_asked_are_those_of_validation(parts: Split) -> None:
    asked = asked_of(parts, 0)
    assert asked is not None
    people = np.unique(parts.valid.users)
    known, answers = (
        [set(part.items[part.users == user].tolist()) for user in people]
        for part in (parts.train, parts.valid)
    )
    for picks, wanted in ((asked.known, known), (asked.answers, answers)):
        found = [
            set(picks.columns[lo:hi].tolist())
            for lo, hi in zip(picks.offsets, picks.offsets[1:], strict=False)
        ]
        assert found == wanted


def reachable(liking: Any, known: Picks) -> Any:
    """The chances of the next pick for who knows how everything is made but nobody's tastes.

    Tastes are drawn as they were, and count as they explain the known picks, one after another.
    """
    middle = liking.mean(0)
    directions = np.linalg.svd(liking - middle, full_matrices=False)[2][:TASTES]
    places = (liking - middle) @ directions.T
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_normal(np.zeros(TASTES), np.cov(places.T), 3000)
    odds = np.exp(middle + drawn @ directions)  # (draws, M)
    out = np.empty((len(known), liking.shape[1]))
    for row, (lo, hi) in enumerate(pairwise(known.offsets)):
        own = odds[:, known.columns[lo:hi]]
        left = odds.sum(1, keepdims=True) - np.cumsum(own, 1) + own
        logs = np.log(own / left).sum(1)
        weights = np.exp(logs - logs.max())
        rest = odds / (odds.sum(1) - own.sum(1))[:, None]
        out[row] = weights @ rest / weights.sum()
    return out


def test_lists_come_near_the_best_that_there_can_be() -> None:
    """How picks were made is known, so the best list is; popularity is what everybody gets."""
    made = synthetic_picks(1500, 60, 14, seed=2)
    parts = split(made.ratings, "paper:0")
    plan = choice_plan(parts.train, seed=0)
    plan = replace(plan, nade=replace(plan.nade, hidden=40, epochs=30, batch=150))
    fitted = train_picks(parts, plan, threads=1).fitted
    assert fitted.choice is not None
    asked = asked_of(replace(parts, valid=parts.test), 0)
    assert asked is not None
    popular = np.tile(np.bincount(parts.train.items, minlength=60), (len(asked.known), 1))
    best, theirs, ours = (
        mean_ndcg(scores.astype(np.float32), asked, 10)
        for scores in (
            reachable(made.liking, asked.known),
            popular,
            fitted.choice.scores(asked.known),
        )
    )
    assert theirs < ours < best + 0.02
    assert ours > theirs + 0.75 * (best - theirs)
    # Its chances are honest: sharper or flatter ones would make the picks less likely.
    logs = torch.from_numpy(fitted.choice.log_chances(asked.known))
    cells = asked.answers.rows, asked.answers.columns
    costs = [-float((f * logs).log_softmax(1).numpy()[cells].mean()) for f in (0.8, 1.0, 1.25)]
    assert int(np.argmin(costs)) == 1


def test_nothing_to_train_on_is_refused(parts: Split) -> None:
    bare = replace(parts, train=parts.train.select(np.empty(0, np.int64)))
    with pytest.raises(TrainingError, match="there is nothing to train on"):
        train_picks(bare, plan_of(parts))
