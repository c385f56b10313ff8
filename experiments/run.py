"""Run an experiment: python experiments/run.py experiments/table1_ml1m.toml

What is done is skipped, so an interrupted experiment goes on where it stopped, also in the middle
of a run. Each run is a process of its own and leaves one JSON under experiments/results/<table>/.
First every choice is made, by validation, in processes that hold no test rating; its runs lie in
results/<table>/choice/. Only then is a configuration fixed and scored on test.

    python experiments/run.py --all      # every plan, two runs of one thread at a time, the report
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cfnade.exceptions import CfnadeError
from experiments import one, report
from experiments.agenda import Agenda, Source, Task
from experiments.plan import Configuration, Entry, Plan, PlanError, read_plan

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"


@dataclass(frozen=True)
class Experiment:
    """A plan, or some of its entries and splits, and the folder that its results go to."""

    plan: Plan
    results: Path
    threads: int
    names: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.results / self.plan.table

    def due(self) -> list[Task]:
        """The choices that are still to be made; once all are, the runs to be scored."""
        entries = self._entries()
        choices = [task for entry in entries for task in self._candidates(self.chooser(entry))]
        if open_choices := [task for task in choices if not task.path.exists()]:
            return open_choices
        return [task for entry in entries for task in self._scores(entry, self.fixed(entry))]

    def left(self) -> list[Path]:
        entries = self._entries()
        tasks = [task for entry in entries for task in self._candidates(self.chooser(entry))]
        tasks += [t for entry in entries for t in self._scores(entry, entry.configuration)]
        return [path for path in {task.path: None for task in tasks} if not path.exists()]

    def chooser(self, entry: Entry) -> Entry:
        """The entry whose choices count for this one."""
        chooser = entry if entry.choose_like is None else self.plan.entry(entry.choose_like)
        if chooser.choose_like is not None:
            raise PlanError(f"{entry.name} chooses like {chooser.name}, which does not choose")
        return chooser

    def fixed(self, entry: Entry) -> Configuration:
        """The entry's configuration, with everything that was to be chosen by validation."""
        scored = []
        for task in self._candidates(self.chooser(entry)):
            record = json.loads(task.path.read_text(encoding="utf-8"))
            scored.append((record["valid"]["rmse"], task.path.stem, task.configuration))
        if not scored:
            return entry.configuration
        best = min(scored)[2]
        names = self.chooser(entry).choose
        values: dict[str, Any] = best.model | best.training
        return entry.configuration.changed({name: values[name] for name in names})

    def _entries(self) -> list[Entry]:
        names = self.names or tuple(entry.name for entry in self.plan.entries)
        return [self.plan.entry(name) for name in names]

    def _candidates(self, entry: Entry) -> list[Task]:
        """The runs to choose by, on the entry's first split."""
        tasks = []
        for values in entry.candidates() if entry.choose else []:
            tag = "_".join(f"{name}={value}" for name, value in values.items())
            path = self.folder / "choice" / f"{entry.name}--{tag}.json"
            short = {"epochs": entry.choose_epochs} if entry.choose_epochs else {}
            configuration = entry.configuration.changed(values | short)
            tasks.append(self._task(path, one.validate, entry, entry.splits[0], 0, configuration))
        return tasks

    def _scores(self, entry: Entry, fixed: Configuration) -> list[Task]:
        """The runs to be scored on test that are not there yet."""
        splits = [split for split in entry.splits if not self.splits or split in self.splits]
        tasks = []
        for split, seed in [(split, seed) for split in splits for seed in entry.seeds]:
            path = self.folder / f"{entry.name}--{split.replace(':', '-')}--seed{seed}.json"
            if not path.exists():
                tasks.append(self._task(path, one.score, entry, split, seed, fixed))
        return tasks

    def _task(
        self,
        path: Path,
        function: Any,
        entry: Entry,
        split: str,
        seed: int,
        configuration: Configuration,
    ) -> Task:
        return Task(path, function, self.plan, entry, split, seed, configuration, self.threads)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run an experiment; what is done is skipped.")
    parser.add_argument("plan", type=Path, nargs="?", help="a file such as table1_ml1m.toml")
    parser.add_argument("--all", action="store_true", help="every plan, then the report")
    parser.add_argument("--only", nargs="+", default=[], help="names of runs; all if not given")
    parser.add_argument("--splits", nargs="+", default=[], help="splits; all if not given")
    parser.add_argument("--data", help="other ratings than the plan's; results lie apart")
    parser.add_argument("--workers", type=int, help="runs at a time; with --all 2, else 1")
    parser.add_argument("--threads", type=int, help="of a run; with --all 1, else 2")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.all == (given.plan is not None):
        parser.error("give either an experiment file or --all")
    if given.all and (given.only or given.splits or given.data):
        parser.error("--only, --splits and --data go with an experiment file, not with --all")
    threads, workers = given.threads or (1 if given.all else 2), given.workers or 1 + given.all
    try:
        sources = _every(given.results, threads) if given.all else [_single(given, threads)]
        failed = Agenda(sources, given.results / ".state", workers).go()
    except CfnadeError as error:
        failed = {Path("plan"): str(error)}
    for path, message in failed.items():
        print(f"error: {path.stem}: {message}", file=sys.stderr)
    if given.all and given.results == RESULTS:
        report.write()
    return 1 if failed else 0


def _single(given: argparse.Namespace, threads: int) -> Source:
    plan = read_plan(given.plan)
    if given.data:
        plan = replace(plan, data=given.data, table=f"{plan.table}-other-data")
    return Experiment(plan, given.results, threads, tuple(given.only), tuple(given.splits))


def _every(results: Path, threads: int) -> list[Source]:
    plans = [read_plan(FOLDER / f"{name}.toml") for name in report.SECTIONS]
    return [Experiment(plan, results, threads) for plan in plans]


if __name__ == "__main__":
    sys.exit(main())
