"""Run the fits that experiment files ask for, some at a time, and record their results.

First every choice is made by validation, in processes that hold no test rating; its records are in
results/<table>.choices.jsonl. Only then is a configuration fixed and scored on test, into
results/<table>.jsonl. A fit is a process of its own, so that its peak memory is its own and a crash
does not end the others. Its training state is under results/.state until it is done: an interrupted
fit resumes and gives the same bits.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean

from cfnade.exceptions import CfnadeError
from cfnade_baselines.compare import Record, ResultsFile
from experiments import fit
from experiments.plan import Configuration, Entry, Plan, PlanError

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
PARTS = ("valid", "test")


def results_file(results: Path, table: str) -> ResultsFile:
    """Return the file of a table's test scores."""
    return ResultsFile(results / f"{table}.jsonl")


def choices_file(results: Path, table: str) -> ResultsFile:
    """Return the file of a table's validation scores by candidate."""
    path = results / f"{table}.choices.jsonl"
    return ResultsFile(path, ("name", "split", "seed", "candidate"))


@dataclass(frozen=True)
class Task:
    """One fit: what it needs, and the file that its record goes to."""

    file: ResultsFile
    key: Record
    """name, split and seed, for a candidate also its values."""
    function: Callable[..., Record]
    plan: Plan
    entry: Entry
    configuration: Configuration
    n_threads: int

    @property
    def title(self) -> str:
        """Name for progress lines."""
        values = self.key.get("candidate", {})
        words = [f"{name}={value}" for name, value in values.items()]
        return " ".join([self.key["name"], self.key["split"], f"seed {self.key['seed']}", *words])

    def run(self, state: Path) -> Record:
        """Fit in a process of its own and record the result."""
        folder = state / self._state_name()
        folder.mkdir(parents=True, exist_ok=True)
        split, seed = self.key["split"], self.key["seed"]
        arguments = (self.plan.data, split, seed, self.configuration, self.n_threads, folder)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            record = pool.submit(self.function, *arguments).result()
        record = self.key | {"label": self.entry.label} | record
        record |= {"data": Path(self.plan.data).name, "facts": self.entry.facts}
        self.file.add(record)
        shutil.rmtree(folder)
        return record

    def _state_name(self) -> str:
        """Return a name that depends on the configuration, so that another one starts anew."""
        parts = [self.plan.data, self.key, asdict(self.configuration), self.n_threads]
        digest = sha256(json.dumps(parts, default=str).encode()).hexdigest()
        return f"{self.plan.table}--{self.key['name']}--{digest[:12]}"


@dataclass(frozen=True)
class Experiment:
    """A plan, or some of its entries and splits."""

    plan: Plan
    results: Path
    n_threads: int
    names: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    rerun: bool = False
    """Fit recorded entries again; their records are replaced."""
    done: set[str] = field(default_factory=set)
    """Keys that this experiment has fitted again."""

    def due(self) -> list[Task]:
        """Return the candidates that have no record yet; once all have, the missing test scores."""
        if open_choices := [task for task in self._candidates() if not self._is_recorded(task)]:
            return open_choices
        return [task for task in self._score_tasks(self.fixed) if not self._is_done(task)]

    def missing(self) -> list[Task]:
        """Return all tasks without a record, also those that wait for a choice."""
        tasks = [task for task in self._candidates() if not self._is_recorded(task)]
        scores = self._score_tasks(lambda entry: entry.configuration)
        return tasks + [task for task in scores if not self._is_done(task)]

    def chooser(self, entry: Entry) -> Entry:
        """Return the entry whose choice this one uses."""
        chooser = entry if entry.choose_like is None else self.plan.entry(entry.choose_like)
        if chooser.choose_like is not None:
            raise PlanError(f"{entry.name} chooses like {chooser.name}, which does not choose")
        return chooser

    def fixed(self, entry: Entry) -> Configuration:
        """Return the entry's configuration with the values that validation chose."""
        chooser = self.chooser(entry)
        if not chooser.choose:
            return entry.configuration
        records = {task.title: task.file.find(task.key) for task in self._tasks_of(chooser)}
        scored = [
            (record["valid"]["rmse"], title, record["candidate"])
            for title, record in records.items()
            if record is not None
        ]
        return entry.configuration.changed(min(scored, key=lambda one: one[:2])[2])

    def _is_recorded(self, task: Task) -> bool:
        return task.file.find(task.key) is not None

    def _is_done(self, task: Task) -> bool:
        key = task.file.key(task.key)
        return key in self.done if self.rerun else self._is_recorded(task)

    def _entries(self) -> list[Entry]:
        names = self.names or tuple(entry.name for entry in self.plan.entries)
        return [self.plan.entry(name) for name in names]

    def _candidates(self) -> list[Task]:
        tasks = [task for entry in self._entries() for task in self._tasks_of(self.chooser(entry))]
        return list({task.title: task for task in tasks}.values())

    def _tasks_of(self, entry: Entry) -> list[Task]:
        """Return the fits to choose by, on the entry's first split."""
        if not entry.choose:
            return []
        file = choices_file(self.results, self.plan.table)
        short = {"epochs": entry.choose_epochs} if entry.choose_epochs else {}
        key: Record = {"name": entry.name, "split": entry.splits[0], "seed": 0}
        return [
            Task(
                file,
                key | {"candidate": values},
                fit.validate,
                self.plan,
                entry,
                entry.configuration.changed(values | short),
                self.n_threads,
            )
            for values in entry.candidates()
        ]

    def _score_tasks(self, configuration: Callable[[Entry], Configuration]) -> list[Task]:
        file, tasks = results_file(self.results, self.plan.table), []
        for entry in self._entries():
            fixed = configuration(entry)
            splits = [split for split in entry.splits if not self.splits or split in self.splits]
            for split, seed in [(split, seed) for split in splits for seed in entry.seeds]:
                key = {"name": entry.name, "split": split, "seed": seed}
                tasks.append(Task(file, key, fit.score, self.plan, entry, fixed, self.n_threads))
        return tasks


@dataclass(frozen=True)
class Runner:
    """Runs everything that is due, `workers` at a time; a failure does not stop the others."""

    experiments: list[Experiment]
    state: Path
    workers: int
    report: Callable[[str], None] = print

    def run(self) -> dict[str, str]:
        """Return what went wrong, by the title of the task."""
        failed: dict[str, str] = {}
        running: dict[Future[Record], tuple[Experiment, Task]] = {}
        with ThreadPoolExecutor(self.workers) as pool:
            while True:
                busy = {_identity(task) for _, task in running.values()}
                due = self._due(busy | set(failed))
                for experiment, task in due[: self.workers - len(running)]:
                    self.report(f"{task.plan.table}: {task.title} …")
                    running[pool.submit(task.run, self.state)] = experiment, task
                if not running:
                    return failed
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    experiment, task = running.pop(future)
                    if future.exception() is None:
                        experiment.done.add(task.file.key(task.key))
                    message = self._outcome(future, task)
                    if message is not None:
                        failed[_identity(task)] = message

    def _due(self, without: set[str]) -> list[tuple[Experiment, Task]]:
        tasks = {
            _identity(task): (experiment, task)
            for experiment in self.experiments
            for task in experiment.due()
        }
        return [pair for name, pair in tasks.items() if name not in without]

    def _outcome(self, future: Future[Record], task: Task) -> str | None:
        """Report how a fit ended; return its error, if any."""
        try:
            record = future.result()
        except BrokenProcessPool:
            message = "its process was killed; run again to resume"
        except CfnadeError as error:
            message = str(error)
        else:
            scores = [f"{part} {record[part]['rmse']:.4f}" for part in PARTS if record.get(part)]
            missing = [task for experiment in self.experiments for task in experiment.missing()]
            parts = [*scores, f"{record['seconds']:.0f} s", time_left(missing, self.workers)]
            self.report(f"   {task.title}: " + "   ".join(filter(None, parts)))
            return None
        self.report(f"   {task.title}: {message}")
        return message


def _identity(task: Task) -> str:
    return f"{task.plan.table}: {task.title}"


def time_left(missing: Iterable[Task], workers: int) -> str:
    """Estimate the time of the missing fits from recorded ones of the entry, else of the table."""
    tasks = list(missing)
    if not tasks:
        return ""
    guesses = [_expected_seconds(task) for task in tasks]
    known = [seconds for seconds in guesses if seconds is not None]
    count = f"{len(tasks)} to do"
    if not known:
        return count
    minutes = sum(known) / workers / 60
    qualifier = "about" if len(known) == len(tasks) else "at least"
    text = f"{minutes / 60:.1f} h" if minutes >= 90 else f"{max(1, round(minutes))} min"
    return f"{count}, {qualifier} {text}"


def _expected_seconds(task: Task) -> float | None:
    records = task.file.records()
    same = [record for record in records if record["name"] == task.key["name"]]
    seconds = [float(record["seconds"]) for record in same or records]
    return fmean(seconds) if seconds else None
