"""Validation where ranks share the columns: each scores the cells in its own, then sums meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.calibration.calibration import MAX_FIT_RATINGS, Calibration, fit_calibration
from cfnade.components import Member
from cfnade.components.base import Axis, other_axis
from cfnade.distributed.partition import pair_exchange
from cfnade.distributed.rank_data import RankData
from cfnade.evaluation.rating_metrics import calibration_error, nll
from cfnade.inference.scorer import softmax
from cfnade.kernels.column_groups import NO_WEIGHTS, Cells, take_rows
from cfnade.training.validation import MAX_RATINGS, SHRINKAGE

FloatArray = npt.NDArray[np.float64]

ROWS = 4096
"""Rows whose states are made at a time."""


class DistributedValidation:
    """Of the validation ratings in a rank's columns; all ranks are asked at once."""

    def __init__(self, owned: RankData, other: RankData | None = None) -> None:
        """other: whose rows are items, for a model of both whose first rows are users."""
        self._owned, self._group = owned, owned.part.group
        self._stars = owned.ratings.scale.array()
        kept = _rows_looked_at(owned)
        self._mine = _Questions(owned, kept[owned.valid.rows])
        self._cells, self.levels = self._mine.cells, self._mine.levels
        self._theirs, self._meeting = None, None
        if other is not None:
            users = other.part.columns[other.valid.columns]
            self._theirs = _Questions(other, kept[users])
            here, there = self._mine.cells, self._theirs.cells
            self._meeting = pair_exchange(
                self._group,
                owned.part.owner,
                (here[0].astype(np.int64), owned.part.columns[here[1]].astype(np.int64)),
                (other.part.columns[there[1]].astype(np.int64), there[0].astype(np.int64)),
            )
        self._frequencies = owned.part.totals / max(1, owned.part.totals.sum())

    def score(self, member: Member) -> dict[str, float]:
        """How good weights are on all validation ratings."""
        chances = self.chances(member)
        errors = chances @ self._stars - self._stars[self.levels]
        with np.errstate(divide="ignore"):
            logs = np.log(chances[np.arange(len(chances)), self.levels])
        sums = np.array([np.square(errors).sum(), -logs.sum(), len(chances)])
        squares, surprise, count = self._group.all_reduce(sums).tolist()
        return {"rmse": float(np.sqrt(squares / count)), "nll": surprise / count}

    def chances(self, member: Member) -> FloatArray:
        """The distribution of each own cell before calibration. Returns (n, K)."""
        scores, unknown = self._mine.scores(member), self._mine.unknown
        if self._theirs is not None and self._meeting is not None:
            more = np.concatenate([self._theirs.scores(member), self._theirs.unknown[:, None]], 1)
            both = np.concatenate([scores, unknown[:, None]], 1)
            self._meeting.add_scores(both, more.astype(both.dtype))
            scores, unknown = both[:, :-1], both[:, -1] > 0
        out = softmax(scores)
        if self._meeting is not None:
            out[unknown] = self._frequencies  # nothing was learnt of these
        return out

    def calibrated(self, member: Member) -> tuple[Calibration | None, dict[str, Any]]:
        """The calibration that fits some validation ratings of every rank, and what it gives.

        On rank 0; on the others nothing is found.
        """
        chances, step = self.chances(member), max(1, -(-int(self._asked()) // MAX_FIT_RATINGS))
        some = [self._group.gather(part[::step]) for part in (chances, self.levels)]
        floor = self._means_rmse()
        rmse = self.score(member)["rmse"]
        if self._group.rank > 0:
            return None, {}
        raw, levels = (np.concatenate(parts) for parts in some)
        calibration = fit_calibration(raw, levels, self._stars)
        after = calibration.apply(raw, self._stars)
        metrics = {"rmse": rmse, "means_rmse": floor}
        for name, measure in (("nll", nll), ("calibration_error", calibration_error)):
            metrics[f"{name}_raw"], metrics[name] = measure(raw, levels), measure(after, levels)
        return calibration, {n: v if np.isfinite(v) else None for n, v in metrics.items()}

    def _asked(self) -> float:
        return self._group.total(len(self.levels))

    def _means_rmse(self) -> float:
        """What training/floor.py says, from sums over ranks."""
        owned, group = self._owned, self._group
        ratings, rows = owned.ratings, owned.part.rows.sizes
        widths = {owned.axis: len(rows), other_axis(owned.axis): owned.rows.n_columns}
        totals = owned.part.totals
        mean = float(totals @ self._stars / max(1, totals.sum()))
        above = self._stars[ratings.levels] - mean
        index: dict[Axis, Any] = {"user": ratings.users, "item": ratings.items}
        offsets: dict[Axis, FloatArray] = {}
        axes: tuple[Axis, Axis] = ("item", "user")
        for axis in axes:
            sums = np.bincount(index[axis], above, minlength=widths[axis])
            counts: Any = np.bincount(index[axis], minlength=widths[axis])
            if axis == owned.axis:  # a row's ratings are everywhere, a column's here
                sums, counts = group.all_reduce(sums), rows
            offsets[axis] = sums / (counts + SHRINKAGE)
            above = above - offsets[axis][index[axis]]
        of_rows, of_columns = offsets[owned.axis], offsets[other_axis(owned.axis)]
        said = mean + of_rows[self._cells[0]] + of_columns[self._cells[1]]
        errors = np.clip(said, self._stars[0], self._stars[-1]) - self._stars[self.levels]
        squares, count = group.all_reduce(np.array([np.square(errors).sum(), len(errors)])).tolist()
        return float(np.sqrt(squares / max(1.0, count)))


class _Questions:
    """The validation ratings in a rank's own columns, some of them, and the sides that answer."""

    def __init__(self, owned: RankData, kept: npt.NDArray[np.bool_]) -> None:
        self._owned = owned
        self._rows = np.flatnonzero(owned.asked > 0)
        own, valid = np.flatnonzero(kept), owned.valid
        self.cells = valid.rows[own], valid.columns[own].astype(np.int64)
        self.levels = valid.levels[own].astype(np.int64)
        self._trained = np.bincount(owned.rows.columns, minlength=owned.rows.n_columns)
        self.unknown = self._trained[self.cells[1]] == 0

    def scores(self, member: Member) -> FloatArray:
        """Of the sides with such rows. Returns (n, K)."""
        (rows, columns), owned = self.cells, self._owned
        sides = [side for side in member.components.values() if side.axis == owned.axis]
        data, out = owned.rows, np.empty((len(rows), len(owned.ratings.scale)))
        for first in range(0, len(self._rows), ROWS):
            numbers = self._rows[first : first + ROWS]
            lo, hi = np.searchsorted(rows, (numbers[0], numbers[-1] + 1))
            ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
            counts = owned.part.rows.sizes[numbers].astype(np.int64)
            local = np.searchsorted(numbers, rows[lo:hi])
            cells = Cells(local, columns[lo:hi], self.levels[lo:hi], NO_WEIGHTS)
            asked = ratings, counts, cells, self._trained
            out[lo:hi] = sum(side.shared_scores(*asked) for side in sides)
        return out


def _rows_looked_at(owned: RankData) -> npt.NDArray[np.bool_]:
    """All rows, or if there are many validation ratings some of them: the same on every rank."""
    share = MAX_RATINGS / max(1, int(owned.asked.sum(dtype=np.int64)))
    if share >= 1:
        return np.ones(len(owned.asked), bool)
    return np.random.default_rng(0).random(len(owned.asked)) < share
