"""The side that knows what is near: a sparse correction of what the others of its member leave.

Rows are users, whose columns are films that go together beyond all factors, or items, whose columns
are people who do. It is made from ratings in seconds (models/near_network.py has the equations) and
says nothing until training has ended; then validation says how much it counts (training/gains.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from cfnade.components.base import Array, Axis, Before, other_axis
from cfnade.components.factor_analysis import fill
from cfnade.components.factor_rows import FactorRows
from cfnade.components.neighborhood_rows import NeighborhoodWeights, residuals_of
from cfnade.components.trainable import ClosedFormComponent, Member, tables_of
from cfnade.components.variational_bayes import fit_factor_analysis
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows, index_counts, index_sums
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.kernels.column_groups import take_rows
from cfnade.kernels.sparse import cooccurrence
from cfnade.kernels.threads import thread_count
from cfnade.models.batch import Context
from cfnade.models.config import NearConfig
from cfnade.models.near_network import NearNetwork

DIMENSIONS, SWEEPS = 4, 15
"""Of the factor analysis. More dimensions explain away what is near."""
MOST_COLUMNS = 25_000
"""Covariances of all pairs are looked at, once."""
SURE: dict[Axis, float] = {"user": 3.0, "item": 4.0}
"""Standard errors from which a covariance of columns counts, by what the rows are. People are more
than films and have fewer ratings in common, so that more of them look alike by chance."""
ROWS_AT_ONCE = 20_000
"""Of which residuals are made."""
LEAST_COMMON = 20
"""Rows that two columns have in common, at least."""
DOUBT = 100.0
"""Imagined common rows without any covariance."""
COLUMN_DOUBT = 20.0
"""Imagined ratings of a column, left over as widely as all."""
LANCZOS_STEPS = 150
LEAST_DEFINITE = 0.05
"""The smallest eigenvalue of variances and covariances, relative to the variances."""


class NeighborhoodComponent(ClosedFormComponent):
    """Pairs of columns with their covariances; a row is what its known ratings leave."""

    network: NearNetwork
    tunes = True
    _gains: tuple[float, float] = (0.0, 0.0)
    """Gain and shift where no validation part is there to find them."""

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        assert axis is not None
        columns = len(ratings.ids(other_axis(axis)))
        config = NearConfig(columns=columns, levels=len(ratings.scale), dimensions=DIMENSIONS)
        side = cls(axis, NearNetwork(config))
        of_users, of_items, shift = fields.get("gains", (0.0, 0.0, 0.0))
        side._gains = (of_users, shift) if axis == "user" else (of_items, 0.0)
        return side

    @torch.no_grad()
    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        del generator
        if not before:
            raise TrainingError(
                f"a neighbourhood corrects what other sides say; give one before {self.axis}-near, "
                f"such as {self.axis}+{self.axis}-near"
            )
        columns = self.network.config.columns
        if columns > MOST_COLUMNS:
            raise TrainingError(
                f"a neighbourhood of {columns:,} {other_axis(self.axis)}s is too large (at most "
                f"{MOST_COLUMNS:,}); leave out {self.axis}-near"
            )
        rows, threads = ratings.rows(self.axis), thread_count(None)
        factors = fit_factor_analysis(
            rows, DIMENSIONS, seed=settings.seed, threads=threads, sweeps=SWEEPS
        )
        fill(self.network.factors, 0, factors)
        self._pair(rows, (settings.seed, threads))

    def _pair(self, rows: CsrRows, made: tuple[int, int]) -> None:
        """made: from which seed the analysis was, and by how many threads."""

        def find() -> Pairs:
            left = _left_of(FactorRows(self.weights().factors, rows), rows)
            return pairs_of(rows, left, SURE[self.axis], made[1])

        # Several members of a model may have the same neighborhood.
        pairs = rows.memo(("pairs", self.axis, *made), find)
        config = NearConfig(**self.network.config.to_dict() | {"pairs": len(pairs.others)})
        filled = NearNetwork(config)
        filled.factors = self.network.factors
        for name, array in pairs._asdict().items():
            getattr(filled, name).copy_(torch.from_numpy(array))
        self.network = filled

    @staticmethod
    def empty(fields: Mapping[str, Any]) -> NearNetwork:
        return NearNetwork(NearConfig.from_dict(fields))

    def weights(self) -> NeighborhoodWeights:
        return NeighborhoodWeights(self.axis, self.network.config, tables_of(self.network))

    def fault(self, ratings: Dataset) -> str | None:
        return self.weights().fault(ratings)

    # -- trained ------------------------------------------------------------------------------

    def finish(self, ratings: Dataset, member: Member) -> None:
        del ratings, member
        gain, shift = self._gains
        self.network.gain.fill_(gain)
        self.network.shift.fill_(shift)

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells in plain torch, each of a row of the context. Returns (n, K)."""
        return self.network.scores(context, rows, columns)


class Pairs(NamedTuple):
    """What is kept of all pairs: buffers of a network, by name."""

    starts: Array  # (M+1,)
    others: Array  # (P,)
    covariances: Array  # (P,)
    variances: Array  # (M,)


def _left_of(factors: FactorRows, rows: CsrRows) -> Array:
    """What an analysis leaves of all ratings, so many rows at a time. Returns (n,) float32."""
    left = np.empty(rows.n_ratings, np.float32)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        end = min(first + ROWS_AT_ONCE, len(rows))
        some = take_rows(rows.offsets, rows.columns, rows.levels, np.arange(first, end))
        left[rows.offsets[first] : rows.offsets[end]] = residuals_of(factors, some)
    return left


def pairs_of(rows: CsrRows, left: Array, sure: float, threads: int) -> Pairs:
    """Covariances of what is left of columns, those that stand out from chance, shrunken.

    Of columns with n rows in common C = Σ e_i e_j has the standard error √(n v_i v_j). Up to `sure`
    of these it counts nothing, from there on ever more: R = C/(n + DOUBT) · (1 - (sure/t)²). Only
    columns that go together count: what goes apart is mostly chance.
    """
    M, offsets, columns = rows.n_columns, np.array(rows.offsets), np.array(rows.columns)
    counts = index_counts(columns, M)
    squares = index_sums(columns, M, lambda some: np.square(left[some], dtype=np.float64))
    variances = (squares + COLUMN_DOUBT * left.var()) / (counts + COLUMN_DOUBT)
    sums = cooccurrence(offsets, columns, left.astype(np.float32), M, threads=threads)
    common = cooccurrence(offsets, columns, np.ones(len(left), np.float32), M, threads=threads)
    np.fill_diagonal(sums, 0.0)
    i, j = np.nonzero(_stand_out(sums, common, variances, sure))
    sums, common = sums[i, j].astype(np.float64), common[i, j]
    t = sums / np.sqrt(common * (variances[i] * variances[j]))
    values = sums / (common + DOUBT) * (1 - np.square(sure / t))
    values *= _definite(i, j, values / np.sqrt(variances[i] * variances[j]), M)
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=M))]).astype(np.int32)
    return Pairs(
        starts, j.astype(np.int32), values.astype(np.float32), variances.astype(np.float32)
    )


def _stand_out(sums: Array, common: Array, variances: Array, sure: float) -> Array:
    """Which pairs do, a line at a time: of all of them nothing else is made. Returns (M, M)."""
    kept = np.zeros(sums.shape, bool)
    for line, together, n, v in zip(kept, sums, common, variances, strict=True):
        line[:] = (n >= LEAST_COMMON) & (together > sure * np.sqrt(n * (v * variances)))
    return kept


def _definite(i: Array, j: Array, correlations: Array, M: int) -> float:
    """What covariances are multiplied by so that, with the variances, they are one: at most 1."""
    if not len(i):
        return 1.0
    return min(1.0, (1 - LEAST_DEFINITE) / max(-_lowest(i, j, correlations, M), 1e-9))


def _lowest(i: Array, j: Array, correlations: Array, M: int) -> float:
    """A number that no eigenvalue is below, and one is near: by Lanczos, from a fixed start."""
    x, before, size = np.random.default_rng(0).normal(size=M), np.zeros(M), 0.0
    x /= np.linalg.norm(x)
    diagonal, beside = list[float](), list[float]()
    for _ in range(min(LANCZOS_STEPS, M)):
        ahead = np.bincount(i, correlations * x[j], M) - size * before
        diagonal.append(float(x @ ahead))
        ahead -= diagonal[-1] * x
        size = float(np.linalg.norm(ahead))
        beside.append(size)
        if size < 1e-12:
            break
        before, x = x, ahead / size
    table = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(table)
    return float(values[0] - beside[-1] * abs(vectors[-1, 0]))
