"""One member's scores: those of its sides, added; where a side has no weights, fold_in.py says
what stands for them, and of somebody of whom nothing is known baseline.py says everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cfnade._typing import IntArray
from cfnade.components import AnsweringMember, Axis
from cfnade.components.base import Array, Folding, Row, What, Who, other_axis
from cfnade.fitted_model import FittedModel
from cfnade.inference.baseline import Baseline
from cfnade.inference.fold_in import FoldIn, Newcomer
from cfnade.utils.cancellation import check_cancelled


class MemberScorer:
    """Scores have a last axis K; a known rating is scored from the others, never from itself."""

    def __init__(self, member: AnsweringMember, fitted: FittedModel, nobody: Baseline) -> None:
        self._readings = [side.reading(fitted.context) for side in member.components.values()]
        self._K, self._nobody = len(fitted.context.scale), nobody
        self._newcomers = FoldIn(
            self._readings,
            fitted.context,
            fitted.trained_on,
            fitted.level_frequencies,
            folds=not fitted.needs_times,  # when the known ratings were given is not known here
        )

    # -- given cells --------------------------------------------------------------------------

    def cells(self, users: IntArray, items: IntArray, times: Array | None) -> Array:
        """Scores of cells (n, K)."""
        parts = [reading.cells(users, items, times) for reading in self._readings]
        sorts: list[tuple[Axis, IntArray, IntArray]]
        sorts = [("user", users, items), ("item", items, users)]
        for axis, own, others in sorts:
            blank = np.flatnonzero(self._newcomers.untrained(axis, own))
            if not len(blank):
                continue
            news, which = self._newcomers.all_known(axis, own[blank], -1)
            for number in np.unique(which).tolist():
                mine = blank[which == number]
                self._put(parts, mine, self._own(news[number], others[mine]))
        total = np.asarray(np.sum(parts, axis=0, dtype=np.float64))
        self._nobody.put(total, self._nobody.cells(users, items), items)
        return total

    def person(self, who: Who, items: IntArray) -> Array:
        """Scores of some items for one person (n, K), on the calling thread."""
        parts = [reading.person(who, items) for reading in self._readings]
        self._fill(parts, Newcomer("user", *who), items, np.arange(len(items)))
        return self._or_nobody(np.sum(parts, axis=0), who, items)

    def item(self, what: What, users: IntArray) -> Array:
        """Scores of one item for some users (n, K), on the calling thread."""
        parts = [reading.item(what, users) for reading in self._readings]
        self._fill(parts, Newcomer("item", *what), users, np.arange(len(users)))
        return np.asarray(np.sum(parts, axis=0))

    def people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> Array:
        """Scores of cells of many people (n, K), at once where every side can."""
        alone = self._newcomers.untrained("item", items)  # each is folded in by itself
        if any(reading.learns == "user" for reading in self._readings):
            users = np.array([who.user for who in people], np.int64)
            alone |= self._newcomers.untrained("user", users[which])
        out = np.empty((len(which), self._K))
        rest = np.flatnonzero(~alone)
        parts = [reading.people(people, which[rest], items[rest]) for reading in self._readings]
        out[rest] = np.sum(parts, axis=0)
        few = np.array([len(who.rated.columns) <= 1 for who in people])
        alone |= few[which]  # nothing may be known of them
        cells = np.flatnonzero(alone)
        cells = cells[np.argsort(which[cells], kind="stable")]
        for mine in np.split(cells, np.flatnonzero(np.diff(which[cells])) + 1):
            if len(mine):
                out[mine] = self.person(people[which[mine[0]]], items[mine])
        return out

    def pair(self, who: Who, what: What) -> Array:
        """Scores of a new item for a new person (1, K)."""
        asked, once = np.array([-1]), np.zeros(1, np.int64)
        user, item = Newcomer("user", -1, who.rated), Newcomer("item", -1, what.raters)
        said = self._newcomers.said([user], once, lambda folding: item.ask(folding, asked))
        said |= self._newcomers.said([item], once, lambda folding: user.ask(folding, asked))
        return np.asarray(np.sum(list(said.values()), axis=0))

    def lists(self, people: Sequence[Who], wanted: IntArray, *, leave_out: bool) -> Array:
        """Scores of every item for each person (B, items, K).

        Nothing stands for missing weights of items that are not wanted: it would take time.
        """
        users = np.array([who.user for who in people], np.int64)
        parts = [reading.lists(people, leave_out=leave_out) for reading in self._readings]
        blank = self._newcomers.untrained("user", users)
        blank |= self._newcomers.untrained("item", wanted).any()
        for number in np.flatnonzero(blank).tolist():
            own, one = [part[number] for part in parts], Newcomer("user", *people[number])
            self._fill(own, one, wanted, wanted, leave_out=leave_out)
        total = parts[0].astype(np.result_type(*parts), copy=False)
        for part in parts[1:]:
            total += part
        for who, own in zip(people, total, strict=True):
            if len(who.rated.columns) == 0 or leave_out:
                self._or_nobody(own, who, np.arange(len(own)))
        return total

    # -- without some ratings of a cell's user or item ----------------------------------------

    def without_each(self, who: Who, item: int) -> Array:
        """The item without each of the person's ratings of others. Returns (c, K)."""
        parts = []
        for reading in self._readings:
            parts.append(reading.without_each(who, item))
            check_cancelled()
        user, thing = self._pair(who, item)

        def features(folding: Folding) -> Array:
            return folding.without_each(who, item)

        count = len(user.known.columns)
        if count and self._newcomers.untrained("user", np.array([who.user]))[0]:
            said = self._newcomers.said_without_each(user, features)
            self._put(parts, np.arange(count), said)
        self._vary(parts, [thing], features)
        total = np.asarray(np.sum(parts, axis=0))
        return self._unless_known(total, who, item) if len(total) == 1 else total

    def without_raters(self, raters: Row, who: Who, item: int) -> Array:
        """The same without each of the item's ratings by others, who are given. Returns (c, K)."""
        parts = [reading.without_raters(raters, who, item) for reading in self._readings]
        user, thing = self._pair(who, item)
        things = [thing.without(int(rater)) for rater in raters.columns]
        for news in ([user], things):
            self._vary(parts, news, lambda folding: folding.without_raters(raters, who, item))
        total = np.asarray(np.sum(parts, axis=0))
        return total if len(user.known.columns) else self._unless_known(total, who, item)

    def without_levels(self, raters: Row, who: Who, item: int) -> Array:
        """The same without all of these ratings at each level. Returns (K, K)."""
        parts = [reading.without_levels(raters, who, item) for reading in self._readings]
        user, thing = self._pair(who, item)
        rest = [raters.levels != level for level in range(self._K)]
        rows = [Row(raters.columns[keep], raters.levels[keep]) for keep in rest]
        things = [thing.given(row) for row in rows]
        for news in ([user], things):
            self._vary(parts, news, lambda folding: folding.without_levels(raters, who, item))
        total = np.asarray(np.sum(parts, axis=0))
        return total if len(user.known.columns) else self._unless_known(total, who, item)

    def _pair(self, who: Who, item: int) -> tuple[Newcomer, Newcomer]:
        """Both of a cell, each without the cell's own rating."""
        user = Newcomer("user", who.user, who.rated).without(item)
        return user, self._newcomers.known("item", item).without(who.user)

    # -- where nothing is known of a person -----------------------------------------------------

    def _or_nobody(self, scores: Array, who: Who, items: IntArray) -> Array:
        self._nobody.put(scores, self._nobody.person(who, items), items)
        return scores

    def _unless_known(self, scores: Array, who: Who, item: int) -> Array:
        """The same of one item, where all that the person rated beside it is left out."""
        held = Row(*(part[who.rated.columns == item] for part in who.rated))
        return self._or_nobody(scores, Who(who.user, held), np.full(len(scores), item))

    # -- where a side has no weights ----------------------------------------------------------

    def _fill(
        self,
        parts: list[Array],
        one: Newcomer,
        others: IntArray,
        places: IntArray,
        *,
        leave_out: bool = True,
    ) -> None:
        """Of one user or item with others at their places: what stands for missing weights."""
        new = self._newcomers
        if new.untrained(one.axis, np.array([one.index]))[0]:
            self._put(parts, places, self._own(one, others, leave_out=leave_out))
        axis = other_axis(one.axis)
        blank = np.flatnonzero(new.untrained(axis, others))
        if len(blank):
            left_out = one.index if leave_out else -1
            news, which = new.all_known(axis, others[blank], left_out)
            said = new.said(news, which, lambda folding: one.ask(folding, others[blank]))
            self._put(parts, places[blank], said)

    def _own(self, new: Newcomer, others: IntArray, *, leave_out: bool = True) -> dict[int, Array]:
        """Of cells of one, each of its ratings left out of its own."""
        held = np.flatnonzero(np.isin(others, new.known.columns)) if leave_out else others[:0]
        which = np.zeros(len(others), np.int64)
        which[held] = 1 + np.arange(len(held))
        news = [new, *(new.without(int(other)) for other in others[held])]
        return self._newcomers.said(news, which, lambda folding: new.ask(folding, others))

    def _vary(
        self,
        parts: list[Array],
        news: Sequence[Newcomer],
        features: Callable[[Folding], Array],
    ) -> None:
        """One cell without some ratings: its users, or items, differ, or there is one of them."""
        every = np.arange(len(parts[0]))
        if len(every) and self._newcomers.untrained(news[0].axis, np.array([news[0].index]))[0]:
            which = every if len(news) == len(every) else 0 * every
            self._put(parts, every, self._newcomers.said(news, which, features))

    @staticmethod
    def _put(parts: list[Array], places: IntArray, said: dict[int, Array]) -> None:
        for number, scores in said.items():
            parts[number][places] = scores
