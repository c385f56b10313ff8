"""EASE (Steck 2019): each item as a weighted sum of all others, by ridge regression.

With G = XᵀX + λI and P = G⁻¹ the weights are B = I − P / diag(P): column j is item j's regression
on the others. Closed form: nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numba import njit

from cfnade.data.csr import row_offsets, stable_order
from cfnade.exceptions import ModelError
from cfnade_baselines.base import Positive
from cfnade_baselines.libraries import blas_threads, library
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores

_EXACT = 6000
"""Up to so many items the inverse is of doubles: more would take much memory and time."""
_ROWS = 512

Matrix = npt.NDArray[Any]


@dataclass(frozen=True)
class FittedEASE(FittedLists):
    """Weights, zero on the diagonal."""

    weights: Scores  # (M, M)

    def scores(self, given: Likes) -> Scores:
        """Sums over what is given. Returns (people, M)."""
        return np.asarray(given.matrix() @ self.weights)


@dataclass(frozen=True, kw_only=True)
class EASE(ListRival[FittedEASE]):
    """Embarrassingly shallow autoencoder."""

    name: ClassVar[str] = "ease"

    regularisation: Positive = 500.0
    """λ, what weights are pulled to 0 with."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedEASE:
        """Solve; the seed makes no difference."""
        del seed
        kind = np.float64 if likes.n_items <= _EXACT else np.float32
        matrix = gram(likes, kind)
        matrix[np.diag_indices_from(matrix)] += kind(self.regularisation)
        with blas_threads(threads, self.name):
            invert(matrix)
        matrix /= -np.diag(matrix).copy()
        matrix[np.diag_indices_from(matrix)] = 0
        return FittedEASE(matrix.astype(np.float32, copy=False))


def gram(likes: Likes, kind: type) -> Matrix:
    """How many people like both items, in the upper half. Returns (M, M)."""
    entries = stable_order(likes.columns, likes.n_items)
    if entries is None:
        entries = np.arange(len(likes.columns))
    out: Matrix = np.zeros((likes.n_items, likes.n_items), kind)
    starts = row_offsets(likes.columns, likes.n_items)
    _count_together(starts, entries, likes.rows(), likes.offsets, likes.columns, out)
    return out


@njit(nogil=True, cache=True)
def _count_together(
    starts: Any, entries: Any, rows: Any, offsets: Any, columns: Any, out: Any
) -> None:
    """out[i, j] += the people who like i and j, for j from i on. Fills (M, M), the upper half.

    Item i has the entries from starts[i] to starts[i+1]: places in `columns`, each with its row.
    One row of `out` is filled at a time, so that it stays in the cache.
    """
    for i in range(len(starts) - 1):
        row = out[i]
        for p in range(starts[i], starts[i + 1]):
            place = entries[p]
            for q in range(place, offsets[rows[place] + 1]):
                row[columns[q]] += 1


def invert(matrix: Matrix) -> None:
    """The inverse of a positive definite matrix of which the upper half is there. In place."""
    lapack = library("scipy.linalg.lapack", "scipy", "ease")
    factor, inverse = lapack.get_lapack_funcs(("potrf", "potri"), (matrix,))
    # LAPACK goes by columns: our upper half is its lower one, and nothing needs to be copied.
    turned, failed = factor(matrix.T, lower=1, clean=0, overwrite_a=1)
    if not failed:
        turned, failed = inverse(turned, lower=1, overwrite_c=1)
    if failed:
        raise ModelError("ease: the matrix cannot be inverted; give a larger regularisation")
    if not np.may_share_memory(turned, matrix):
        matrix[:] = turned.T
    for start in range(0, len(matrix), _ROWS):
        end = min(start + _ROWS, len(matrix))
        square = np.triu(matrix[start:end, start:end])
        matrix[start:end, start:end] = square + np.triu(square, 1).T
        matrix[end:, start:end] = matrix[start:end, end:].T
