"""Distributions of given cells, whoever or whatever of them is new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.calibration.per_user import Calibrator
from cfnade.components.base import What
from cfnade.inference.catalog import IdIndex
from cfnade.inference.histories import UserHistory
from cfnade.inference.objectives import means_of
from cfnade.inference.results import Predictions
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


PIECE = 1 << 18
"""So many cells of new people are answered at once."""


class CellsAsked(NamedTuple):
    """Cells, some of them of new people or new items: which of these, or -1."""

    users: Any  # (n,) raw ids
    items: IntArray  # (n,) indices
    people: IntArray  # (n,)
    things: IntArray  # (n,)

    @classmethod
    def of(
        cls,
        cells: tuple[Any, Any],
        people: Mapping[Any, Any],
        things: Mapping[Any, Any],
        indices_of: Callable[[list[Any]], IntArray],
    ) -> CellsAsked:
        """Of users and items by raw id, or by name if they are among these new ones."""
        users, items = cells
        what, indices = _places_in(things, items), np.full(len(items), -1)
        met = np.flatnonzero(what < 0)
        indices[met] = indices_of([items[i] for i in met])
        return cls(users, indices, _places_in(people, users), what)


def _places_in(named: Mapping[Any, Any], names: Any) -> IntArray:
    """Which of those named each name is, -1 for none. Returns (n,)."""
    places = {name: place for place, name in enumerate(named)}
    return np.array([places.get(_plain(name), -1) for name in names], np.int64)


class Cells:
    """Puts questions about cells to the scorer; a calibrator makes distributions honest."""

    def __init__(self, scorer: Scorer, users: IdIndex, calibrator: Calibrator) -> None:
        self._scorer, self._users, self._calibrator = scorer, users, calibrator
        self._values = scorer.fitted.context.scale.array()

    def users(self, users: IntArray, items: IntArray, times: Any = None) -> Predictions:
        """Of users and items of the data, by index."""
        self._scorer.fitted.require("context")
        if times is not None and np.ndim(times) == 0:
            times = np.full(len(users), times)
        chances = self._scorer.probabilities(users, items, times)
        honest = self._calibrator.for_pairs(chances, users, items)
        return self._answers(items, chances, honest, self._scorer.known_of("user", users))

    def history(self, person: UserHistory, items: IntArray) -> Predictions:
        """Of a new person and items of the data."""
        who = person.who()
        chances = self._scorer.of_person(who, items)
        honest = self._calibrator.for_user(chances, who, items)
        return self._answers(items, chances, honest, np.full(len(items), len(who.rated.columns)))

    def new_item(self, thing: What, users: IntArray) -> Predictions:
        """Of a new item and users of the data."""
        chances, unknown = self._scorer.of_item(thing, users), np.full(len(users), -1)
        honest = self._calibrator.for_pairs(chances, users, unknown)
        answers = self._answers(unknown, chances, honest, self._scorer.known_of("user", users))
        return _of_new(answers, thing)

    def pair(self, person: UserHistory, thing: What) -> Predictions:
        """Of a new person and a new item: one cell."""
        who, unknown = person.who(), np.array([-1])
        chances = self._scorer.of_pair(who, thing)
        honest = self._calibrator.for_user(chances, who, unknown)
        count = np.array([len(who.rated.columns)])
        return _of_new(self._answers(unknown, chances, honest, count), thing)

    def histories(
        self, people: Sequence[UserHistory], which: IntArray, items: IntArray
    ) -> Predictions:
        """Of many new people and items of the data: whose each cell is, and the item."""
        everyone = [person.who() for person in people]
        counts = np.array([len(person) for person in people], np.int64)
        parts = []
        for first in range(0, max(1, len(which)), PIECE):  # flat memory, however many there are
            mine = slice(first, first + PIECE)
            some, local = np.unique(which[mine], return_inverse=True)
            asked = [everyone[i] for i in some], local, items[mine]
            chances = self._scorer.of_people(*asked)
            honest = self._calibrator.for_users(chances, *asked)
            parts.append(self._answers(items[mine], chances, honest, counts[which[mine]]))
        return Predictions(*map(np.concatenate, zip(*parts, strict=True)))

    def mixed(
        self, asked: CellsAsked, people: Sequence[UserHistory], things: Sequence[What]
    ) -> Predictions:
        """Of cells of every sort, each sort at once."""
        parts = []
        old = asked.things < 0
        mine = np.flatnonzero(old & (asked.people >= 0))
        if len(mine):
            order = mine[np.argsort(asked.people[mine], kind="stable")]
            parts.append((order, self.histories(people, asked.people[order], asked.items[order])))
        mine = np.flatnonzero(old & (asked.people < 0))
        if len(mine):
            indices = self._users.indices([asked.users[i] for i in mine])
            parts.append((mine, self.users(indices, asked.items[mine])))
        cells = zip(asked.people[~old].tolist(), asked.things[~old].tolist(), strict=True)
        for who, what in sorted(set(cells)):
            mine = np.flatnonzero((asked.people == who) & (asked.things == what))
            if who >= 0:
                columns: tuple[Any, ...] = self.pair(people[who], things[what])
                answers = Predictions(*(np.repeat(column, len(mine), axis=0) for column in columns))
            else:
                indices = self._users.indices([asked.users[i] for i in mine])
                answers = self.new_item(things[what], indices)
            parts.append((mine, answers))
        order = np.argsort(np.concatenate([mine for mine, _ in parts]), kind="stable")
        joined = zip(*(answers for _, answers in parts), strict=True)
        return Predictions(*(np.concatenate(column)[order] for column in joined))

    def _answers(
        self, items: IntArray, chances: FloatArray, honest: FloatArray, of_user: IntArray
    ) -> Predictions:
        means = means_of(chances, self._values)  # which calibration does not move
        return Predictions(items, means, honest, of_user, self._scorer.known_of("item", items))


def _of_new(answers: Predictions, thing: What) -> Predictions:
    """With what is known of a new item."""
    return answers._replace(n_item_ratings=np.full(len(answers.items), len(thing.raters.columns)))


def _plain(raw: Any) -> Any:
    """A key as a dictionary knows it."""
    return raw.item() if isinstance(raw, np.generic) else raw
