"""Several members of one run: one after another, or some side by side.

Each draws from its own seed and uses its own threads, so what comes out does not depend on timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

from cfnade.components import Member
from cfnade.data.splits import Split
from cfnade.kernels.threads import torch_threads
from cfnade.training.loop import Reporter, Saving, tell_stage
from cfnade.training.member import Job, TrainedMember
from cfnade.training.state import NAME, member_folder

Identity = Callable[[Job, Member], dict[str, Any]]

_GLANCE = 1.0  # seconds without a step after which another member is shown


@dataclass(frozen=True)
class Together:
    """What is to be trained, on what, and where states are kept."""

    split: Split
    jobs: Sequence[Job]
    saving: Saving | None

    def train(self, at_once: int, identity: Identity) -> list[TrainedMember]:
        """In the order of the jobs; without the last ones if they were stopped before."""
        shown = _Shown(self.jobs[0].reporter, [job.side for job in self.jobs])
        members: list[TrainedMember | None] = []
        with ThreadPoolExecutor(at_once, "member") as pool:
            tasks = [
                partial(self._train, number, identity, shown) for number in range(len(self.jobs))
            ]
            if at_once == 1:  # on the calling thread, whose interrupts and torch are its own
                for task in tasks:
                    members.append(task())
                    if members[-1] is None:
                        break
            else:
                members = list(pool.map(lambda task: task(), tasks))
        return [member for member in members if member is not None]

    def _train(self, number: int, identity: Identity, shown: _Shown) -> TrainedMember | None:
        job = self.jobs[number]
        if number and job.stop():
            return None
        own = job
        if job.reporter is not None and len(self.jobs) > 1:
            own = replace(job, reporter=_Numbered(shown, number))
        shown.begin(number)
        with torch_threads(job.threads):
            return own.train(self.split, partial(identity, job), self._saving(number))

    def _saving(self, number: int) -> Saving | None:
        """Of that member; one that was not begun when the run was stopped begins now."""
        saving = self.saving
        if saving is None or number == 0:
            return saving
        folder = member_folder(saving.folder, number)
        return replace(saving, folder=folder, resume=saving.resume and (folder / NAME).exists())


class _Shown:
    """A reporter for several members: one at a time is heard, and steps of one of them."""

    def __init__(self, reporter: Reporter | None, names: Sequence[str]) -> None:
        self._reporter, self._names, self._lock = reporter, names, Lock()
        self._front, self._at = 0, 0.0

    def begin(self, number: int) -> None:
        """A member begins, and is shown until another one has steps to show."""
        with self._lock:
            self._show(number, time.monotonic())

    def _show(self, number: int, now: float) -> None:
        self._front, self._at = number, now
        tell_stage(self._reporter, self._names[number], number)

    def step(self, number: int, done: float, cost: float) -> None:
        assert self._reporter is not None
        with self._lock:
            now = time.monotonic()
            if number != self._front and now - self._at > _GLANCE:
                self._show(number, now)
            if number == self._front:
                self._at = now
                self._reporter.step(done, cost)

    def epoch(self, record: dict[str, Any]) -> None:
        assert self._reporter is not None
        with self._lock:
            self._reporter.epoch(record)


class _Numbered:
    """Tells which of several members a step or an epoch belongs to."""

    def __init__(self, shown: _Shown, number: int) -> None:
        self._shown, self._number = shown, number

    def step(self, done: float, cost: float) -> None:
        self._shown.step(self._number, done, cost)

    def epoch(self, record: dict[str, Any]) -> None:
        self._shown.epoch({"member": self._number, **record})
