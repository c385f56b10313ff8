"""How likely a user takes up an item again, beside how likely each new item is.

    p(next = i | known) = r · w_i / Σ w      for a known item, w_i times taken up
                        = (1 - r) · p(i)     for a new one

r is the probability that a user's next event repeats one. Leaving out one event of a user at a
time tells how often it does: those of items that were taken up more than once are repeats. Rates of
users are shrunk towards the overall rate, like the mean of a beta distribution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.implicit.rows import InteractionRows

FloatArray = npt.NDArray[np.float64]

LEAST_EVENTS, MOST_EVENTS = 1.0, 1_000.0
"""Bounds of the number of events that the overall rate counts for."""


class Repeats(NamedTuple):
    """The overall rate of repeats, and the number of a user's events that it counts for."""

    rate: float = 0.0
    strength: float = LEAST_EVENTS

    def rates(self, rows: InteractionRows) -> FloatArray:
        """Return the probability of a repeat for each row, (B,).

        0 where nothing is known, 1 where everything is.
        """
        events, repeated = _events(rows)
        rates = (repeated + self.strength * self.rate) / (events + self.strength)
        everything = rows.counts == rows.n_columns
        return np.where(rows.counts == 0, 0.0, np.where(everything, 1.0, rates))

    def mix(self, new_items: npt.NDArray[np.float32], rows: InteractionRows) -> None:
        """Turn log p of new items, (B, M) with -∞ for known ones, into log p of all items."""
        rates, events = self.rates(rows), _events(rows)[0]
        with np.errstate(divide="ignore"):
            new_items += np.log1p(-rates)[:, None].astype(np.float32)
            shares = np.log(rows.weights.astype(np.float64) / events[rows.rows])
            new_items[rows.rows, rows.columns] = np.log(rates)[rows.rows] + shares


def fit_repeats(rows: InteractionRows) -> Repeats:
    """Return how often users repeat; never where every interaction counts 1."""
    events, repeated = _events(rows)
    if not repeated.any():
        return Repeats()
    rate = float(repeated.sum() / events.sum())
    several = events > 1
    shares = repeated[several] / events[several]
    between = float(np.average(np.square(shares - rate), weights=events[several]))
    between -= float((rate * (1 - rate) * several.sum()) / events[several].sum())  # by chance
    strength = rate * (1 - rate) / between - 1 if between > 0 else MOST_EVENTS
    return Repeats(rate, float(np.clip(strength, LEAST_EVENTS, MOST_EVENTS)))


def _events(rows: InteractionRows) -> tuple[FloatArray, FloatArray]:
    """Return how many events each row has, and how many of items with more than one. Both (B,)."""
    weights = rows.weights.astype(np.float64)
    events = np.bincount(rows.rows, weights, minlength=len(rows))
    repeated = np.bincount(rows.rows, weights * (weights > 1), minlength=len(rows))
    return events.astype(np.float64), repeated.astype(np.float64)
