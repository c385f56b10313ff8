"""Run an experiment: python experiments/run.py experiments/table1_ml1m.toml

What is done is skipped, so an interrupted experiment goes on where it stopped. Each run is a
process of its own and leaves one JSON under experiments/results/<table>/.
First every choice is made, by validation, in processes that hold no test rating; its runs lie in
results/<table>/choice/. Only then is a configuration fixed and scored on test.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cfnade.errors import CfnadeError
from cfnade.files import write_text
from experiments import one
from experiments.plan import Configuration, Entry, Plan, PlanError, read_plan

PARTS = ("valid", "test")
RESULTS = Path(__file__).resolve().parent / "results"


class Experiment:
    """A plan and the folder that its results go to."""

    def __init__(self, plan: Plan, results: Path, threads: int) -> None:
        self.plan, self.folder, self.threads = plan, results / plan.table, threads

    def go(self, names: list[str], splits: list[str]) -> None:
        """Make the choices of these entries, then score them on these splits."""
        entries = [self.plan.entry(name) for name in names]
        fixed = {entry.name: self.fixed(entry) for entry in entries}
        for entry in entries:
            for split in [s for s in entry.splits if not splits or s in splits]:
                for seed in entry.seeds:
                    self.score(entry, fixed[entry.name], split, seed)

    def fixed(self, entry: Entry) -> Configuration:
        """The entry's configuration, with everything that was to be chosen."""
        chooser = entry if entry.choose_like is None else self.plan.entry(entry.choose_like)
        if chooser.choose_like is not None:
            raise PlanError(f"{entry.name} chooses like {chooser.name}, which does not choose")
        return (
            entry.configuration.changed(self.choice(chooser))
            if chooser.choose
            else (entry.configuration)
        )

    def choice(self, entry: Entry) -> dict[str, Any]:
        """The values with the best validation RMSE on the entry's first split."""
        scored = []
        for values in entry.candidates():
            tag = "_".join(f"{name}={value}" for name, value in values.items())
            path = self.folder / "choice" / f"{entry.name}--{tag}.json"
            short = {"epochs": entry.choose_epochs} if entry.choose_epochs else {}
            configuration = entry.configuration.changed(values | short)
            record = self._once(path, one.validate, entry, entry.splits[0], 0, configuration)
            scored.append((record["valid"]["rmse"], tag, values))
        return min(scored)[2]

    def score(self, entry: Entry, fixed: Configuration, split: str, seed: int) -> None:
        name = f"{entry.name}--{split.replace(':', '-')}--seed{seed}.json"
        self._once(self.folder / name, one.score, entry, split, seed, fixed)

    def _once(
        self,
        path: Path,
        function: Callable[..., dict[str, Any]],
        entry: Entry,
        split: str,
        seed: int,
        configuration: Configuration,
    ) -> dict[str, Any]:
        """The record at this path; made and written if it is not there yet."""
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
        print(f"{self.plan.table}: {path.stem} …", flush=True)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            arguments = (self.plan.data, split, seed, configuration, self.threads)
            record = pool.submit(function, *arguments).result()
        record = {"table": self.plan.table, "name": entry.name, "label": entry.label} | record
        record |= {"data": Path(self.plan.data).name, "facts": entry.facts}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        scores = [f"{part} {record[part]['rmse']:.4f}" for part in PARTS if record.get(part)]
        print(f"   {'   '.join(scores)}   {record['seconds']:.0f} s", flush=True)
        return record


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run an experiment; what is done is skipped.")
    parser.add_argument("plan", type=Path, help="an experiment file, such as table1_ml1m.toml")
    parser.add_argument("--only", nargs="+", default=[], help="names of runs; all if not given")
    parser.add_argument("--splits", nargs="+", default=[], help="splits; all if not given")
    parser.add_argument("--data", help="other ratings than the plan's; results lie apart")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    try:
        plan = read_plan(given.plan)
        if given.data:
            plan = replace(plan, data=given.data, table=f"{plan.table}-other-data")
        names = given.only or [entry.name for entry in plan.entries]
        Experiment(plan, given.results, given.threads).go(names, given.splits)
    except CfnadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
