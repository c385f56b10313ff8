"""Scorer: what a fitted model says, given the ratings that it conditions on.

Users and items are indices, -1 an unknown one. The rules are here and nowhere else: a known rating
is never predicted from itself; where training saw nothing, fold_in.py says what is said; of
several members the distributions are averaged. Nothing is calibrated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from cfnade._typing import IntArray
from cfnade.components import AnsweringMember, Axis
from cfnade.components.base import Array, BoolArray, Row, What, Who, row_of
from cfnade.exceptions import ModelError, PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionRows
from cfnade.inference.baseline import UNSEEN_RULES, Baseline, paper_distribution
from cfnade.inference.lists import Lists, distributions, mixed
from cfnade.inference.members import MemberScorer
from cfnade.kernels.column_groups import lookup_levels, take_rows
from cfnade.utils.caching import PicklableLock, locked_cached_property
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.text import count_of

FloatArray = npt.NDArray[np.float64]

CACHE_BYTES = 1 << 26
"""Bytes of scores that are cached: those of the users asked about last."""

FEW_PEOPLE, FEW_CELLS = 16, 256
"""So many people, or cells, are answered one by one on the calling thread."""


class Effects(NamedTuple):
    """A cell's distribution, and what it would be without each of some ratings."""

    whole: FloatArray  # (K,)
    without: FloatArray  # (c, K)


class Scorer:
    """Answers from one model and its context, which is sorted once and kept."""

    def __init__(self, fitted: FittedModel, *, unseen: str = "mean") -> None:
        if unseen not in UNSEEN_RULES:
            raise ModelError(f"unseen (={unseen!r}) must be one of {', '.join(UNSEEN_RULES)}")
        self._instead = paper_distribution(fitted.context.scale) if unseen == "paper" else None
        self._frequencies = fitted.level_frequencies
        self._set(fitted)

    def _set(self, fitted: FittedModel) -> None:
        self.fitted = fitted
        nobody = Baseline(fitted)
        self._members = [MemberScorer(member, fitted, nobody) for member in fitted.answering]
        self._cache: LRUCache[Any, list[Array]] = LRUCache(
            CACHE_BYTES, getsizeof=lambda arrays: sum(array.nbytes for array in arrays)
        )
        self._cache_lock = PicklableLock()

    def with_members(self, *members: AnsweringMember) -> Scorer:
        """The same questions, asked of other weights of the same model."""
        other = copy(self)
        other._set(replace(self.fitted, answering=members))
        return other

    # -- what is known ------------------------------------------------------------------------

    def known(self, axis: Axis) -> IntArray:
        """How many ratings of each user or item are known. Returns (users or items,)."""
        return self._known[axis]

    @locked_cached_property
    def _known(self) -> dict[Axis, IntArray]:
        fitted = self.fitted
        if fitted.has_context:
            return {axis: fitted.counted_levels(axis).sum(1) for axis in get_args(Axis)}
        none = {"user": fitted.context.n_users, "item": fitted.context.n_items}
        counts: dict[Axis, IntArray] = {"user": np.zeros(none["user"], np.int64)}
        counts["item"] = np.zeros(none["item"], np.int64)
        return counts | {axis: levels.sum(1) for axis, levels in fitted.trained_on.items()}

    def known_of(self, axis: Axis, indices: IntArray) -> IntArray:
        """The same of some, 0 for an unknown one. Returns (n,)."""
        counts = self._known[axis]
        return np.where(indices >= 0, counts[indices], 0) if len(counts) else 0 * indices

    def unknown(self, users: IntArray, items: IntArray) -> tuple[BoolArray, BoolArray]:
        """Cells whose user, and cells whose item, the model knows nothing of. Both (n,)."""
        return self.known_of("user", users) == 0, self.known_of("item", items) == 0

    def known_levels(self, users: IntArray, items: IntArray) -> IntArray:
        """The level of each cell's rating in the context, -1 where there is none. Returns (n,)."""
        axis = self.fitted.axes[0]
        rows, columns = (users, items) if axis == "user" else (items, users)
        data = self.fitted.context.rows(axis)
        numbers, local = np.unique(rows, return_inverse=True)
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
        return np.asarray(lookup_levels(ratings, local, columns, data.n_columns))

    @locked_cached_property
    def interactions(self) -> InteractionRows:
        """The interactions of every user of the data, with weights."""
        return InteractionRows.from_ratings(self.fitted.context)

    def person(self, user: int) -> Who:
        """A user of the data, with what they rated."""
        return Who(user, row_of(self.fitted.context.rows("user"), user))

    # -- distributions ------------------------------------------------------------------------

    def probabilities(
        self, users: npt.ArrayLike, items: npt.ArrayLike, times: Any = None
    ) -> FloatArray:
        """The distribution over levels of each cell, before calibration. Returns (n, K)."""
        cells = self._checked(users, items)
        if times is None and not self.fitted.needs_times and len(cells[0]) <= FEW_CELLS:
            people, which = np.unique(cells[0], return_inverse=True)
            if len(people) <= FEW_PEOPLE:
                return self.of_people([self.person(user) for user in people], which, cells[1])
        return self._mean(lambda member: member.cells(*cells, times), *cells)

    def of_person(self, who: Who, items: IntArray) -> FloatArray:
        """The distributions of some items for one person, on the calling thread. Returns (n, K)."""
        users = np.full(len(items), who.user)
        return self._mean(lambda member: member.person(who, items), users, items)

    def of_item(self, what: What, users: IntArray) -> FloatArray:
        """The distributions of some users for one item, on the calling thread. Returns (n, K)."""
        return self._mean(lambda member: member.item(what, users), users)

    def of_people(self, people: Sequence[Who], which: IntArray, items: IntArray) -> FloatArray:
        """The distributions of cells of many people: whose each is, and the item. (n, K)."""
        if len(people) <= FEW_PEOPLE and len(which) <= FEW_CELLS:
            out = np.empty((len(which), len(self._frequencies)))
            for number, who in enumerate(people):
                mine = np.flatnonzero(which == number)
                out[mine] = self.of_person(who, items[mine])
            return out
        users = np.array([who.user for who in people], np.int64)[which]
        return self._mean(lambda member: member.people(people, which, items), users, items)

    def of_pair(self, who: Who, what: What) -> FloatArray:
        """The distribution of a new item for a new person. Returns (1, K)."""
        return self._mean(lambda member: member.pair(who, what), np.array([-1]))

    def lists(self, people: Sequence[Who], wanted: IntArray, *, leave_out: bool) -> Lists:
        """Of so many people as fit into memory with all items (inference/top_n.py).

        Every item has scores, but only those of the wanted ones hold where training saw nothing.
        If leave_out, what a person rated is scored from the other ratings.
        """
        members, shares = self._counting(np.array([who.user for who in people], np.int64))

        def made() -> list[Array]:
            return [member.lists(people, wanted, leave_out=leave_out) for member in members]

        if len(people) != 1:
            return Lists(people, made(), shares)
        asked = np.zeros(self.fitted.context.n_items, bool)
        asked[wanted] = True
        what = np.packbits(asked), leave_out  # which is shorter than their numbers
        return Lists(people, self.cached(people[0], made, *what), shares)

    def cached(self, who: Who, compute: Callable[[], list[Array]], *details: Any) -> list[Array]:
        """Return scores of all items for one user, from the cache if possible.

        The key is the user, the ratings and the details. The arrays must not be written to. Two
        threads may compute the same scores; one of the results is cached.
        """
        parts = (who.user, who.rated.columns, who.rated.levels, *details)
        key = tuple(p.tobytes() if isinstance(p, np.ndarray) else p for p in parts)
        with self._cache_lock:
            if key in self._cache:
                return self._cache[key]
        scores = compute()
        with self._cache_lock, suppress(ValueError):  # larger than the whole cache
            scores = self._cache.setdefault(key, scores)
        return scores

    # -- why ----------------------------------------------------------------------------------

    def effects(self, who: Who, item: int) -> Effects:
        """How a person's other ratings move an item's distribution; others' ratings stay."""
        return Effects(
            self.of_person(who, np.array([item]))[0],
            self._mean(lambda member: member.without_each(who, item), np.array([who.user])),
        )

    def effects_of_others(self, who: Who, item: int) -> tuple[Row, Effects, FloatArray]:
        """How others' ratings of an item move it for a person: each rating, and all of a level.

        Returns those ratings by user, their effects, and distributions without each level (K, K).
        """
        raters = row_of(self.fitted.context.rows("item"), item).without(who.user)
        users = np.array([who.user])
        effects = Effects(
            self.of_person(who, np.array([item]))[0],
            self._mean(lambda member: member.without_raters(raters, who, item), users),
        )
        by_level = self._mean(lambda member: member.without_levels(raters, who, item), users)
        return raters, effects, by_level

    # -- several members ----------------------------------------------------------------------

    def _mean(
        self,
        scores: Callable[[MemberScorer], Array],
        users: IntArray,
        items: IntArray | None = None,
    ) -> FloatArray:
        """The mean distribution of members, given the scores (n, K) of each. Returns (n, K).

        users are those of each, (n,), or of all, (1,). With items (n,) the paper's rule, if it is
        asked for, has its constant where nothing is known of the user or the item.
        """
        members, shares = self._counting(users)
        each = []
        for member in members:
            check_cancelled()
            each.append(distributions(scores(member)))
        chances = mixed(each, shares)
        if self._instead is not None and items is not None:
            user, item = self.unknown(users, items)
            chances[user | item] = self._instead
        return chances

    def _counting(self, users: IntArray) -> tuple[list[MemberScorer], FloatArray]:
        """The members that count for any of these users, and how much: (members, n)."""
        shares, members = self.fitted.shares, self._members
        if not shares:
            return members, np.full((len(members), len(users)), 1 / len(members))
        new = self.fitted.new(users)
        each = np.array([np.where(new, fresh, trained) for trained, fresh in shares])
        counting = [n for n, share in enumerate(each) if share.any()] or [0]
        return [members[n] for n in counting], each[counting]

    # -- borders ------------------------------------------------------------------------------

    def _checked(self, users: npt.ArrayLike, items: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        context = self.fitted.context
        user = _indices("users", np.asarray(users), context.n_users)
        item = _indices("items", np.asarray(items), context.n_items)
        if len(user) != len(item):
            raise PredictionError(
                f"{count_of(len(user), 'user')} and {count_of(len(item), 'item')} were given; a "
                "cell is one of each, so give equally many"
            )
        rows = {"user": user, "item": item}
        if not self.fitted.has_context:
            for axis in self.fitted.axes:
                if bool((rows[axis] >= 0).any()):
                    raise PredictionError(
                        "this model was saved without its context, so nothing is known of the "
                        f"{axis}s in its data; give histories, or the model with its context"
                    )
        return user, item


def _indices(name: str, indices: npt.NDArray[Any], limit: int) -> IntArray:
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise PredictionError(
            f"{name} have dtype {indices.dtype} and shape {indices.shape}; give a one-dimensional "
            "array of whole numbers"
        )
    whole = indices.astype(np.int64)
    if whole.size and not (whole.min() >= -1 and whole.max() < limit):
        bad = whole[(whole < -1) | (whole >= limit)][0]
        raise PredictionError(
            f"{name} contains {bad}; it must lie in 0..{limit - 1}, or be -1 for an unknown one"
        )
    return whole
