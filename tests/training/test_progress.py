"""Progress of a training: history.jsonl, the display, and the estimated time left."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cfnade import CFNADE
from cfnade.data.synthetic import synthetic
from cfnade.training.callbacks import Callback, HistoryCallback, Stage
from cfnade.training.progress import ProgressCallback, TimeEstimate


def record(epoch: int) -> dict[str, Any]:
    scores = {"criterion": "rmse", "valid_rmse": 0.9, "best_rmse": 0.9, "best_epoch": 1}
    return {"epoch": epoch, "cost": 1.0, **scores, "seconds": 0.1}


USER = Stage("user", member=0, epochs=4)


def epochs(folder: Path) -> list[int]:
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


@pytest.mark.parametrize("between", [True, False], ids=["in an epoch", "before an epoch's end"])
def test_history_of_a_resumed_run_is_what_its_state_knows_and_what_follows(
    between: bool, tmp_path: Path
) -> None:
    """The state may be from after the last step of an epoch: then the epoch comes first."""
    (tmp_path / "history.jsonl").write_text(
        "".join(json.dumps(record(i)) + "\n" for i in (1, 2, 3))
    )
    history = HistoryCallback(tmp_path / "history.jsonl", [record(1)])
    if between:
        history.on_step_end(USER, 1.0, 1.0)
    history.on_epoch_end(record(2))
    history.on_step_end(USER, 0.5, 1.0)
    history.on_step_end(USER, 1.0, 1.0)
    history.on_epoch_end(record(3))
    assert epochs(tmp_path) == [1, 2, 3]


def test_nothing_is_touched_before_training_has_begun(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("earlier\n")
    begun: list[str] = []

    def begin() -> None:
        begun.append((tmp_path / "history.jsonl").read_text())

    history = HistoryCallback(tmp_path / "history.jsonl", [], begin)
    assert (tmp_path / "history.jsonl").read_text() == "earlier\n"
    history.on_step_end(USER, 0.5, 1.0)
    history.on_step_end(USER, 1.0, 1.0)
    history.on_epoch_end(record(1))
    assert begun == ["earlier\n"]
    assert epochs(tmp_path) == [1]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("cfnade.training.progress.REDRAW_SECONDS", -1.0)
    return Screen()


def test_one_line_names_the_stages_the_models_and_the_epoch(shown: Screen) -> None:
    both, factors = Stage("both", member=0, epochs=4), Stage("item-factors", member=1)
    interactions = Stage("interactions", seconds=5.0)
    display = ProgressCallback(shown)

    def description() -> str:
        (task,) = display._display.tasks
        return str(task.description)

    display.on_train_begin([both, factors, interactions])
    display.on_stage_begin(both)
    assert description() == "model 1/2 both"
    display.on_step_end(both, 0.5, 1.0)
    assert description() == "model 1/2 both   epoch 1"
    display.on_stage_begin(factors)
    display.on_step_end(both, 1.5, 1.0)
    assert description() == "model 1/2 both   epoch 2, model 2/2 item-factors"
    display.on_epoch_end(record(2) | {"member": 0})
    for stage in (both, factors):
        display.on_stage_end(stage)
    display.on_stage_begin(interactions)
    assert description() == "interactions"
    display.on_message("interactions: ease, NDCG@20 0.36")
    display.on_train_end()
    lines = shown.getvalue()
    assert "model 1/2 both   epoch 2/4   cost" in lines
    assert "valid RMSE 0.9000   best 0.9000 @ 1" in lines
    assert "interactions: ease, NDCG@20 0.36" in lines
    assert "s left" in lines


def test_elsewhere_lines_are_printed_without_the_display() -> None:
    file = io.StringIO()
    display = ProgressCallback(file)
    display.on_train_begin([USER])
    display.on_stage_begin(USER)
    display.on_step_end(USER, 1.0, 1.0)
    display.on_epoch_end(record(1))
    display.on_train_end()
    (line,) = file.getvalue().splitlines()
    assert line.startswith("epoch 1/4   cost")


# -- time left -------------------------------------------------------------------------------------


class Run:
    """A training whose stages take known times, by a clock of its own."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.now, self.estimates = 0.0, list[tuple[float, float]]()
        self.estimate = TimeEstimate(lambda: self.now)
        self.estimate.announce(stages)

    def spend(self, stage: Stage, seconds: float, progress: float) -> None:
        self.now += seconds
        self.estimate.advance(stage, progress)
        left = self.estimate.remaining()
        if left is not None:
            self.estimates.append((self.now, left))

    def train(self, stage: Stage, epochs: int, seconds: float) -> None:
        """Train some epochs, of which each is the best so far until the last `patience` ones."""
        self.estimate.begin(stage)
        for step in range(10 * epochs):
            self.spend(stage, seconds / 10, (step + 1) / 10)
            if stage.patience is None or step // 10 < epochs - stage.patience:
                self.estimate.improve(stage, step // 10)
        self.estimate.end(stage)

    def errors(self, *, after: float = 0.1, until: float = 0.9) -> list[float]:
        """Factors by which estimates are off, after a first part of the time."""
        end = self.now
        found = [(now, left / (end - now)) for now, left in self.estimates if now < until * end]
        return [max(ratio, 1 / ratio) for now, ratio in found if now > after * end]


@pytest.mark.parametrize("slowness", [0.3, 1.0, 4.0])
def test_the_time_left_is_right_within_a_factor_of_two(slowness: float) -> None:
    """Members with estimates of which two stop early, a refit, and the interaction model."""
    joint, single = Stage("both", 10.0, 0, 12, 3), Stage("item", 4.0, 1, 12, 3)
    refit, interactions = replace(single, refit=True), Stage("interactions", 8.0)
    run = Run([joint, single, refit, interactions])
    run.train(joint, 8, slowness * 10 / 12)
    run.train(single, 10, slowness * 4 / 12)
    run.train(replace(refit, epochs=7), 7, slowness * 4 / 12)
    run.estimate.begin(interactions)
    for step in range(40):
        run.spend(interactions, slowness * 8 / 40, (step + 1) / 40)
    errors = run.errors()
    assert len(errors) > 100
    assert max(errors) < 2


def test_early_stopping_is_expected_long_before_the_last_epoch() -> None:
    stage = Stage("user", member=0, epochs=100, patience=5)
    run = Run([stage])
    run.train(stage, 25, 3.0)
    assert max(run.errors(until=0.5)) < 2


def test_models_without_an_estimate_are_timed_by_their_own_epochs() -> None:
    stages = [Stage("user", member=number, epochs=10) for number in range(3)]
    run = Run(stages)
    for stage in stages:
        run.train(stage, 10, 3.0)
    assert max(run.errors(after=0.02)) < 1.05


def test_a_resumed_run_counts_only_the_time_since() -> None:
    run = Run([USER])
    run.estimate.advance(USER, 3.1)
    run.spend(USER, 1.0, 3.2)
    run.spend(USER, 4.0, 3.6)
    assert run.estimates[-1][1] == pytest.approx(4.0, rel=0.3)


def test_nothing_is_said_before_anything_is_known() -> None:
    run = Run([USER])
    run.estimate.begin(USER)
    assert run.estimate.remaining() is None


def test_members_and_later_stages_are_announced() -> None:
    announced: list[Stage] = []
    stages: list[tuple[str, int | None]] = []

    class Stages(Callback):
        def on_train_begin(self, stages: Sequence[Stage]) -> None:
            announced.extend(stages)

        def on_stage_begin(self, stage: Stage) -> None:
            stages.append((stage.name, stage.member))

    ratings = synthetic(30, 20, 300, seed=3).ratings
    model = CFNADE(side="user,item", epochs=1, hidden=(4,), n_threads=1, learn_interactions=True)
    model.fit(ratings, callbacks=[Stages()])
    assert stages == [("user", 0), ("item", 1), ("calibration", None), ("interactions", None)]
    assert [(stage.name, stage.member) for stage in announced] == stages
