"""What a person and history.jsonl see of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfnade import CFNADE
from cfnade.cli.progress import TrainingView
from cfnade.data.synthetic import synthetic


def record(epoch: int) -> dict[str, Any]:
    figures = {"cost": 1.0, "valid_rmse": 0.9, "best_rmse": 0.9, "best_epoch": 1, "seconds": 0.1}
    return {"epoch": epoch, **figures}


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
            view.step(1.0, 1.0)
        view.epoch(record(2))
        view.step(0.5, 1.0)
        view.step(1.0, 1.0)
        view.epoch(record(3))
    assert epochs(tmp_path) == [1, 2, 3]


def test_nothing_is_touched_before_training_has_begun(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("earlier\n")
    begun: list[str] = []

    def begin() -> None:
        begun.append((tmp_path / "history.jsonl").read_text())

    with TrainingView(["user"], [4], tmp_path, [], begin) as view:
        assert (tmp_path / "history.jsonl").read_text() == "earlier\n"
        view.step(0.5, 1.0)
        view.step(1.0, 1.0)
        view.epoch(record(1))
    assert begun == ["earlier\n"]
    assert epochs(tmp_path) == [1]


def test_the_bar_names_the_stage_and_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade.cli.progress._REFRESH", -1.0)
    with TrainingView(["both", "item-factors"], [4, 0], tmp_path, []) as view:

        def shown() -> tuple[str, Any]:
            (task,) = view._live.tasks
            return task.description, task.total

        view.stage("both", 0)
        assert shown() == ("model 1/2 both", None)
        view.step(0.5, 1.0)
        assert shown() == ("model 1/2 both   epoch 1", 1.0)
        view.epoch(record(1) | {"member": 0})
        assert shown()[1] is None
        view.step(0.5, 1.0)
        assert shown() == ("model 1/2 both   epoch 2", 1.0)
        view.stage("item-factors", 1)
        assert shown() == ("model 2/2 item-factors", None)
        view.stage("lists", None)
        assert shown() == ("lists", None)


def test_members_and_later_stages_are_told_to_the_reporter() -> None:
    stages: list[tuple[str, int | None]] = []

    class Stages:
        def step(self, done: float, cost: float) -> None:
            pass

        def epoch(self, record: dict[str, Any]) -> None:
            pass

        def stage(self, name: str, member: int | None) -> None:
            stages.append((name, member))

    ratings = synthetic(30, 20, 300, seed=3).ratings
    how = {"epochs": 1, "hidden": (4,), "threads": 1, "lists": True}
    CFNADE(side="user,item", **how).fit(ratings, reporter=Stages())  # type: ignore[arg-type]
    named = list(dict.fromkeys(stages))
    assert named == [
        ("user", 0),
        ("item", 1),
        ("weights and calibration", None),
        ("interactions", None),
    ]
