"""What experiments still have to do, some runs at a time, with an estimate of the time left.

A run is a process of its own, so that its peak memory is its own and its crash nobody else's. Its
training state is kept under results/.state until it is done: after an interruption it goes on in
the middle, with the bits that it would have had.
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
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from cfnade.exceptions import CfnadeError
from cfnade.utils.files import write_text
from experiments.plan import Configuration, Entry, Plan

PARTS = ("valid", "test")
Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One run: where its record goes, and what makes it."""

    path: Path
    function: Callable[..., Record]
    plan: Plan
    entry: Entry
    split: str
    seed: int
    configuration: Configuration
    threads: int

    def do(self, state: Path) -> Record:
        """Run it in a process of its own and write its record."""
        folder = state / self._key()
        folder.mkdir(parents=True, exist_ok=True)
        arguments = (self.plan.data, self.split, self.seed, self.configuration, self.threads)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            record = pool.submit(self.function, *arguments, folder).result()
        about = {"table": self.plan.table, "name": self.entry.name, "label": self.entry.label}
        record = about | record
        record |= {"data": Path(self.plan.data).name, "facts": self.entry.facts}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        shutil.rmtree(folder)
        return record

    def _key(self) -> str:
        """Another configuration begins anew instead of going on from this one's state."""
        which = [self.plan.data, self.split, self.seed, asdict(self.configuration), self.threads]
        digest = sha256(json.dumps(which, default=str).encode()).hexdigest()
        return f"{self.plan.table}--{self.path.stem[:100]}--{digest[:12]}"


class Source(Protocol):
    """Something with runs to do."""

    def due(self) -> list[Task]:
        """Those that can be run now."""

    def left(self) -> list[Path]:
        """The records that are missing, also those that wait for others."""


@dataclass(frozen=True)
class Agenda:
    """Runs everything that is due, `workers` at a time; one that fails does not stop the others."""

    sources: list[Source]
    state: Path
    workers: int
    say: Callable[[str], None] = print

    def go(self) -> dict[Path, str]:
        """Returns what went wrong, by the record that is missing for it."""
        failed: dict[Path, str] = {}
        running: dict[Future[Record], Task] = {}
        with ThreadPoolExecutor(self.workers) as pool:
            while True:
                busy = {task.path for task in running.values()}
                for task in self._due(busy | set(failed))[: self.workers - len(running)]:
                    self.say(f"{task.plan.table}: {task.path.stem} …")
                    running[pool.submit(task.do, self.state)] = task
                if not running:
                    return failed
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(done)
                    message = self._outcome(done, task)
                    if message is not None:
                        failed[task.path] = message

    def _due(self, without: set[Path]) -> list[Task]:
        tasks = {task.path: task for source in self.sources for task in source.due()}
        return [task for path, task in tasks.items() if path not in without]

    def _outcome(self, done: Future[Record], task: Task) -> str | None:
        """Say how a run ended; its error in a line if it did not end well."""
        try:
            record = done.result()
        except BrokenProcessPool:
            message = "its process was killed; run again to go on where it stood"
        except CfnadeError as error:
            message = str(error)
        else:
            scores = [f"{part} {record[part]['rmse']:.4f}" for part in PARTS if record.get(part)]
            missing = [path for source in self.sources for path in source.left()]
            parts = [*scores, f"{record['seconds']:.0f} s", time_left(missing, self.workers)]
            self.say(f"   {task.path.stem}: " + "   ".join(filter(None, parts)))
            return None
        self.say(f"   {task.path.stem}: {message}")
        return message


def time_left(missing: Iterable[Path], workers: int) -> str:
    """In words: what runs of the same entry took, or else of the same table, times those left."""
    paths = list(missing)
    if not paths:
        return ""
    guesses = [_guess(path) for path in paths]
    told = [seconds for seconds in guesses if seconds is not None]
    count = f"{len(paths)} to do"
    if not told:
        return count
    minutes = sum(told) / workers / 60
    known = "about" if len(told) == len(paths) else "at least"
    words = f"{minutes / 60:.1f} h" if minutes >= 90 else f"{max(1, round(minutes))} min"
    return f"{count}, {known} {words}"


def _guess(path: Path) -> float | None:
    found = {other.stem: other for other in path.parent.glob("*.json")}
    entry = path.stem.split("--")[0]
    alike = [found[stem] for stem in found if stem.split("--")[0] == entry]
    seconds = [_seconds(other) for other in alike or found.values()]
    return fmean(seconds) if seconds else None


def _seconds(path: Path) -> float:
    return float(json.loads(path.read_text(encoding="utf-8"))["seconds"])
