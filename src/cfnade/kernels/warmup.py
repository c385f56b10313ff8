"""Compile kernels ahead of their use, by groups.

Each group has a function with the smallest work that needs its kernels, and a sentinel: a kernel
that this work calls last. If the sentinel is cached on disk, so is the group. Whoever compiles the
first kernel of a process announces it (jit.py).

Numba compiles one function at a time in a process. So a second process compiles the posteriors and
inference, about half of the work, and may start before the data is read (`compile_in_background`);
this process then reads them from the disk. That saves some 6 s, once per version. While compiling,
the garbage collector pauses: a compiler makes millions of objects, and looking for cycles among
them takes a seventh of the time (18.2 instead of 21.1 s).
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.core.caching import NullCache
from numba.core.registry import cpu_target

from cfnade.kernels import (
    blending,
    column_groups,
    column_passes,
    factor_analysis,
    neighbor_regression,
    neighborhood,
    newton,
    ordinal_cost,
    posterior,
    scoring,
    sparse,
    top_k,
)
from cfnade.kernels.block_sampling import BlockSampler
from cfnade.kernels.edit_distance import EditDistances
from cfnade.kernels.sampling import GroupedBatch, RowSampler

if TYPE_CHECKING:
    from cfnade.kernels.engine import Engine

BACKGROUND = ("posterior", "inference")
"""The groups that a second process compiles; their work follows that of all others."""

_OFFSETS, _COLUMNS = np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32)
_LEVELS, _ROWS = np.zeros(4, np.uint8), np.zeros(1, np.int64)


class KernelGroup(NamedTuple):
    """Kernels that are needed together."""

    work: Callable[[], None]
    sentinel: Any


def missing_groups(*groups: str) -> tuple[str, ...]:
    """Return those groups (of all, if none is named) that have yet to be compiled."""
    return tuple(name for name in groups or GROUPS if not _is_cached(GROUPS[name].sentinel))


def compile_kernels(*groups: str) -> bool:
    """Compile groups (all, if none is named) in single precision. Returns whether any was missing.

    Starts the second process unless it runs already, and waits for it.
    """
    missing = missing_groups(*groups)
    if missing:
        compile_in_background(*missing)
        with paused_collector():
            for name in sorted(missing, key=BACKGROUND.__contains__):
                if name in BACKGROUND:
                    CompileProcess.wait()
                GROUPS[name].work()
    return bool(missing)


def compile_in_background(*groups: str) -> None:
    """Start compiling in a second process, if there is work for two processes and a cache."""
    missing = missing_groups(*groups)
    background = [name for name in missing if name in BACKGROUND]
    worth_it = 0 < len(background) < len(missing) and (os.cpu_count() or 1) > 1
    if worth_it and kernel_cache_folder() is not None:
        CompileProcess.start(*background)


def kernel_cache_folder() -> str | None:
    """The folder of compiled kernels, None if no folder is writable.

    Another machine with the same processor may take its files over.
    """
    path = posterior.lower_products._cache.cache_path
    return None if path is None else str(path)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector inside."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CompileProcess:
    """The second process, if there is one."""

    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, *groups: str) -> None:
        """Start it unless it runs already."""
        if cls.process is not None:
            return
        code = "import gc; gc.disable()\n"  # it ends soon, and has memory enough until then
        code += "from cfnade.kernels.warmup import GROUPS\n"
        code += f"for name in {groups}: GROUPS[name].work()\n"
        code += "import os; os._exit(0)"  # an orderly exit takes half a second
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-c", code]
        with suppress(OSError):  # no process may be started here: this one compiles all
            cls.process = subprocess.Popen(
                command, env=env, stdin=quiet, stdout=quiet, stderr=quiet
            )

    @classmethod
    def wait(cls) -> None:
        """Wait until it ends. If it failed, its work is done here."""
        if cls.process is not None:
            cls.process.wait()
            cls.process = None


def _is_cached(kernel: Any) -> bool:
    """Whether Numba's index of the kernel names code for this machine and these sources."""
    if isinstance(kernel._cache, NullCache):
        return bool(kernel.signatures)  # compiled by this process
    index = kernel._cache._cache_file._load_index()  # empty if sources have changed since
    machine = cpu_target.target_context.codegen().magic_tuple()
    return any(key[1] == machine for key in index)


# -- the smallest work of each group ---------------------------------------------------------------


def _engine() -> Engine:
    from cfnade.kernels.adam import AdamRule
    from cfnade.kernels.engine import Engine  # imports torch, which inference does without
    from cfnade.models.config import CFNADEConfig

    shapes = {"input_table": (2, 2, 1), "output_table": (2, 2, 1), "bias": (2, 2), "c": (1,)}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    config = CFNADEConfig(columns=2, levels=2, hidden=(1,))
    return Engine(config, arrays, dict.fromkeys(arrays, AdamRule()), threads=1)


def _sample() -> GroupedBatch:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = RowSampler(*data, n_columns=2, n_levels=2, rate=(0.5, 1.0), threads=1)
    return sampler.sample(_ROWS, seed=0, step=0)


def _train_nade() -> None:
    """Steps of a CF-NADE alone, beside other components, and on blocks; validation."""
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    blocks = BlockSampler(data, data, columns=1, n_levels=2, rate=(0.5, 1.0), threads=1)
    batch, engine = blocks.sample(_ROWS, seed=0, step=0).user, _engine()
    scores = np.zeros((len(batch.targets.rows), 2), np.float32)
    engine.encode(batch.context)
    engine.add_scores(batch.targets, scores)
    truth = batch.targets.levels, batch.targets.weights
    cost = ordinal_cost.cost_of_scores(scores, *truth, ordinal_weight=1.0, threads=1)
    engine.start_step()
    engine.fit_scores(batch.targets, cost.gradient)
    engine.fit_context(batch.context)
    _score_cells()
    engine.step(_sample())


def _posteriors() -> tuple[Any, Any, Any]:
    u = np.zeros((2, 1), np.float32)
    rows = posterior.RaggedRows(np.array([0, 2]), _COLUMNS[:2], _LEVELS[:2])
    evidence = posterior.Evidence(u, u.copy(), np.zeros((2, 2, 1), np.float32), u[0] + 1, u[0] + 1)
    posterior.lower_products(u, u, evidence.products)
    state = posterior.Posteriors(np.zeros((1, 1, 1), np.float32), u[:1].copy(), u[:1, 0].copy())
    sums = np.zeros((1, 2), np.float32)
    posterior.row_sums(0, 1, rows, evidence, sums)
    posterior.solve_sums(0, 1, sums, evidence, state)
    cells = tuple(np.zeros(1, np.int64) for _ in range(3))
    posterior.leave_one_out(rows, cells, evidence, state.means, state.unknown)
    return rows, evidence, state


def _train_posteriors() -> None:
    """Ridge components beside a CF-NADE, factor analyses, and neighborhoods."""
    rows, evidence, state = _posteriors()
    gradient, prior = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    posterior.posterior_gradients(
        rows, evidence, state, gradient, (state.means, evidence.E, prior.copy())
    )
    factor = np.ones((2, 1), np.float32)
    sums = tuple(np.ones((2, 1), np.float32) for _ in range(3))
    factor_analysis.expectation_step(0, 1, rows[:2], factor[:, 0], (factor, factor), sums)
    factor_analysis.maximization_step(0, 2, sums, prior + 1, prior, (factor, factor.copy()))
    noise = np.zeros((1, 1), np.float32)
    out = noise.copy(), noise.copy(), noise.copy(), np.zeros(1, np.float32)
    vectors, normal = (factor, factor), (prior + 1, prior)
    factor_analysis.gibbs_step(0, 1, rows[:2], factor[:, 0], vectors, normal, noise, out)
    ragged, weights = (_OFFSETS, _COLUMNS), np.zeros(4)
    sparse.cooccurrence(*ragged, np.ones(4, np.float32), 2)
    near = neighborhood.ResidualCovariance(
        np.array([0, 1, 2]), _COLUMNS[1:3].copy(), np.zeros(2), np.ones(2)
    )
    neighborhood.solve_weights(*ragged, np.ones(4), near, weights)
    neighborhood.correct_cells((_ROWS, _ROWS), ragged, weights, near, np.zeros(1))
    neighborhood.correct_row(_COLUMNS[:2].copy(), weights, near, np.zeros(2))
    left_out, residuals = np.zeros(1, np.int64), np.ones((1, 2))
    neighborhood.correct_without_each(
        np.ones(2), _COLUMNS[:2].copy(), left_out, residuals, near, np.zeros(1)
    )
    neighborhood.correct_column(0, ragged, weights, near, np.zeros(2))


def _score_cells() -> None:
    """Validation after an epoch, and a request about many cells."""
    newton.tilt_to_mean(np.zeros((1, 2)), np.arange(2.0), np.full((1, 2), 0.5))
    entries = np.empty(4, np.int32), np.empty(4, np.uint8)
    column_groups.append_entries(_COLUMNS, _COLUMNS, _LEVELS, _OFFSETS[:2].copy(), entries)
    table, state = np.zeros((2, 2, 1), np.float32), np.zeros((1, 1), np.float32)
    ratings = column_groups.take_rows(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    column_groups.lookup_levels(ratings, _ROWS, _ROWS, 2)
    parts = ratings.rows, ratings.columns, ratings.levels
    groups = column_groups.group_by_column(*parts, n_rows=1, n_columns=2, n_levels=2)
    scoring.context_sum(table, groups, shared=True)
    scoring.cell_scores(state, table, table[:, :, 0].copy(), _ROWS, _ROWS, shared=True)


def _infer() -> None:
    """Predictions and top-n lists, of known users and of new ones."""
    _score_cells()
    _posteriors()
    table, bias = np.zeros((2, 2, 1), np.float32), np.zeros((2, 2), np.float32)
    ratings = column_groups.take_rows(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    state = scoring.sum_ratings(ratings, table, shared=True)
    scoring.affine(state, state, state[0])
    scoring.score_cells(state, _ROWS, _ROWS, table, bias, shared=True)
    newton.find_tilts(np.zeros((1, 2)), np.ones(1))
    newton.most_probable(np.zeros((1, 2)), np.zeros((1, 2, 1)), _ROWS, np.ones(1))
    scores = scoring.score_all(state[0], table, bias, shared=True).T[None]
    ends, allowed = np.zeros(2), np.ones((1, 2), bool)
    criterion = top_k.Criterion(ends, 1.0, ends[None], 1)
    for bound in (top_k.mean_levels(scores, ends), top_k.criterion_bounds(scores, criterion)[0]):
        top_k.keep_candidates(bound, bound, 1, allowed)
    EditDistances(["a"]).edits("a", 1)
    interactions = top_k.log_softmax(np.zeros((1, 2), np.float32))
    blending.add_standardized(interactions, 1.0, interactions.copy())
    least = top_k.nth_largest(interactions, 1)
    top_k.cells_between(interactions, least, least, expected=1)


def _train_interactions() -> None:
    weights, table = np.ones(4, np.float32), np.zeros((2, 1), np.float32)
    data, rows = (_OFFSETS, _COLUMNS, weights), len(_OFFSETS) - 1
    scores, hits = np.zeros((rows, 2), np.float32), np.zeros((rows, 1), np.int8)
    sparse.sum_rows(*data, table)
    sparse.add_entries(*data, *data)
    sparse.solve_ridge_rows(*data, table, np.ones(1, np.float32), np.ones(rows))
    sparse.cooccurrence(*data, 2)
    lines = neighbor_regression.gram_lines(*data, 2, 1)
    neighbor_regression.neighbor_regressions(*lines, np.ones(2), 1)
    lists = blending.top_items(scores, *data[:2], 1)
    blending.relevance(lists, *data[:2])
    blending.merge_lists(lists[None], 1, 2)
    blending.blended_gains(np.zeros((1, rows, 1), np.float32), hits, np.ones(1), np.ones(1))


def _share_posteriors() -> None:
    """Ridge components and factor analyses whose columns several processes share."""
    rows, _, state = _posteriors()
    posterior.solve_rows(0, 1, state.factors, state.means)
    table, residuals = np.ones((2, 1), np.float32), np.ones(4, np.float32)
    sums = np.ones((1, 2), np.float32)
    factor_analysis.residual_sums(0, rows[:2], residuals, (table, table), sums)
    factor_analysis.row_moments(0, 1, sums, np.ones(1, np.float32))
    into = table.copy(), table.copy(), table.copy()
    factor_analysis.add_moments(0, rows[:2], residuals, sums, into)


GROUPS = {
    "nade": KernelGroup(_train_nade, column_passes.update_output_table),
    "posterior": KernelGroup(_train_posteriors, neighborhood.correct_column),
    "inference": KernelGroup(_infer, top_k._between),
    "implicit": KernelGroup(_train_interactions, blending._blended_gains),
    "distributed": KernelGroup(_share_posteriors, factor_analysis.add_moments),
}
"""Training a CF-NADE, closed-form components, inference, interaction models, and
training on several processes."""
