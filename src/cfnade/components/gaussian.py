"""Components whose state of a row is a Gaussian posterior, and closed forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, OutputTable, Pairs, RatingComponent, Trainer
from cfnade.components.row_states import RowStates, ratings_of, slices
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows, offsets_from_counts
from cfnade.data.dataset import Dataset
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.kernels.column_groups import RowRatings
from cfnade.kernels.posterior import (
    Evidence,
    Posteriors,
    RaggedRows,
    leave_one_out,
    row_sums,
    solve_sums,
)
from cfnade.kernels.threads import run_parallel
from cfnade.utils.caching import locked_cached_property

if TYPE_CHECKING:
    from torch import Tensor

    from cfnade.components.batches import Batch
    from cfnade.kernels.sampling import GroupedBatch


def sums_of(rows: RaggedRows, evidence: Evidence, threads: int = 1) -> Array:
    """Return what the ratings of each row add up to, (B, P)."""
    B, (L, D) = len(rows.offsets) - 1, (evidence.products.shape[1], len(evidence.prior))
    sums = np.empty((B, L + D), evidence.E.dtype)
    if threads == 1:  # of most queries
        row_sums(0, B, rows, evidence, sums)
        return sums
    cuts = np.searchsorted(rows.offsets, rows.offsets[-1] * np.arange(1, threads) / threads)
    parts = pairwise([0, *cuts.tolist(), B])
    run_parallel(row_sums, [(*part, rows, evidence, sums) for part in parts])
    return sums


def posteriors_of(
    rows: RaggedRows, evidence: Evidence, threads: int = 1, group: ProcessGroup = SINGLE_PROCESS
) -> Posteriors:
    """Return the posteriors of all rows.

    Where ranks share the columns, each adds up its own ratings and solves its share of the rows:
    D (D + 3) / 2 numbers travel for a row there, and D + 1 back. Factors are those of the share,
    the others are 0.
    """
    sums = sums_of(rows, evidence, threads)
    if group.size == 1:
        return solve(sums, evidence, threads)
    import torch

    group.reduce_scatter_rows(torch.from_numpy(sums))
    out = solve(sums, evidence, threads, group.row_range(len(sums)))
    solved = np.concatenate([out.means, out.unknown[:, None]], 1)
    group.all_gather_rows(torch.from_numpy(solved))
    return out._replace(means=np.ascontiguousarray(solved[:, :-1]), unknown=solved[:, -1].copy())


def solve(
    sums: Array, evidence: Evidence, threads: int = 1, rows: tuple[int, int] | None = None
) -> Posteriors:
    """Return the posteriors of rows with these sums, (B, P); those of other rows are 0."""
    B, D = len(sums), len(evidence.prior)
    out = Posteriors(*(np.zeros(shape, sums.dtype) for shape in ((B, D, D), (B, D), (B,))))
    first, end = rows or (0, B)
    if threads == 1:
        solve_sums(first, end, sums, evidence, out)
        return out
    parts = pairwise([first + (end - first) * t // threads for t in range(threads + 1)])
    run_parallel(solve_sums, [(*part, sums, evidence, out) for part in parts])
    return out


class GaussianStates(RowStates):
    """Rows whose state is (γ m, ω); of several bodies of evidence, each m and the mean of ω.

    Leave-one-out has a kernel of its own that adds up and solves: from cached sums it would take
    11 % longer.
    """

    def __init__(
        self,
        axis: Axis,
        rows: CsrRows,
        evidence: Sequence[Evidence],
        output: OutputTable,
        *,
        gain: Callable[[Array], Array] = np.ones_like,
    ) -> None:
        self.axis, self.rows, self.output = axis, rows, output
        self.dtype = output.bias.dtype
        self._gain, self._evidence = gain, evidence

    @property
    def _caches_sums(self) -> bool:
        return False

    @locked_cached_property
    def _all_states(self) -> Array:
        return self.states(ratings_of(self.rows))

    def row_sums(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        del serial
        return sums_of(_ragged(ratings), self._evidence[0])

    def states_of_sums(self, sums: Array, counts: IntArray, *, serial: bool = True) -> Array:
        del counts, serial
        posteriors = solve(sums, self._evidence[0])
        return self._join([(posteriors.means, posteriors.unknown)])

    def states(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        del serial
        ragged, D = _ragged(ratings), len(self._evidence[0].prior)
        out = np.empty((len(ragged.offsets) - 1, self.width), self.dtype)
        for part in slices(len(out), D * D):
            rows = ragged._replace(offsets=ragged.offsets[part.start : part.stop + 1])
            posteriors = [posteriors_of(rows, evidence) for evidence in self._evidence]
            out[part] = self._join([(p.means, p.unknown) for p in posteriors])
        return out

    def states_without(
        self,
        ratings: RowRatings,
        rows: IntArray,
        columns: IntArray,
        levels: IntArray,
        *,
        serial: bool = True,
    ) -> Array:
        del serial
        ragged = _ragged(ratings)
        cells = tuple(np.array(part, np.int64) for part in (rows, columns, levels))
        parts = []
        for evidence in self._evidence:
            means = np.empty((len(rows), len(evidence.prior)), self.dtype)
            unknown = np.empty(len(rows), self.dtype)
            leave_one_out(ragged, cells, evidence, means, unknown)
            parts.append((means, unknown))
        return self._join(parts)

    def _states_without_two(
        self, ratings: RowRatings, rows: IntArray, pairs: Pairs, places: IntArray
    ) -> Array:
        """Leave the further ratings out of copies of their rows, then each pair's own."""
        assert pairs.left_out is not None
        columns = pairs.rows.columns[pairs.left_out[places]].astype(np.int64)
        ratings, rows = reduced_rows(ratings, rows, places, columns)
        out, held = self.states(ratings)[rows], pairs.levels >= 0
        held[places] &= columns != pairs.column[places]
        rated = np.flatnonzero(held)
        cells = rows[rated], pairs.column[rated], pairs.levels[rated]
        out[rated] = self.states_without(ratings, *cells)
        return out

    def _join(self, parts: Sequence[tuple[Array, Array]]) -> Array:
        return join_states(parts, [self._gain(unknown) for _, unknown in parts])


def join_states(parts: Sequence[tuple[Array, Array]], gains: Sequence[Array]) -> Array:
    """Return the states (γ m, mean ω) of rows, (B, S).

    Args:
        parts: The means m (B, D) and ω (B,) by each body of evidence.
        gains: γ (B,) by each.
    """
    dtype = parts[0][0].dtype
    scaled = [
        means * gain.astype(dtype)[:, None] for (means, _), gain in zip(parts, gains, strict=True)
    ]
    unknown = parts[0][1]
    if len(parts) > 1:
        unknown = np.mean([unknown for _, unknown in parts], axis=0, dtype=dtype)
    return np.concatenate([*scaled, unknown[:, None]], 1)


def _ragged(ratings: RowRatings) -> RaggedRows:
    """Return writable arrays in any case: read-only ones would compile another kernel."""
    return RaggedRows(
        np.require(ratings.offsets, np.int64, "W"),
        np.require(ratings.columns, np.int32, "W"),
        np.require(ratings.levels, np.uint8, "W"),
    )


def reduced_rows(
    ratings: RowRatings, rows: IntArray, places: IntArray, columns: IntArray
) -> tuple[RowRatings, IntArray]:
    """Append rows that lack a column, one for each row and column, and let pairs read these.

    Args:
        ratings: The ratings of rows.
        rows: Row of each pair, (n,).
        places: Pairs that read a row without a column.
        columns: This column of each of them.
    """
    width = int(ratings.columns.max(initial=0)) + 1
    codes, number = np.unique(rows[places] * width + columns, return_inverse=True)
    sources, lacking = np.divmod(codes, width)
    starts = ratings.offsets[sources]
    sizes = ratings.offsets[sources + 1] - starts
    copies = np.repeat(np.arange(len(sources)), sizes)
    entries = np.arange(len(copies)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + starts[copies]
    keep = ratings.columns[entries] != lacking[copies]
    copies, entries, first = copies[keep], entries[keep], len(ratings.offsets) - 1
    ends = ratings.offsets[-1] + np.cumsum(np.bincount(copies, minlength=len(sources)))
    reduced = RowRatings(
        np.concatenate([ratings.offsets, ends]),
        np.concatenate([ratings.rows, (first + copies).astype(ratings.rows.dtype)]),
        np.concatenate([ratings.columns, ratings.columns[entries]]),
        np.concatenate([ratings.levels, ratings.levels[entries]]),
    )
    rows = rows.copy()
    rows[places] = first + number
    return reduced, rows


# -- closed forms ---------------------------------------------------------------------------------


class ClosedFormComponent(RatingComponent):
    """A component that is fitted at once; trained components learn what it leaves over."""

    axis: Axis
    closed_form = True
    kernels = "posterior"

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        del ratings, settings, share, threads
        return FixedTrainer(self)

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        import torch

        del network
        return torch.from_numpy(self.batch_scores(batch))

    def batch_scores(self, batch: Batch) -> Array:
        """Return scores of a batch's targets, (T, K)."""
        grouped = batch.batches[self.axis]
        ragged, targets = rows_of_batch(grouped), grouped.target_cells()
        rows = CsrRows(*ragged, grouped.context.n_columns, self.config.levels)
        row, column = targets.rows.astype(np.int64), targets.columns.astype(np.int64)
        return self.scorer(rows).score_pairs(Pairs(rows, row, column, row, np.full(len(row), -1)))


class FixedTrainer(Trainer):
    """Adds the scores of a closed-form component, which does not move."""

    def __init__(self, component: ClosedFormComponent) -> None:
        self._component = component

    def add_scores(self, batch: Batch, scores: Array) -> None:
        scores += self._component.batch_scores(batch)

    def backward(self, batch: Batch, gradient: Array, rate: float) -> None:
        pass


def rows_of_batch(batch: GroupedBatch) -> RaggedRows:
    """Return the contexts of a batch row by row."""
    context = batch.context
    order = np.argsort(context.rows, kind="stable")
    columns = np.repeat(np.arange(context.n_columns, dtype=np.int32), np.diff(context.starts))
    offsets = offsets_from_counts(np.bincount(context.rows, minlength=batch.size))
    return RaggedRows(offsets, columns[order], context.levels[order])
