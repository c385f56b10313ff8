"""The queue of experiments: some at a time, on after a break, one failure is not the end."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.plans import CHOICE, plan_file

from cfnade.components.batches import BatchSampler
from cfnade.exceptions import CfnadeError
from cfnade.training.state import StateStore
from experiments import one
from experiments.agenda import Agenda, Task, time_left
from experiments.plan import Configuration, Entry, Plan
from experiments.run import main

SINGLE = '[[runs]]\nname = "a"\ntraining = { epochs = 6 }\n'


class Given:
    """Tasks as they come, each done once its record is there."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks

    def due(self) -> list[Task]:
        return [task for task in self.tasks if not task.path.exists()]

    def left(self) -> list[Path]:
        return [task.path for task in self.due()]


def made_up(folder: Path, name: str, function: Any) -> Task:
    entry = Entry(name, name, Configuration("user", {}, {}), ("paper:1",))
    plan = Plan("table", "A table", "nothing", (entry,))
    path = folder / f"{name}--paper-1--seed0.json"
    return Task(path, function, plan, entry, "paper:1", 0, entry.configuration, 1)


def quick(*_: Any) -> dict[str, Any]:
    return {"seconds": 1.0, "valid": {"rmse": 0.5}}


@pytest.mark.usefixtures("here")
def test_two_runs_go_on_at_the_same_time(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def meets(*_: Any) -> dict[str, Any]:
        both.wait(timeout=60)  # alone, a run would wait in vain
        return quick()

    tasks = [made_up(tmp_path, name, meets) for name in "abcd"]
    said: list[str] = []
    assert Agenda([Given(tasks)], tmp_path / "state", 2, said.append).go() == {}
    assert all(task.path.exists() for task in tasks)
    assert len([line for line in said if "valid 0.5000" in line]) == 4


@pytest.mark.usefixtures("here")
def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise CfnadeError("ml-10m: not found")

    tasks = [made_up(tmp_path, "bad", fails), made_up(tmp_path, "good", quick)]
    failed = Agenda([Given(tasks)], tmp_path / "state", 1, lambda _: None).go()
    assert failed == {tasks[0].path: "ml-10m: not found"}
    assert tasks[1].path.exists()
    assert not tasks[0].path.exists()


def test_a_killed_process_is_told_and_leaves_its_state(tmp_path: Path) -> None:
    """A real process, which ends without a word."""
    task = made_up(tmp_path, "killed", _dies)
    failed = Agenda([Given([task])], tmp_path / "state", 1, lambda _: None).go()
    assert "killed" in failed[task.path]
    assert [path.read_text() for path in tmp_path.glob("state/*/progress")] == ["half"]


def _dies(*arguments: Any) -> dict[str, Any]:
    (arguments[-1] / "progress").write_text("half")
    os._exit(9)


@pytest.mark.usefixtures("here", "own_cache")
def test_an_interrupted_run_goes_on_in_the_middle_with_the_same_bits(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_file(tmp_path, data, SINGLE)
    words = [str(plan), "--splits", "paper:1", "--threads", "1", "--results"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    epochs: list[int] = []
    real = BatchSampler.epoch

    def counted(sampler: BatchSampler, epoch: int, **more: int) -> Any:
        if len(epochs) == 3:
            raise CfnadeError("the light went out")
        epochs.append(epoch)
        return real(sampler, epoch, **more)

    monkeypatch.setattr(one, "StateStore", partial(StateStore, seconds=0.0))
    monkeypatch.setattr(BatchSampler, "epoch", counted)
    assert main([*words, str(tmp_path / "cut")]) == 1

    def noted(sampler: BatchSampler, epoch: int, **more: int) -> Any:
        epochs.append(epoch)
        return real(sampler, epoch, **more)

    monkeypatch.setattr(BatchSampler, "epoch", noted)
    assert main([*words, str(tmp_path / "cut")]) == 0
    assert epochs == [0, 1, 2, *range(2, 6)]  # the third is done again from its last step on
    whole, cut = (
        json.loads(next((tmp_path / name).glob("table/*.json")).read_text())
        for name in ("whole", "cut")
    )
    assert cut["resumed"]
    assert not whole["resumed"]
    assert cut["test"] == whole["test"]
    assert cut["curve"] == whole["curve"]
    assert not any((tmp_path / "cut" / ".state").iterdir())


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("words", [["--all", "table1.toml"], [], ["--all", "--only", "a"]])
def test_contradictions_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "--all" in capsys.readouterr().err


def test_the_time_left_is_what_others_of_the_entry_took(tmp_path: Path) -> None:
    for name, seconds in (("a--1", 600), ("a--2", 1200), ("b--1", 60)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"seconds": seconds}))
    left = [tmp_path / "a--3.json", tmp_path / "a--4.json", tmp_path / "b--2.json"]
    # By hand: (900 + 900 + 60) s with two workers are 930 s.
    assert time_left(left, 2) == "3 to do, about 16 min"
    assert time_left([*left, tmp_path / "new" / "c--1.json"], 2) == "4 to do, at least 16 min"
    assert time_left([tmp_path / "c--1.json"], 1) == "1 to do, about 10 min"  # (600+1200+60)/3 s
    assert time_left([tmp_path / "new" / "c--1.json"], 1) == "1 to do"
    assert time_left([], 2) == ""


@pytest.mark.usefixtures("here", "own_cache")
def test_all_runs_every_plan(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_file(tmp_path, data, CHOICE)
    monkeypatch.setattr("experiments.run.FOLDER", tmp_path)
    monkeypatch.setattr("experiments.report.SECTIONS", {"table": None})
    words = ["--all", "--workers", "1", "--results", str(tmp_path / "results")]
    assert main(words) == 0
    assert len(list((tmp_path / "results" / "table").glob("*.json"))) == 2
