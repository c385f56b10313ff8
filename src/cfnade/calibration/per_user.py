"""Per-user calibration: some users rate only 3 and 4, others only 1 and 5.

The level preferences φ of a user say which levels the user gives more often than others gave to
the same items:

    φ  =  [ Σ (onehot(r) - p_i) / (n + κ) ] / π,   minus its projection onto the scale's values

summed over the user's n known ratings r of items i, with p_i the smoothed training frequencies of
the item's levels and π those of all ratings. The projection would move the mean, so the tilt would
take it back. A rating never enters the preferences that are used to predict it. `Calibration`
holds the weight of the preferences; this module computes them.

Shapes: n user-item pairs, K levels, M items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration, unit_values
from cfnade.components.base import Row, Who
from cfnade.components.row_states import as_ratings
from cfnade.fitted_model import FittedModel
from cfnade.inference.baseline import OWN_SMOOTHING, Baseline, Blanks
from cfnade.kernels.column_groups import RowRatings, lookup_levels, take_rows
from cfnade.utils.caching import locked_cached_property

FloatArray = npt.NDArray[np.float64]

PRIOR_RATINGS = 30.0
"""κ: how many ratings without any preference are added to a user's own."""

MIN_FREQUENCY = 0.1
"""Lower limit of π, as a multiple of 1/K: a single rating at a very rare level would dominate."""

_CHUNK = 1 << 20  # ratings that are read at a time


class LevelPreferences:
    """Level preferences of the users of a fitted model, and of new users."""

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted = fitted
        self.n_items, self._values = fitted.context.n_items, fitted.context.scale.array()
        frequencies = fitted.level_frequencies
        frequencies = np.maximum(frequencies, MIN_FREQUENCY / len(frequencies))
        self._frequencies = frequencies / frequencies.sum()  # (K,)
        offset = self._values - self._frequencies @ self._values
        self._direction = offset / (self._frequencies @ np.square(offset))  # (K,)

    @locked_cached_property
    def _expected(self) -> FloatArray:
        """Smoothed level frequencies of each item, (M, K)."""
        counts = self._fitted.trained_on.get("item")
        if counts is None:  # an item-based model, which has no weights of items
            counts = self._fitted.counted_levels("item")
        smoothed = counts + OWN_SMOOTHING * self._frequencies
        return np.asarray(smoothed / smoothed.sum(1, keepdims=True))

    def tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return π (K,), the direction of the scale's values (K,), and p_i of all items (M, K)."""
        return self._frequencies, self._direction, self._expected

    def for_row(self, row: Row, items: IntArray) -> FloatArray:
        """Return the preferences of one user, given by ratings, for each of some items.

        The user's rating of the item is left out; -1 stands for an item without one. (n, K).
        """
        level = np.full(self.n_items + 1, -1)  # the last one: of an unknown item
        level[row.columns] = row.levels
        counts = np.bincount(row.levels, minlength=len(self._frequencies))
        excess = np.tile(counts - self._expected[row.columns].sum(0), (len(items), 1))
        n_ratings = np.full(len(items), len(row.levels))
        return self.leave_out(excess, n_ratings, items, level[items])

    def for_pairs(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the preferences of each pair's user, from other ratings in the context. (n, K)."""
        out = np.empty((len(users), len(self._frequencies)))
        numbers, local = np.unique(users, return_inverse=True)
        counts = np.diff(self._fitted.context.rows("user").offsets)
        sizes = counts[numbers] if len(counts) else 0 * numbers
        chunk = (np.cumsum(sizes) // _CHUNK)[local]
        for number in np.unique(chunk):
            pairs = np.flatnonzero(chunk == number)
            out[pairs] = self._for_chunk(users[pairs], items[pairs])
        return out

    def _for_chunk(self, users: IntArray, items: IntArray) -> FloatArray:
        data = self._fitted.context.rows("user")
        numbers, local = np.unique(users, return_inverse=True)
        rows = take_rows(data.offsets, data.columns, data.levels, numbers)
        return self.for_rows(rows, local, items)

    def for_rows(self, rows: RowRatings, local: IntArray, items: IntArray) -> FloatArray:
        """Return the preferences of pairs of rows, which hold users' ratings, and items. (n, K).

        `local` (n,) is the row of each pair.
        """
        K, n_rows = len(self._frequencies), len(rows.offsets) - 1
        counts = np.bincount(rows.rows.astype(np.int64) * K + rows.levels, minlength=n_rows * K)
        excess = counts.reshape(-1, K).astype(np.float64)
        expected = self._expected[rows.columns]
        for level in range(K):
            excess[:, level] -= np.bincount(rows.rows, expected[:, level], n_rows)
        levels = lookup_levels(rows, local, items, self.n_items)
        return self.leave_out(excess[local], np.diff(rows.offsets)[local], items, levels)

    def leave_out(
        self, excess: FloatArray, n_ratings: IntArray, items: IntArray, levels: IntArray
    ) -> FloatArray:
        """Return the preferences without the user's rating of each item, (n, K).

        Args:
            excess: Σ (onehot(r) - p_i) over all ratings of the pair's user, (n, K); overwritten.
            n_ratings: How many ratings these are, (n,).
            items: Item of each pair, (n,).
            levels: Level of the user's rating of the item, (n,); -1 for none.
        """
        rated = np.flatnonzero(levels >= 0)
        excess[rated] += self._expected[items[rated]]
        excess[rated, levels[rated]] -= 1.0
        n_ratings = n_ratings - (levels >= 0)
        share = np.where((n_ratings > 0)[:, None], excess, 0.0)
        share = share / (n_ratings + PRIOR_RATINGS)[:, None]
        slope = (share * self._values).sum(1, keepdims=True)
        return np.asarray(share / self._frequencies - slope * self._direction)


class Calibrator:
    """Applies the calibrations of a fitted model, with the level preferences of each user.

    A model may have one calibration for trained and one for new users. The latter is fitted on
    users with ratings; the baseline for users without any is not calibrated.
    """

    def __init__(self, fitted: FittedModel) -> None:
        self._fitted = fitted
        self._trained = fitted.calibration
        self._new = fitted.calibration_of_new or fitted.calibration
        self._is_shared = fitted.calibration_of_new is None
        self._baseline = Baseline(fitted)
        calibrations = [c for c in (self._trained, self._new) if c is not None]
        needs_preferences = any(c.user_weight > 0 for c in calibrations)
        self._preferences = LevelPreferences(fitted) if needs_preferences else None

    def for_pairs(self, probabilities: FloatArray, users: IntArray, items: IntArray) -> FloatArray:
        """Calibrate distributions (n, K) of pairs; -1 is an unknown user. Returns (n, K)."""
        preferences = None
        if self._preferences is not None:
            preferences = self._preferences.for_pairs(users, items)
        return self._apply(
            probabilities, preferences, users, lambda: self._baseline.cells(users, items)
        )

    def for_user(self, probabilities: FloatArray, user: Who, items: IntArray) -> FloatArray:
        """Calibrate distributions (n, K) of items for one user. Returns (n, K)."""
        preferences = None
        if self._preferences is not None:
            preferences = self._preferences.for_row(user.rated, items)
        users = np.full(len(items), user.user)
        return self._apply(
            probabilities, preferences, users, lambda: self._baseline.person(user, items)
        )

    def for_users(
        self, probabilities: FloatArray, entities: Sequence[Who], local: IntArray, items: IntArray
    ) -> FloatArray:
        """Calibrate distributions (n, K) of pairs of some users, by number (n,), and items (n,)."""
        preferences = None
        if self._preferences is not None:
            rows = as_ratings([entity.rated for entity in entities])
            preferences = self._preferences.for_rows(rows, local, items)
        users = np.array([entity.user for entity in entities], np.int64)[local]
        return self._apply(
            probabilities, preferences, users, lambda: self._baseline.people(entities, local, items)
        )

    def _apply(
        self,
        probabilities: FloatArray,
        preferences: FloatArray | None,
        users: IntArray,
        blanks: Callable[[], Blanks],
    ) -> FloatArray:
        """Apply the calibration of each pair's user; `blanks` returns the pairs to leave alone."""
        if self._trained is None or self._new is None:
            return probabilities
        if self._is_shared:
            return self._trained.apply_unchecked(probabilities, self._unit, preferences)
        out, is_new = np.array(probabilities), self._fitted.new(users)
        is_calibrated = np.ones(len(users), bool)
        is_calibrated[blanks().places] = False
        for calibration, is_member in ((self._trained, ~is_new), (self._new, is_new)):
            pairs = np.flatnonzero(is_member & is_calibrated)
            part = None if preferences is None else preferences[pairs]
            out[pairs] = calibration.apply_unchecked(probabilities[pairs], self._unit, part)
        return out

    @locked_cached_property
    def _unit(self) -> FloatArray:
        return unit_values(self._fitted.context.scale.array())

    def calibration_of(self, user: Who) -> Calibration:
        """Return what is applied to all items that a user has not rated, preferences included."""
        is_new = bool(self._fitted.new(np.array([user.user]))[0])
        calibration = self._new if is_new else self._trained
        is_blank = len(self._baseline.person(user, np.zeros(1, np.int64)).places) > 0
        if calibration is None or (is_blank and not self._is_shared):
            return Calibration()
        if self._preferences is None:
            return calibration
        preference = self._preferences.for_row(user.rated, np.array([-1]))[0]
        return calibration.with_preference(preference)
