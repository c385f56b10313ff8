"""Lists of any number of people: some at a time, so that memory does not grow with them.

Each thread takes people of its own through all steps: nothing waits for another thread but at the
end, and one person is answered on the calling thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cfnade.data.ratings import IntArray
from cfnade.kernels.threads import one_torch_thread, run, thread_count
from cfnade.personal import Calibrator
from cfnade.predictor.ranking import Best, RankBy, best
from cfnade.scorer import Scorer
from cfnade.sides.side import Who

LISTED = 1 << 21
"""So many scores are held at once, by each thread and of each side."""

FEW = 4
"""So many people are answered one by one: their bits do not depend on their company."""


class Rankings(NamedTuple):
    """Lists of many people, one below the other."""

    top: Best  # whose are places among these people
    known_of_items: IntArray  # (n,)
    known_of_users: IntArray  # (people,)
    hidden: IntArray  # (people,)


@dataclass(frozen=True)
class Listing:
    """How lists are made."""

    scorer: Scorer
    calibrator: Calibrator
    by: RankBy
    n: int
    exclude_seen: bool
    least: int
    """How many ratings an item must have to be listed."""

    def of(self, people: Sequence[Who]) -> Rankings:
        """The lists of all of these."""
        threads, step = 1, 1
        if len(people) > FEW:
            threads = thread_count(None)
            cells = len(self.scorer.known("item")) * len(self.by.scale)
            step = min(max(1, LISTED // cells), -(-len(people) // threads))
        firsts = range(0, len(people), step)
        shares = [firsts[thread::threads] for thread in range(min(threads, len(firsts)))]
        found = run(self._some, [(people, mine, step) for mine in shares]) if shares else []
        parts = sorted((part for share in found for part in share), key=lambda part: part[0])
        none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0)
        nobody = Best(*none, np.empty((0, len(self.by.scale))))
        tops = [nobody, *(top._replace(which=first + top.which) for first, top, _ in parts)]
        top = Best(*map(np.concatenate, zip(*tops, strict=True)))
        return Rankings(
            top,
            self.scorer.known("item")[top.items],
            np.array([len(who.rated.columns) for who in people], np.int64),
            np.concatenate([np.empty(0, np.int64), *(hidden for _, _, hidden in parts)]),
        )

    def _some(
        self, people: Sequence[Who], firsts: range, step: int
    ) -> list[tuple[int, Best, IntArray]]:
        """Of the next people from each of these on, and how many items each could have besides."""
        # Of a few, what is made once and kept must have the bits that any other question gives it.
        with nullcontext() if len(people) <= FEW else one_torch_thread():
            return [(first, *self._step(people[first : first + step])) for first in firsts]

    def _step(self, people: Sequence[Who]) -> tuple[Best, IntArray]:
        enough = self.scorer.known("item") >= self.least
        lists = self.scorer.lists(people, np.flatnonzero(enough), leave_out=not self.exclude_seen)
        allowed = np.tile(enough, (len(people), 1))
        hidden = np.full(len(people), np.count_nonzero(~enough))
        if self.exclude_seen:
            for number, who in enumerate(people):
                hidden[number] -= np.count_nonzero(~enough[who.rated.columns])
                allowed[number, who.rated.columns] = False
        return best(lists, allowed, self.n, self.by, self.calibrator), hidden
