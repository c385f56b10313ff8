"""How often items are picked together, against XᵀX by numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.test_sparse import dense, some_rows

from cfnade.kernels.buffers import Array
from cfnade.kernels.sparse import cooccurrence

M = 17


def picks(seed: int, *, weighed: bool) -> tuple[Array, Array, Array]:
    """Of 40 people, few enough that some items meet nobody; nobody picks the last item."""
    rng = np.random.default_rng(seed)
    offsets, columns, weights = some_rows(rng, 40, 6)
    columns = (columns + rng.integers(0, M - 7, 40).repeat(np.diff(offsets))).astype(np.int32)
    return offsets, columns, weights if weighed else np.ones_like(weights)


def exact(data: tuple[Array, Array, Array]) -> Array:
    X = dense(*data, M)
    return np.asarray(X.T @ X)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_all_counts_are_a_matrix_product(threads: int, weighed: bool) -> None:
    data = picks(0, weighed=weighed)
    found = cooccurrence(*data, M, threads=threads)
    np.testing.assert_allclose(found, exact(data), rtol=1e-5, atol=1e-6)
    assert not found[-1].any()
    assert (exact(data) == 0).any()
