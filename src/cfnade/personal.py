"""Personal calibration: some people use only 3 and 4, others only 1 and 5.

A person's leaning φ says which levels they give more often than others gave to the same items:

    φ  =  [ Σ (onehot(r) - p_i) / (n + κ) ] / π,   less its part along the scale's values

summed over their n known ratings r of items i, with p_i the smoothed training frequencies of the
item's levels and π those of all. The part along the values would move the mean, so the tilt would
take it back. As everywhere, a cell's own rating is left out of what is said of it. Calibration
(calibration.py) says how much a leaning counts; here is whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration import Calibration, unit_of
from cfnade.fitted import FittedModel
from cfnade.kernels.grouping import RowRatings, levels_of, ratings_of
from cfnade.sides.side import Row, Who
from cfnade.sides.state_rows import as_ratings
from cfnade.unseen import OWN_SMOOTHING, Blanks, NothingKnown
from cfnade.utils.caching import locked_cached_property

FloatArray = npt.NDArray[np.float64]

IMAGINED = 30.0
"""κ: so many ratings without any leaning are imagined beside a person's own."""

RAREST = 0.1
"""Of an even share: a level counts as at least so frequent, or one rating of a level that hardly
ever comes would say everything about a person."""

_PIECE = 1 << 20  # ratings that are looked at at once


class Leanings:
    """Of everybody whom a fitted model knows, and of new people."""

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted = fitted
        self.n_items, self._values = fitted.context.n_items, fitted.context.scale.array()
        everyone = fitted.level_frequencies
        everyone = np.maximum(everyone, RAREST / len(everyone))
        self._everyone = everyone / everyone.sum()  # (K,)
        offset = self._values - self._everyone @ self._values
        self._along = offset / (self._everyone @ np.square(offset))  # (K,)

    @locked_cached_property
    def _expected(self) -> FloatArray:
        """How often an item's raters give each level. Returns (items, K)."""
        counts = self._fitted.trained_on.get("item")
        if counts is None:  # a model of items alone, which is nothing without its context
            counts = self._fitted.counted_levels("item")
        smoothed = counts + OWN_SMOOTHING * self._everyone
        return np.asarray(smoothed / smoothed.sum(1, keepdims=True))

    def tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """π (K,), the direction along the values (K,), and what is expected of items (M, K)."""
        return self._everyone, self._along, self._expected

    def of_person(self, rated: Row, items: IntArray) -> FloatArray:
        """Of somebody known by what they rated: for each of these items, without what they said of
        it; -1 stands for any that they have not rated. Returns (n, K)."""
        level = np.full(self.n_items + 1, -1)  # the last one: of an unknown item
        level[rated.columns] = rated.levels
        gave = np.bincount(rated.levels, minlength=len(self._everyone))
        excess = np.tile(gave - self._expected[rated.columns].sum(0), (len(items), 1))
        counts = np.full(len(items), len(rated.levels))
        return self.left_out(excess, counts, items, level[items])

    def of_cells(self, users: IntArray, items: IntArray) -> FloatArray:
        """Of each cell's user, from their other ratings in the context. Returns (n, K)."""
        out = np.empty((len(users), len(self._everyone)))
        numbers, local = np.unique(users, return_inverse=True)
        counts = np.diff(self._fitted.context.rows("user").offsets)
        sizes = counts[numbers] if len(counts) else 0 * numbers
        piece = (np.cumsum(sizes) // _PIECE)[local]
        for number in np.unique(piece):
            mine = np.flatnonzero(piece == number)
            out[mine] = self._of_some(users[mine], items[mine])
        return out

    def _of_some(self, users: IntArray, items: IntArray) -> FloatArray:
        data = self._fitted.context.rows("user")
        numbers, local = np.unique(users, return_inverse=True)
        ratings = ratings_of(data.offsets, data.columns, data.levels, numbers)
        return self.of_rows(ratings, local, items)

    def of_rows(self, known: RowRatings, local: IntArray, items: IntArray) -> FloatArray:
        """Of cells of people given by their ratings: whose each is, and the item. (n, K)."""
        K, numbers = len(self._everyone), range(len(known.offsets) - 1)
        gave = np.bincount(
            known.rows.astype(np.int64) * K + known.levels, minlength=len(numbers) * K
        )
        excess = gave.reshape(-1, K).astype(np.float64)
        expected = self._expected[known.columns]
        for level in range(K):
            excess[:, level] -= np.bincount(known.rows, expected[:, level], len(numbers))
        own = levels_of(known, local, items, self.n_items)
        return self.left_out(excess[local], np.diff(known.offsets)[local], items, own)

    def left_out(
        self, excess: FloatArray, counts: IntArray, items: IntArray, own: IntArray
    ) -> FloatArray:
        """The leaning that an excess (n, K) among so many ratings (n,) is, without the person's own
        level of the item (n,), -1 for none. Returns (n, K)."""
        held = np.flatnonzero(own >= 0)
        excess[held] += self._expected[items[held]]
        excess[held, own[held]] -= 1.0
        counts = counts - (own >= 0)
        share = np.where((counts > 0)[:, None], excess, 0.0) / (counts + IMAGINED)[:, None]
        slope = (share * self._values).sum(1, keepdims=True)
        return np.asarray(share / self._everyone - slope * self._along)


class Calibrator:
    """What a model says, with the spread that its calibration gives to the person asked about.

    People whom it was trained on have one, new people maybe another. That one was fitted on people
    of whom something is known; of somebody of whom nothing is, frequencies are said as they are.
    """

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted = fitted
        self._known = fitted.calibration
        self._new = fitted.calibration_of_new or fitted.calibration
        self._alike = fitted.calibration_of_new is None
        self._nobody = NothingKnown(fitted)
        used = [one for one in (self._known, self._new) if one is not None]
        self._leanings = Leanings(fitted) if any(one.personal > 0 for one in used) else None

    def of_cells(self, chances: FloatArray, users: IntArray, items: IntArray) -> FloatArray:
        """Distributions (n, K) of cells, users being known ones or -1. Returns (n, K)."""
        leanings = None if self._leanings is None else self._leanings.of_cells(users, items)
        return self._apply(chances, leanings, users, lambda: self._nobody.cells(users, items))

    def of_person(self, chances: FloatArray, who: Who, items: IntArray) -> FloatArray:
        """Distributions (n, K) of items for one person. Returns (n, K)."""
        leanings = None if self._leanings is None else self._leanings.of_person(who.rated, items)
        users = np.full(len(items), who.user)
        return self._apply(chances, leanings, users, lambda: self._nobody.person(who, items))

    def of_people(
        self, chances: FloatArray, people: Sequence[Who], which: IntArray, items: IntArray
    ) -> FloatArray:
        """Distributions (n, K) of cells of many people: whose each is. Returns (n, K)."""
        leanings = None
        if self._leanings is not None:
            ratings = as_ratings([who.rated for who in people])
            leanings = self._leanings.of_rows(ratings, which, items)
        users = np.array([who.user for who in people], np.int64)[which]
        return self._apply(
            chances, leanings, users, lambda: self._nobody.people(people, which, items)
        )

    def _apply(
        self,
        chances: FloatArray,
        leanings: FloatArray | None,
        users: IntArray,
        blanks: Callable[[], Blanks],
    ) -> FloatArray:
        """Each by whose it is; blanks are looked for where they are told from others."""
        if self._known is None or self._new is None:
            return chances
        if self._alike:
            return self._known.applied(chances, self._unit, leanings)
        out, new = np.array(chances), self._fitted.new(users)
        calibrated = np.ones(len(users), bool)
        calibrated[blanks().places] = False
        for calibration, which in ((self._known, ~new), (self._new, new)):
            mine = np.flatnonzero(which & calibrated)
            own = None if leanings is None else leanings[mine]
            out[mine] = calibration.applied(chances[mine], self._unit, own)
        return out

    @locked_cached_property
    def _unit(self) -> FloatArray:
        return unit_of(self._fitted.context.scale.array())

    def for_person(self, who: Who) -> Calibration:
        """What is applied to all that one person has not rated, as one that asks for no leaning."""
        new = bool(self._fitted.new(np.array([who.user]))[0])
        calibration = self._new if new else self._known
        blank = len(self._nobody.person(who, np.zeros(1, np.int64)).places) > 0
        if calibration is None or (blank and not self._alike):
            return Calibration()
        if self._leanings is None:
            return calibration
        return calibration.for_leaning(self._leanings.of_person(who.rated, np.array([-1]))[0])
