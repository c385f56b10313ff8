"""The runner: some fits at a time, resumed after an interruption; a failure does not end it."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.experiments.conftest import InThisProcess
from tests.experiments.plans import plan_file, run

from cfnade.components.batches import BatchSampler
from cfnade.exceptions import CfnadeError
from cfnade.training.state import StateStore
from cfnade_baselines.compare import ResultsFile
from experiments import fit
from experiments.__main__ import main
from experiments.plan import Configuration, Entry, Plan
from experiments.runner import Experiment, Runner, Task, results_file, time_left

SINGLE = '[[runs]]\nname = "a"\ntraining = { epochs = 6 }\n'


class Tasks:
    """Stands for an experiment with these tasks."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks
        self.done: set[str] = set()

    def due(self) -> list[Task]:
        return [task for task in self.tasks if task.file.find(task.key) is None]

    def missing(self) -> list[Task]:
        return self.due()


def runner(tasks: list[Task], folder: Path, workers: int, lines: list[str]) -> Runner:
    experiment = cast(Experiment, Tasks(tasks))
    return Runner([experiment], folder / "state", workers, lines.append)


def task_of(folder: Path, name: str, function: Any, seed: int = 0) -> Task:
    entry = Entry(name, name, Configuration("user", {}, {}), ("paper:1",))
    plan = Plan("table", "A table", "nothing", (entry,))
    key = {"name": name, "split": "paper:1", "seed": seed}
    file = ResultsFile(folder / "table.jsonl")
    return Task(file, key, function, plan, entry, entry.configuration, 1)


def quick(*_: Any) -> dict[str, Any]:
    return {"seconds": 1.0, "valid": {"rmse": 0.5}}


@pytest.mark.usefixtures("here")
def test_two_runs_go_on_at_the_same_time(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def meets(*_: Any) -> dict[str, Any]:
        both.wait(timeout=60)  # alone, a run would wait in vain
        return quick()

    tasks, lines = [task_of(tmp_path, name, meets) for name in "abcd"], list[str]()
    assert runner(tasks, tmp_path, 2, lines).run() == {}
    assert [record["name"] for record in tasks[0].file.records()] == list("abcd")
    assert len([line for line in lines if "valid 0.5000" in line]) == 4


@pytest.mark.usefixtures("here")
def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise CfnadeError("ml-10m: not found")

    tasks = [task_of(tmp_path, "bad", fails), task_of(tmp_path, "good", quick)]
    failed = runner(tasks, tmp_path, 1, []).run()
    assert failed == {"table: bad paper:1 seed 0": "ml-10m: not found"}
    assert [record["name"] for record in tasks[0].file.records()] == ["good"]


def test_a_killed_process_is_told_and_leaves_its_state(tmp_path: Path) -> None:
    """A real process, which ends without a word."""
    failed = runner([task_of(tmp_path, "killed", _dies)], tmp_path, 1, []).run()
    assert "killed" in failed["table: killed paper:1 seed 0"]
    assert [path.read_text() for path in tmp_path.glob("state/*/progress")] == ["half"]


def _dies(*arguments: Any) -> dict[str, Any]:
    (arguments[-1] / "progress").write_text("half")
    os._exit(9)


@pytest.mark.usefixtures("here", "own_cache")
def test_an_interrupted_run_goes_on_in_the_middle_with_the_same_bits(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_file(tmp_path, data, SINGLE)
    splits = ("paper:1",)
    assert run(plan, tmp_path / "whole", splits=splits) == {}
    epochs: list[int] = []
    real = BatchSampler.epoch

    def counted(sampler: BatchSampler, epoch: int, **more: int) -> Any:
        if len(epochs) == 3:
            raise CfnadeError("the light went out")
        epochs.append(epoch)
        return real(sampler, epoch, **more)

    monkeypatch.setattr(fit, "StateStore", partial(StateStore, seconds=0.0))
    monkeypatch.setattr(BatchSampler, "epoch", counted)
    assert run(plan, tmp_path / "cut", splits=splits) != {}

    def noted(sampler: BatchSampler, epoch: int, **more: int) -> Any:
        epochs.append(epoch)
        return real(sampler, epoch, **more)

    monkeypatch.setattr(BatchSampler, "epoch", noted)
    assert run(plan, tmp_path / "cut", splits=splits) == {}
    assert epochs == [0, 1, 2, *range(2, 6)]  # the third is done again from its last step on
    (whole,), (cut,) = (
        results_file(tmp_path / name, "table").records() for name in ("whole", "cut")
    )
    assert cut["resumed"]
    assert not whole["resumed"]
    assert cut["test"] == whole["test"]
    assert cut["curve"] == whole["curve"]
    assert not any((tmp_path / "cut" / ".state").iterdir())


@pytest.mark.parametrize("words", [["all", "--only", "a"], ["report", "--splits", "u1"]])
def test_contradictions_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(words)
    assert exit_info.value.code == 2
    assert "go with one table" in capsys.readouterr().err


def test_the_command_fits_what_is_missing_and_writes_the_report(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_file(tmp_path, data, SINGLE)
    written: list[str] = []
    monkeypatch.setattr("experiments.__main__.FOLDER", tmp_path)
    monkeypatch.setattr("experiments.__main__.RESULTS", tmp_path / "results")
    monkeypatch.setattr("experiments.report.write", lambda: written.append("report"))
    monkeypatch.setattr(fit, "score", quick)
    monkeypatch.setattr("experiments.runner.ProcessPoolExecutor", InThisProcess)
    assert main(["table"]) == 0
    assert len(results_file(tmp_path / "results", "table").records()) == 2
    assert main(["no_such_table"]) == 1
    assert written == ["report"] * 2


def test_the_time_left_is_estimated_from_fits_of_the_entry(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "table.jsonl")
    for name, seed, seconds in (("a", 1, 600), ("a", 2, 1200), ("b", 1, 60)):
        file.add({"name": name, "split": "paper:1", "seed": seed, "seconds": seconds})
    missing = [
        task_of(tmp_path, name, quick, seed) for name, seed in (("a", 3), ("a", 4), ("b", 2))
    ]
    elsewhere = task_of(tmp_path / "new", "c", quick)
    # By hand: (900 + 900 + 60) s with two workers are 930 s.
    assert time_left(missing, 2) == "3 to do, about 16 min"
    assert time_left([*missing, elsewhere], 2) == "4 to do, at least 16 min"
    other = task_of(tmp_path, "c", quick)
    assert time_left([other], 1) == "1 to do, about 10 min"  # (600 + 1200 + 60) / 3 s
    assert time_left([elsewhere], 1) == "1 to do"
    assert time_left([], 2) == ""
