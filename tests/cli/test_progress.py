"""What a person and history.jsonl see of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cfnade import CFNADE
from cfnade.cli.progress import TrainingView
from cfnade.data.synthetic import synthetic
from cfnade.training.callbacks import Callback, Stage


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
    with TrainingView(["user"], [4], tmp_path, [record(1)]) as view:
        if between:
            view.on_step_end(USER, 1.0, 1.0)
        view.on_epoch_end(record(2))
        view.on_step_end(USER, 0.5, 1.0)
        view.on_step_end(USER, 1.0, 1.0)
        view.on_epoch_end(record(3))
    assert epochs(tmp_path) == [1, 2, 3]


def test_nothing_is_touched_before_training_has_begun(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("earlier\n")
    begun: list[str] = []

    def begin() -> None:
        begun.append((tmp_path / "history.jsonl").read_text())

    with TrainingView(["user"], [4], tmp_path, [], begin) as view:
        assert (tmp_path / "history.jsonl").read_text() == "earlier\n"
        view.on_step_end(USER, 0.5, 1.0)
        view.on_step_end(USER, 1.0, 1.0)
        view.on_epoch_end(record(1))
    assert begun == ["earlier\n"]
    assert epochs(tmp_path) == [1]


def test_the_bar_names_the_stage_and_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade.cli.progress.REDRAW_SECONDS", -1.0)
    with TrainingView(["both", "item-factors"], [4, 0], tmp_path, []) as view:

        def shown() -> tuple[str, Any]:
            (task,) = view._live.tasks
            return task.description, task.total

        both, factors = Stage("both", member=0, epochs=4), Stage("item-factors", member=1)
        view.on_stage_begin(both)
        assert shown() == ("model 1/2 both", None)
        view.on_step_end(both, 0.5, 1.0)
        assert shown() == ("model 1/2 both   epoch 1", 1.0)
        view.on_epoch_end(record(1) | {"member": 0})
        assert shown()[1] is None
        view.on_step_end(both, 1.5, 1.0)
        assert shown() == ("model 1/2 both   epoch 2", 1.0)
        view.on_stage_begin(factors)
        assert shown() == ("model 2/2 item-factors", None)
        view.on_stage_begin(Stage("interactions"))
        assert shown() == ("interactions", None)


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
