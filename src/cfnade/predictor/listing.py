"""Lists of any number of people: some at a time, so that memory does not grow with them.

Each thread takes people of its own through all steps: nothing waits for another thread but at the
end, and one person is answered on the calling thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.kernels.threads import run_parallel, single_torch_thread, thread_count
from cfnade.predictor.ranking import Best, RankBy, best
from cfnade.scorer import Scorer
from cfnade.sides.side import Who

BoolArray = npt.NDArray[np.bool_]

LISTED = 1 << 21
"""So many scores are held at once, by each thread and of each side."""

FEW = 4
"""So many people are answered one by one: their bits do not depend on their company."""


_EVEN = 256  # people of a step that is like all others


class Rankings(NamedTuple):
    """Lists of many people, one below the other."""

    top: Best  # whose are places among these people
    known_of_items: IntArray  # (n,)
    known_of_users: IntArray  # (people,)
    hidden: IntArray  # (people,)

    def of_top(self, top: Best, scorer: Scorer) -> Rankings:
        """Others of the same people's items."""
        return self._replace(top=top, known_of_items=scorer.known("item")[top.items])


class Lister(Protocol):
    """Makes the lists of some people, few enough for all scores to be in memory."""

    @property
    def scores_each(self) -> int:
        """How many scores a person needs."""

    def lists(self, people: Sequence[Who]) -> tuple[Best, IntArray]:
        """Their lists, and how many items each could have besides but for min_ratings (B,)."""


@dataclass(frozen=True)
class Listable:
    """Which items may be listed."""

    items: BoolArray  # (M,) by what was asked for
    enough: BoolArray  # (M,) by how many ratings there are of each
    exclude_seen: bool

    @property
    def shown(self) -> BoolArray:
        """To who knows nothing. Returns (M,)."""
        return self.items & self.enough

    def of(self, people: Sequence[Who]) -> BoolArray:
        """For each person. Returns (B, M)."""
        allowed = np.tile(self.shown, (len(people), 1))
        if self.exclude_seen:
            for number, who in enumerate(people):
                allowed[number, who.rated.columns] = False
        return allowed

    def hidden(self, people: Sequence[Who]) -> IntArray:
        """How many are hidden from each. Returns (B,)."""
        thin = self.items & ~self.enough
        hidden = np.full(len(people), np.count_nonzero(thin))
        if self.exclude_seen and hidden.any():
            hidden -= [np.count_nonzero(thin[who.rated.columns]) for who in people]
        return hidden


@dataclass(frozen=True)
class RatedLists:
    """By what is said of ratings."""

    scorer: Scorer
    calibrator: Calibrator
    by: RankBy
    n: int
    allowed: Listable

    @property
    def scores_each(self) -> int:
        return len(self.allowed.items) * len(self.by.scale)

    def lists(self, people: Sequence[Who]) -> tuple[Best, IntArray]:
        items = np.flatnonzero(self.allowed.shown)
        leave_out = not self.allowed.exclude_seen
        said = self.scorer.lists(people, items, leave_out=leave_out)
        top = best(said, self.allowed.of(people), self.n, self.by, self.calibrator)
        return top, self.allowed.hidden(people)


def even_step(lister: Lister) -> int:
    """How many people a step takes if all steps are to be alike, however many people there are."""
    return max(1, min(_EVEN, LISTED // lister.scores_each))


def filled(people: Sequence[Who], step: int) -> list[Who]:
    """The same people and the last one again, until they are whole steps and not a few."""
    count = -(-max(len(people), FEW + 1) // step) * step if people else 0
    return [*people, *[people[-1]] * (count - len(people))] if people else []


def rankings(
    lister: Lister, scorer: Scorer, people: Sequence[Who], step: int | None = None
) -> Rankings:
    """The lists of all of these; by steps of so many people if that is said."""
    threads = 1 if len(people) <= FEW else thread_count(None)
    if len(people) <= FEW:
        step = 1
    elif step is None:
        rounds = -(-len(people) // (threads * max(1, LISTED // lister.scores_each)))
        step = -(-len(people) // (threads * rounds))  # no thread waits for the last step of another
    firsts = range(0, len(people), step)
    shares = [firsts[thread::threads] for thread in range(min(threads, len(firsts)))]
    ranked = (
        run_parallel(_some, [(lister, people, mine, step) for mine in shares]) if shares else []
    )
    parts = sorted((part for share in ranked for part in share), key=lambda part: part[0])
    nobody = Best.none(len(scorer.fitted.context.scale))
    tops = [nobody, *(top._replace(which=first + top.which) for first, top, _ in parts)]
    top = Best.joined(tops)
    return Rankings(
        top,
        scorer.known("item")[top.items],
        np.array([len(who.rated.columns) for who in people], np.int64),
        np.concatenate([np.empty(0, np.int64), *(hidden for _, _, hidden in parts)]),
    )


def _some(
    lister: Lister, people: Sequence[Who], firsts: range, step: int
) -> list[tuple[int, Best, IntArray]]:
    """Of the next people from each of these on."""
    # Of a few, what is made once and kept must have the bits that any other question gives it.
    with nullcontext() if len(people) <= FEW else single_torch_thread():
        return [(first, *lister.lists(people[first : first + step])) for first in firsts]
