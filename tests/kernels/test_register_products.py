"""The inner loops of a tile against numpy, both for wide registers and for narrow ones."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import njit

from cfnade.kernels import jit, register_products
from cfnade.kernels.buffers import Array, block_layout, scratch_buffer, tile_scratch
from cfnade.kernels.simd import data_pointer

LANES = 16


def module_copy(wide: bool) -> ModuleType:
    """The module as it is on a machine with, or without, registers of 16 numbers."""
    if wide == jit.HAS_AVX512:
        return register_products
    name, path = "tests.kernels.other_register_products", str(register_products.__file__)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    jit.HAS_AVX512 = wide
    try:
        spec.loader.exec_module(module)
    finally:
        jit.HAS_AVX512 = not wide
    return module


@pytest.fixture(scope="module", params=[False, True], ids=["narrow", "wide"])
def loops(request: pytest.FixtureRequest) -> Any:
    """Scores, gradient of the block and gradient of the states of one tile."""
    module = module_copy(request.param)
    tile_scores, PrefetchBlock = module.tile_scores, module.PrefetchBlock
    add_block_gradient, add_state_gradient = module.add_block_gradient, module.add_state_gradient

    @njit
    def run(
        block: Any, slopes: Any, begins: Any, states: Any, layout: Any, memory: Any, d_states: Any
    ) -> Any:
        scratch, count = tile_scratch(memory, layout), len(begins)
        for i in range(len(block)):
            scratch.block[i], scratch.d_block[i] = block[i], 1.0
        for i in range(len(slopes)):
            scratch.gradient[i] = slopes[i]
        for t in range(count):
            scratch.row_starts[t] = begins[t]
        soon = PrefetchBlock(scratch.block, layout.levels)
        tile_scores(data_pointer(states), count, layout, scratch, soon)
        add_block_gradient(data_pointer(states), count, layout, scratch, soon)
        add_state_gradient(data_pointer(d_states), count, layout, scratch, soon)
        scores, d_block = np.empty(len(slopes)), np.empty(len(block))
        for i in range(len(slopes)):
            scores[i] = scratch.scores[i]
        for i in range(len(block)):
            d_block[i] = scratch.d_block[i]
        return scores, d_block

    return run


@pytest.mark.parametrize("count", [1, 3, 4, 15, 16])
@pytest.mark.parametrize(("levels", "width"), [(2, 16), (5, 48), (7, 64), (10, 512), (11, 144)])
def test_a_tile_is_three_products(loops: Any, levels: int, width: int, count: int) -> None:
    rng = np.random.default_rng(width + count)
    layout = block_layout(levels, width)
    block, slopes = rng.normal(size=(levels, width)), rng.normal(size=(levels, LANES))
    states = rng.normal(size=(20, layout.row_stride))
    rows = rng.integers(0, 20, count)  # a row may come twice

    def flat(array: Array) -> Array:
        return array.astype(np.float32).reshape(-1)

    d_states = np.ones(20 * layout.row_stride, np.float32)
    memory = scratch_buffer(np.float32, layout)
    arguments = flat(block), flat(slopes), rows * layout.row_stride, flat(states), layout, memory
    scores, d_block = loops(*arguments, d_states)
    chosen, used = states[rows, :width], slopes[:, :count]
    got = scores.reshape(levels, LANES)[:, :count]
    np.testing.assert_allclose(got, block @ chosen.T, rtol=1e-4, atol=1e-4)
    got = d_block.reshape(levels, width)
    np.testing.assert_allclose(got, 1 + used @ chosen, rtol=1e-4, atol=1e-4)
    expected = np.ones((20, layout.row_stride))
    np.add.at(expected[:, :width], rows, used.T @ block)
    np.testing.assert_allclose(d_states.reshape(20, -1), expected, rtol=1e-4, atol=1e-4)
