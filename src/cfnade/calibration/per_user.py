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

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration, unit_values
from cfnade.components.row_states import rows_in_pieces
from cfnade.fitted_model import FittedModel
from cfnade.inference.baseline import OWN_SMOOTHING, Baseline
from cfnade.inference.query import Entities, Query
from cfnade.kernels.column_groups import RowRatings
from cfnade.utils.caching import locked_cached_property

FloatArray = npt.NDArray[np.float64]

PRIOR_RATINGS = 30.0
"""κ: how many ratings without any preference are added to a user's own."""

MIN_FREQUENCY = 0.1
"""Lower limit of π, as a multiple of 1/K: a single rating at a very rare level would dominate."""

_WIDTH = 16  # numbers that a rating takes: so many are read at a time


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
        counts = self._fitted.training_counts.get("item")
        if counts is None:  # an item-based model, which has no weights of items
            counts = self._fitted.counted_levels("item")
        smoothed = counts + OWN_SMOOTHING * self._frequencies
        return np.asarray(smoothed / smoothed.sum(1, keepdims=True))

    def tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return π (K,), the direction of the scale's values (K,), and p_i of all items (M, K)."""
        return self._frequencies, self._direction, self._expected

    def for_query(self, query: Query) -> FloatArray:
        """Return the preferences of each pair's user, without the pair's own rating. (n, K)."""
        out = np.empty((len(query), len(self._frequencies)))
        for ratings, local, places in rows_in_pieces(query.users.rows, query.user, _WIDTH):
            part = query if len(places) == len(query) else query.take(places)
            excess, n_ratings = self.excess(ratings), np.diff(ratings.offsets)
            out[places] = self.leave_out(
                excess[local], n_ratings[local], part.item_index, part.user_levels
            )
        return out

    def excess(self, rows: RowRatings) -> FloatArray:
        """Return Σ (onehot(r) - p_i) over the ratings of each row, (B, K)."""
        K, n_rows = len(self._frequencies), len(rows.offsets) - 1
        counts = np.bincount(rows.rows.astype(np.int64) * K + rows.levels, minlength=n_rows * K)
        excess = counts.reshape(-1, K).astype(np.float64)
        expected = self._expected[rows.columns]
        for level in range(K):
            excess[:, level] -= np.bincount(rows.rows, expected[:, level], n_rows)
        return excess

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

    def apply(self, probabilities: FloatArray, query: Query) -> FloatArray:
        """Calibrate the distributions (n, K) of pairs. Returns (n, K)."""
        if self._trained is None or self._new is None:
            return probabilities
        preferences = None if self._preferences is None else self._preferences.for_query(query)
        if self._is_shared:
            return self._trained.apply_unchecked(probabilities, self._unit, preferences)
        out, is_new = np.array(probabilities), self._fitted.new(query.user_index)
        is_calibrated = ~self._baseline.applies(query)
        for calibration, is_member in ((self._trained, ~is_new), (self._new, is_new)):
            pairs = np.flatnonzero(is_member & is_calibrated)
            part = None if preferences is None else preferences[pairs]
            out[pairs] = calibration.apply_unchecked(probabilities[pairs], self._unit, part)
        return out

    @locked_cached_property
    def _unit(self) -> FloatArray:
        return unit_values(self._fitted.context.scale.array())

    def calibrations(self, users: Entities) -> list[Calibration]:
        """Return what is applied to all items that each user has not rated."""
        is_new = self._fitted.new(users.index).tolist()
        preferences = None
        if self._preferences is not None:
            no_item = np.full(len(users), -1)
            query = Query.of_users(self._fitted.context, users, np.arange(len(users)), no_item)
            preferences = self._preferences.for_query(query)
        out = []
        is_blank = (users.counts() == 0) & self._fitted.takes_histories
        for number, (new, blank) in enumerate(zip(is_new, is_blank.tolist(), strict=True)):
            calibration = self._new if new else self._trained
            if calibration is None or (blank and not self._is_shared):
                calibration = Calibration()
            elif preferences is not None:
                calibration = calibration.with_preference(preferences[number])
            out.append(calibration)
        return out
