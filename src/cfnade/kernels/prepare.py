"""Kernels are compiled on first use and kept on disk; whoever waits for that should be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numba.core.registry import cpu_target

from cfnade.kernels import bounds, costing, drawing, grouping, newton, passes, request, spelling
from cfnade.kernels.adam import Rule
from cfnade.kernels.block_drawing import BlockSampler, _mark_block
from cfnade.kernels.drawing import Sampler
from cfnade.kernels.engine import Engine
from cfnade.kernels.forward import cell_scores, context_sum
from cfnade.kernels.memory import Array
from cfnade.kernels.network import Network
from cfnade.kernels.spelling import Spellings

MESSAGE = "compiling kernels (once)…"


class CacheState(NamedTuple):
    """How many kernels are kept on disk for this machine, and how many would be compiled."""

    ready: int
    missing: int


def cache_state(*tasks: str) -> CacheState:
    """Look at the disk; nothing is compiled. tasks are some of TASKS, all if none is named."""
    ready = [_is_kept(kernel) for kernel in _kernels(tasks)]
    return CacheState(sum(ready), len(ready) - sum(ready))


def prepare(notify: Callable[[str], None] | None = None, *tasks: str) -> bool:
    """Compile, in single precision, what the tasks need (see TASKS; all if none is named).

    If anything has to be, notify gets MESSAGE first. Returns whether it had to.
    """
    missing = cache_state(*tasks).missing > 0
    if missing and notify is not None:
        notify(MESSAGE)
    for task in tasks or TASKS:
        TASKS[task][0]()
    return missing


def _kernels(tasks: tuple[str, ...]) -> set[Any]:
    return {kernel for task in tasks or TASKS for kernel in TASKS[task][1]}


def _is_kept(kernel: Any) -> bool:
    """Whether Numba's index of the kernel names code for this machine and this source."""
    index = kernel._cache._cache_file._load_index()  # empty if sources have changed since
    machine = cpu_target.target_context.codegen().magic_tuple()
    return any(key[1] == machine for key in index)


# -- the smallest work of each kind ---------------------------------------------------------------

_OFFSETS, _COLUMNS = np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32)
_LEVELS, _ROWS = np.zeros(4, np.uint8), np.zeros(1, np.int64)


def _engine() -> Engine:
    table = torch.zeros(2, 2, 1)
    network = Network(table, table.clone(), torch.zeros(2, 2), torch.zeros(1))
    return Engine(network, dict.fromkeys(network.named(), Rule()), threads=1)


def _train_on_rows() -> None:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = Sampler(*data, n_columns=2, n_levels=2, threads=1)
    _engine().step(sampler.draw(_ROWS, seed=0, step=0))
    _score_cells()


def _train_on_blocks() -> None:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = BlockSampler(data, data, columns=1, n_levels=2, rate=(0.5, 1.0), threads=1)
    block, engine = sampler.draw(_ROWS, seed=0, step=0), _engine()
    engine.encode(block.user.context)
    scores = np.zeros((block.n_targets, 2), np.float32)
    engine.add_scores(block.user.targets, scores)
    targets = block.user.targets
    cost = costing.cost_of(scores, targets.levels, targets.weights, ordinal_weight=1.0, threads=1)
    engine.begin()
    engine.fit_scores(block.user.targets, cost.slopes)
    engine.fit_context(block.user.context)
    _score_cells()


def _score_cells() -> None:
    """What validation does after an epoch, and a request about many cells."""
    table = torch.zeros(2, 2, 1)
    ratings = grouping.ratings_of(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    grouping.levels_of(ratings, _ROWS, _ROWS, 2)
    parts = ratings.rows, ratings.columns, ratings.levels
    context_sum(table, grouping.group(*parts, size=1, n_columns=2, n_levels=2), shared=True)
    cell_scores(torch.zeros(1, 1), table, torch.zeros(2, 2), _ROWS, _ROWS, shared=True)


def _answer_requests() -> None:
    table, bias = np.zeros((2, 2, 1), np.float32), np.zeros((2, 2), np.float32)
    state: Array = request.sum_ratings(_COLUMNS, _LEVELS, table, shared=True)[None]
    request.affine(state, state, state[0])
    scores = request.score_all(state[0], table, bias, shared=True)
    request.score_cells(state, _ROWS, _ROWS, table, bias, shared=True)
    ends = np.zeros(2)
    for kind in (bounds.MEAN, bounds.QUANTILE):
        criterion = bounds.Criterion(kind, ends, 1.0, ends, 1, 0.5, np.zeros(3))
        bounds.bounds(scores, criterion)
    newton.most_probable(np.zeros((1, 2)), np.zeros((1, 2, 1)), _ROWS, np.ones(1))
    Spellings(["a"]).edits("a", 1)
    _score_cells()


_SCORING = (grouping._sort, grouping._find, passes.sum_context, passes.add_scores)
_DRAWING = (drawing._cursors, drawing._scatter)
_ROW = (request._add_ratings, request._affine, request._score_cells, request._score_all)
_LISTS = (bounds._mean_bounds, bounds._calibrated_bounds, spelling._edits)
_FITTING = (passes.context_step, passes.flat_step)

TASKS: dict[str, tuple[Callable[[], None], tuple[Any, ...]]] = {
    "rows": (_train_on_rows, (drawing._mark, passes.target_step, *_DRAWING, *_FITTING, *_SCORING)),
    "blocks": (
        _train_on_blocks,
        (_mark_block, costing._cost_of_scores, passes.score_step, *_DRAWING, *_FITTING, *_SCORING),
    ),
    "requests": (_answer_requests, (newton._descend, *_ROW, *_LISTS, *_SCORING)),
}
"""What kernels are for: training one side on its rows, both on blocks, answering requests."""
