"""Validation on several ranks: each scores the pairs in its own columns, then sums are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cfnade._typing import IntArray
from cfnade.calibration.calibration import MAX_FIT_RATINGS, Calibration, fit_calibration
from cfnade.components import Member, RatingComponent
from cfnade.components.base import THIN, Axis, other_axis
from cfnade.components.row_states import RowStates, ratings_of
from cfnade.data.csr import CsrRows
from cfnade.distributed.partition import pair_exchange
from cfnade.distributed.rank_data import RankData
from cfnade.evaluation.rating_metrics import calibration_error, nll
from cfnade.inference.scorer import softmax
from cfnade.kernels.column_groups import take_rows
from cfnade.kernels.scoring import cell_scores
from cfnade.training.validation import MAX_RATINGS, SHRINKAGE

FloatArray = npt.NDArray[np.float64]

ROWS = 4096
"""Rows whose states are computed at a time."""


class DistributedValidation:
    """Scores members by the validation ratings; all ranks call the methods together.

    Args:
        data: A rank's data of a model, that whose rows are users if there are two.
        item_data: Data whose rows are items, for a model of both sides.
    """

    def __init__(self, data: RankData, item_data: RankData | None = None) -> None:
        self._data, self._group = data, data.part.group
        self._values = data.ratings.scale.array()
        selected = _selected_rows(data)
        self._pairs = _ValidationPairs(data, selected[data.valid.row_indices])
        self.levels = self._pairs.levels
        self._item_pairs, self._exchange = None, None
        if item_data is not None:
            users = item_data.part.columns[item_data.valid.rows.columns]
            self._item_pairs = _ValidationPairs(item_data, selected[users])
            here, there = self._pairs.cells, self._item_pairs.cells
            self._exchange = pair_exchange(
                self._group,
                data.part.owner,
                (here[0].astype(np.int64), data.part.columns[here[1]].astype(np.int64)),
                (item_data.part.columns[there[1]].astype(np.int64), there[0].astype(np.int64)),
            )
        self._frequencies = data.part.totals / max(1, data.part.totals.sum())

    def score(self, members: Sequence[Member]) -> dict[str, float]:
        """Return the scores of the members' mean on the validation ratings of all ranks."""
        return self._score(self.probabilities(members))

    def probabilities(self, members: Sequence[Member]) -> FloatArray:
        """Return the mean distribution of each own rating before calibration, (n, K)."""
        probabilities = [self._member_probabilities(member) for member in members]
        return sum(probabilities[1:], probabilities[0]) / len(members)

    def calibrate(self, members: Sequence[Member]) -> tuple[Calibration | None, dict[str, Any]]:
        """Return a calibration, fitted to a sample of all ranks, and the validation metrics.

        Both are on rank 0; the other ranks get None and {}.
        """
        probabilities = self.probabilities(members)
        step = max(1, -(-int(self._group.total(len(self.levels))) // MAX_FIT_RATINGS))
        samples = [self._group.gather(part[::step]) for part in (probabilities, self.levels)]
        baseline, rmse = self._baseline_rmse(), self._score(probabilities)["rmse"]
        if self._group.rank > 0:
            return None, {}
        raw, levels = (np.concatenate(parts) for parts in samples)
        calibration = fit_calibration(raw, levels, self._values)
        calibrated = calibration.apply(raw, self._values)
        metrics = {"rmse": rmse, "means_rmse": baseline}
        for name, metric in (("nll", nll), ("calibration_error", calibration_error)):
            metrics[f"{name}_raw"] = metric(raw, levels)
            metrics[name] = metric(calibrated, levels)
        return calibration, {n: v if np.isfinite(v) else None for n, v in metrics.items()}

    def _score(self, probabilities: FloatArray) -> dict[str, float]:
        errors = probabilities @ self._values - self._values[self.levels]
        with np.errstate(divide="ignore"):
            logs = np.log(probabilities[np.arange(len(probabilities)), self.levels])
        sums = np.array([np.square(errors).sum(), -logs.sum(), len(probabilities)])
        squares, surprisal, count = self._group.all_reduce(sums).tolist()
        return {"rmse": float(np.sqrt(squares / count)), "nll": surprisal / count}

    def _member_probabilities(self, member: Member) -> FloatArray:
        scores, untrained = self._pairs.scores(member), self._pairs.untrained
        if self._item_pairs is not None and self._exchange is not None:
            pairs = self._item_pairs
            sent = np.concatenate([pairs.scores(member), pairs.untrained[:, None]], 1)
            both = np.concatenate([scores, untrained[:, None]], 1)
            self._exchange.add_scores(both, sent.astype(both.dtype))
            scores, untrained = both[:, :-1], both[:, -1] > 0
        probabilities = softmax(scores)
        if self._exchange is not None:
            probabilities[untrained] = self._frequencies
        return probabilities

    def _baseline_rmse(self) -> float:
        """Return what training.validation.baseline_rmse does, from sums over ranks."""
        data, group = self._data, self._group
        ratings, row_counts = data.ratings, data.part.rows.sizes
        sizes = {data.axis: len(row_counts), other_axis(data.axis): data.rows.n_columns}
        totals = data.part.totals
        mean = float(totals @ self._values / max(1, totals.sum()))
        residuals = self._values[ratings.levels] - mean
        index: dict[Axis, Any] = {"user": ratings.users, "item": ratings.items}
        offsets: dict[Axis, FloatArray] = {}
        axes: tuple[Axis, Axis] = ("item", "user")
        for axis in axes:
            sums = np.bincount(index[axis], residuals, minlength=sizes[axis])
            counts: Any = np.bincount(index[axis], minlength=sizes[axis])
            if axis == data.axis:  # ratings of a row are on all ranks, those of a column here
                sums, counts = group.all_reduce(sums), row_counts
            offsets[axis] = sums / (counts + SHRINKAGE)
            residuals = residuals - offsets[axis][index[axis]]
        rows, columns = self._pairs.cells
        predictions = mean + offsets[data.axis][rows] + offsets[other_axis(data.axis)][columns]
        predictions = np.clip(predictions, self._values[0], self._values[-1])
        errors = predictions - self._values[self.levels]
        squares, count = group.all_reduce(np.array([np.square(errors).sum(), len(errors)])).tolist()
        return float(np.sqrt(squares / max(1.0, count)))


class _ValidationPairs:
    """Selected validation ratings in a rank's own columns, and their scores by a component."""

    def __init__(self, data: RankData, selected: npt.NDArray[np.bool_]) -> None:
        self._data = data
        self._rows = np.flatnonzero(data.valid_counts > 0)
        index, valid = np.flatnonzero(selected), data.valid
        self.cells = valid.row_indices[index], valid.rows.columns[index].astype(np.int64)
        self.levels = valid.rows.levels[index].astype(np.int64)
        self._trained = np.bincount(data.rows.columns, minlength=data.rows.n_columns)
        self.untrained = self._trained[self.cells[1]] == 0

    def scores(self, member: Member) -> FloatArray:
        """Return the sum of the scores of the member's components with such rows, (n, K)."""
        (rows, columns), data = self.cells, self._data
        components = [c for c in member.components.values() if c.axis == data.axis]
        csr, out = data.rows, np.empty((len(rows), len(data.ratings.scale)))
        for first in range(0, len(self._rows), ROWS):
            numbers = self._rows[first : first + ROWS]
            lo, hi = np.searchsorted(rows, (numbers[0], numbers[-1] + 1))
            ratings = take_rows(csr.offsets, csr.columns, csr.levels, numbers)
            counts = data.part.rows.sizes[numbers].astype(np.int64)
            local = np.searchsorted(numbers, rows[lo:hi])
            context = CsrRows(ratings.offsets, *ratings[2:], csr.n_columns, csr.n_levels)
            out[lo:hi] = sum(
                self._component_scores(component, context, counts, local, columns[lo:hi])
                for component in components
            )
        return out

    def _component_scores(
        self,
        component: RatingComponent,
        context: CsrRows,
        counts: IntArray,
        row: IntArray,
        column: IntArray,
    ) -> FloatArray:
        """Return the scores of cells in the own columns, (n, K).

        All ranks ask for the same rows, each for its own cells. Each knows its part of a row's
        ratings; `counts` are those of whole rows. A column without training ratings is the mean of
        those with any, of all ranks.
        """
        scorer, group, trained = component.scorer(context), self._data.part.group, self._trained
        assert isinstance(scorer, RowStates)
        sums = torch.from_numpy(scorer.row_sums(ratings_of(context), serial=False))
        group.reduce_scatter_rows(sums)
        lo, hi = group.row_range(len(counts))
        states = torch.zeros(len(counts), scorer.width, dtype=sums.dtype)
        part = scorer.states_of_sums(sums[lo:hi].numpy(), counts[lo:hi], serial=False)
        states[lo:hi] = torch.from_numpy(part)
        group.all_gather_rows(states)
        table, bias, shared = scorer.output
        scores = cell_scores(states.numpy(), table, bias, row, column, shared=shared)
        weights = (trained / (trained + THIN)).astype(table.dtype)
        totals = np.concatenate([np.tensordot(weights, table, 1).ravel(), weights @ bias])
        mean = group.all_reduce(totals) / max(1e-9, group.total(float(weights.sum())))
        unseen = np.flatnonzero(trained[column] == 0)
        if len(unseen):
            mean_table, mean_bias = np.split(mean.astype(table.dtype), [table[0].size])
            output = mean_table.reshape(1, *table.shape[1:]), mean_bias.reshape(1, -1)
            first = np.zeros(len(unseen), np.int64)
            scores[unseen] = cell_scores(states.numpy(), *output, row[unseen], first, shared=shared)
        return np.asarray(scores)


def _selected_rows(data: RankData) -> npt.NDArray[np.bool_]:
    """Return all rows, or a sample if there are many ratings: the same on every rank. (N,)."""
    fraction = MAX_RATINGS / max(1, int(data.valid_counts.sum(dtype=np.int64)))
    if fraction >= 1:
        return np.ones(len(data.valid_counts), bool)
    return np.random.default_rng(0).random(len(data.valid_counts)) < fraction
