"""Compile kernels ahead of their use, and announce it.

Numba compiles one function at a time in a process. So a second process compiles the kernels of
posteriors and inference, about half of the work, and may start before the data is read
(`compile_in_background`); this process then reads them from the disk. That saves some 6 s, once per
version.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.core.caching import NullCache
from numba.core.registry import cpu_target

from cfnade.kernels import (
    blending,
    column_groups,
    column_passes,
    factor_analysis,
    fused_hidden_layer,
    neighbor_regression,
    neighborhood,
    newton,
    ordinal_cost,
    posterior,
    row_splits,
    sampling,
    scoring,
    sparse,
    spelling,
    top_k,
)
from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import COMPILATION_MESSAGE, announcement
from cfnade.kernels.row_splits import WholeRows
from cfnade.kernels.sampling import (
    BlockPart,
    BlockSampler,
    RowSampler,
    _split_block,
    _split_block_part,
)
from cfnade.kernels.scoring import cell_scores, context_sum
from cfnade.kernels.spelling import Spellings


class CacheState(NamedTuple):
    """How many kernels are kept on disk for this machine, and how many would be compiled."""

    ready: int
    missing: int


def cache_state(*tasks: str) -> CacheState:
    """Look at the disk; nothing is compiled. tasks are some of TASKS, all if none is named."""
    ready = [_is_cached(kernel) for kernel in _kernels(tasks)]
    return CacheState(sum(ready), len(ready) - sum(ready))


def compile_kernels(notify: Callable[[str], None] | None = None, *tasks: str) -> bool:
    """Compile, in single precision, what the tasks need (see TASKS; all if none is named).

    If anything has to be, notify gets MESSAGE first. Returns whether it had to.
    """
    missing = compile_in_background(notify, *tasks)
    if missing:
        with paused_collector():
            # They wait for the other process.
            late = ("ridge", POSTERIORS, NEWCOMERS, LISTED, "requests")
            for task in sorted(_named(tasks), key=lambda task: task in late):
                TASKS[task][0]()
    return missing


@contextmanager
def paused_collector() -> Iterator[None]:
    """A compiler makes millions of objects; to look for cycles among them takes a seventh of all
    its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def compile_in_background(notify: Callable[[str], None] | None, *tasks: str) -> bool:
    """Say that something has to be compiled, if so, and begin with what another process can do."""
    missing = cache_state(*tasks).missing
    if missing and notify is not None and not announcement.announced:
        notify(COMPILATION_MESSAGE)
        announcement.announced = True
    if "ridge" in tasks and (os.cpu_count() or 1) > 1 and kernel_cache_folder() is not None:
        others = (POSTERIORS, NEWCOMERS, *([LISTED] if PICKS in tasks else []))
        there = _kernels(others)
        parts = there, _kernels(tasks) - there
        if (
            min(sum(not _is_cached(one) for one in part) for part in parts)
            >= MIN_KERNELS_PER_PROCESS
        ):
            CompileProcess.start(*others)
    return missing > 0


MIN_KERNELS_PER_PROCESS = 3
"""Kernels on either side for which a second process is started: it takes seconds by itself."""


def kernel_cache_folder() -> str | None:
    """Where they are kept, None if no folder is writable. Another machine with the same processor
    may take these files over."""
    path = factor_analysis.expectation_step._cache.cache_path
    return None if path is None else str(path)


def _kernels(tasks: tuple[str, ...]) -> set[Any]:
    return {kernel for task in _named(tasks) for kernel in TASKS[task][1]}


def _named(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks that are meant."""
    return (*tasks, LISTED) if PICKS in tasks else tasks or tuple(TASKS)


def _is_cached(kernel: Any) -> bool:
    """Whether Numba's index of the kernel names code for this machine and this source."""
    if isinstance(kernel._cache, NullCache):
        return bool(kernel.signatures)  # compiled by this process
    index = kernel._cache._cache_file._load_index()  # empty if sources have changed since
    machine = cpu_target.target_context.codegen().magic_tuple()
    return any(key[1] == machine for key in index)


if TYPE_CHECKING:
    from cfnade.kernels.engine import Engine

POSTERIORS, NEWCOMERS, LISTED = "posteriors", "newcomers", "listed picks"
"""The tasks whose kernels a second process compiles, the last if picks are learnt; their work
follows that of all others."""

PICKS = "picks"
"""Whoever asks for this gets lists of them, too."""

_OFFSETS, _COLUMNS = np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32)
_LEVELS, _ROWS = np.zeros(4, np.uint8), np.zeros(1, np.int64)


def _engine(*, factored: bool = False) -> Engine:
    """Torch comes with it, and whoever only asks what is compiled needs neither."""
    import torch

    from cfnade.kernels.adam import AdamRule
    from cfnade.kernels.engine import Engine
    from cfnade.kernels.network import Network

    table = torch.zeros(2, 2, 1)
    factors = (torch.zeros(1, 1), torch.zeros(1, 1)) if factored else ()
    network = Network(table, table.clone(), torch.zeros(2, 2), torch.zeros(1), *factors)
    return Engine(network, dict.fromkeys(network.named(), AdamRule()), threads=1)


def _train_on_rows() -> None:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = RowSampler(*data, n_columns=2, n_levels=2, threads=1)
    _engine().step(sampler.sample(_ROWS, seed=0, step=0))
    _score_cells()


def _train_factors() -> None:
    """What a hidden layer between factors needs besides."""
    engine = _engine(factored=True)
    sampler = RowSampler(_OFFSETS, _COLUMNS, _LEVELS, n_columns=2, n_levels=2, threads=1)
    batch = sampler.sample(_ROWS, seed=0, step=0)
    engine.encode(batch.context)
    engine.start_step()
    engine.fit_context(batch.context)


def _draw_for_ranks() -> None:
    data, whole = (_OFFSETS, _COLUMNS, _LEVELS), WholeRows(_COLUMNS, np.full(2, 2, np.int32))
    sampler = RowSampler(*data, n_columns=2, n_levels=2, threads=1, whole=whole)
    sampler.sample(_ROWS, seed=0, step=0)


def _draw_blocks_for_ranks() -> None:
    data, whole = (_OFFSETS, _COLUMNS, _LEVELS), WholeRows(_COLUMNS, np.full(2, 2, np.int32))
    part = BlockPart(_COLUMNS[:2], whole)
    how: Any = {"columns": 1, "n_levels": 2, "rate": (0.5, 1.0), "threads": 1}
    BlockSampler(data, data, parts=(part, part), **how).sample(_ROWS, seed=0, step=0)


def _share_posteriors() -> None:
    """What a ridge part does where ranks share its columns."""
    rows, evidence, state = _posteriors()
    sums, one = np.ones((1, 2), np.float32), np.ones(1, np.float32)
    posterior.row_sums(rows, evidence, sums)
    posterior.solve_sums(0, 1, sums, evidence, state)
    posterior.solve_rows(0, 1, state.factors, state.means)
    table, residuals = np.ones((2, 1), np.float32), np.ones(4, np.float32)
    factor_analysis.residual_sums(0, rows[:2], residuals, (table, table), sums)
    factor_analysis.row_moments(0, 1, sums, one)
    into = table.copy(), table.copy(), table.copy()
    factor_analysis.add_moments(0, rows[:2], residuals, sums, into)


def _train_on_blocks() -> None:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = BlockSampler(data, data, columns=1, n_levels=2, rate=(0.5, 1.0), threads=1)
    _step_of_several(sampler.sample(_ROWS, seed=0, step=0).user)


def _step_of_several(batch: sampling.GroupedBatch) -> None:
    """A CF-NADE's part in the step of a member with more than one side."""
    engine, targets = _engine(), batch.targets
    if not len(targets.order):
        targets = targets._replace(order=np.arange(len(targets.rows)))
    scores = np.zeros((len(targets.rows), 2), np.float32)
    engine.encode(batch.context)
    engine.add_scores(targets, scores)
    cost = ordinal_cost.cost_of_scores(
        scores, targets.levels, targets.weights, ordinal_weight=1.0, threads=1
    )
    engine.start_step()
    engine.fit_scores(targets, cost.slopes)
    engine.fit_context(batch.context)
    _score_cells()


def _train_with_ridge() -> None:
    """Two sides on the same rows, one of them with posteriors."""
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = RowSampler(*data, n_columns=2, n_levels=2, rate=(0.5, 1.0), threads=1)
    _step_of_several(sampler.sample(_ROWS, seed=0, step=0))
    _learn_posteriors()


def _learn_posteriors() -> None:
    """What factor analyses need, and a ridge part beside the step of several sides."""
    CompileProcess.wait()
    _tilt()  # first of all, as others need it soon
    rows, evidence, state = _posteriors()
    one, cells = np.zeros((1, 2), np.float32), (np.array([0, 1, 1]), _ROWS.astype(np.int32), _ROWS)
    V, b = np.zeros((2, 2, 2), np.float32), np.zeros((2, 2), np.float32)
    posterior.add_state_scores(cells, one, V, b, one.copy())
    posterior.state_gradients(cells, one, V, one, (V, b, one))
    slopes = np.zeros((1, 1), np.float32), evidence.E
    posterior.posterior_gradients(
        rows, evidence, state, slopes[0], (state.means, slopes[1], b[0, :1])
    )
    factor = np.ones((2, 1), np.float32)
    sums = tuple(np.ones((2, 1), np.float32) for _ in range(3))
    factor_analysis.expectation_step(0, 1, rows[:2], factor[:, 0], (factor, factor), sums)
    factor_analysis.maximization_step(0, 2, sums, b[0, :1] + 1, b[0, :1], (factor, factor.copy()))
    prior, noise = (b[0, :1] + 1, b[0, :1]), np.zeros((1, 1), np.float32)
    out = noise.copy(), noise.copy(), noise.copy(), np.zeros(1, np.float32)
    factor_analysis.gibbs_step(0, 1, rows[:2], factor[:, 0], (factor, factor), prior, noise, out)
    asked = tuple(np.zeros(1, np.int64) for _ in range(3))
    posterior.leave_one_out(rows, asked, evidence, state.means, state.unknown)


def _tilt() -> None:
    newton.tilt_to_mean(np.zeros((1, 2)), np.arange(2.0), np.full((1, 2), 0.5))


def _ask_neighbours() -> None:
    """What a neighbourhood is made of, and asked with."""
    near = neighborhood.ResidualCovariance(
        np.array([0, 1, 2]), _COLUMNS[1:3].copy(), np.zeros(2), np.ones(2)
    )
    ragged, weights = (_OFFSETS, _COLUMNS), np.zeros(4)
    neighborhood.solve_weights(*ragged, np.ones(4), near, weights)
    neighborhood.correct_cells((_ROWS, _ROWS), ragged, weights, near, np.zeros(1))
    neighborhood.correct_row(_COLUMNS[:2].copy(), weights, near, np.zeros(2))
    neighborhood.correct_column(0, ragged, weights, near, np.zeros(2))
    sparse.cooccurrence(*ragged, np.ones(4, np.float32), 2)


def _posteriors() -> tuple[Any, Any, Any]:
    """What training and requests about a ridge part have in common."""
    u = np.zeros((2, 1), np.float32)
    rows = posterior.RaggedRows(np.array([0, 2]), _COLUMNS[:2], _LEVELS[:2])
    evidence = posterior.Evidence(u, u.copy(), np.zeros((2, 2, 1), np.float32), u[0] + 1, u[0] + 1)
    posterior.lower_products(u, u, evidence.products)
    state = posterior.Posteriors(np.zeros((1, 1, 1), np.float32), u[:1].copy(), u[:1, 0].copy())
    posterior.row_posteriors(0, 1, rows, evidence, state)
    return rows, evidence, state


def _score_cells() -> None:
    """What validation does after an epoch, and a request about many cells."""
    _tilt()
    entries = np.empty(4, np.int32), np.empty(4, np.uint8)
    column_groups.append_entries(_COLUMNS, _COLUMNS, _LEVELS, _OFFSETS[:2].copy(), entries)
    table, state = np.zeros((2, 2, 1), np.float32), np.zeros((1, 1), np.float32)
    ratings = column_groups.take_rows(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    column_groups.lookup_levels(ratings, _ROWS, _ROWS, 2)
    parts = ratings.rows, ratings.columns, ratings.levels
    context_sum(
        table, column_groups.group_by_column(*parts, n_rows=1, n_columns=2, n_levels=2), shared=True
    )
    cell_scores(state, table, table[:, :, 0].copy(), _ROWS, _ROWS, shared=True)


def _meet_newcomers() -> None:
    """What is asked about people whom training did not know, by validation and by requests."""
    CompileProcess.wait()
    table, bias = np.zeros((2, 2, 1), np.float32), np.zeros((2, 2), np.float32)
    ratings = column_groups.take_rows(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    state: Array = scoring.sum_ratings(ratings, table, shared=True)
    scoring.affine(state, state, state[0])
    scoring.score_cells(state, _ROWS, _ROWS, table, bias, shared=True)
    newton.most_probable(np.zeros((1, 2)), np.zeros((1, 2, 1)), _ROWS, np.ones(1))


def _answer_requests() -> None:
    _meet_newcomers()
    table, bias = np.zeros((2, 2, 1), np.float32), np.zeros((2, 2), np.float32)
    state = np.zeros((1, 1), np.float32)
    scores = scoring.score_all(state[0], table, bias, shared=True).T[None]
    ends, allowed = np.zeros(2), np.ones((1, 2), bool)
    criterion = top_k.Criterion(top_k.QUANTILE, ends, 1.0, ends[None], 1, 0.5, np.zeros(3))
    for bound in (top_k.mean_levels(scores, ends), top_k.criterion_bounds(scores, criterion)[0]):
        top_k.keep_candidates(bound, bound, 1, allowed)
    Spellings(["a"]).edits("a", 1)
    rows, evidence, known = _posteriors()
    cells = tuple(np.zeros(1, np.int64) for _ in range(3))
    posterior.leave_one_out(rows, cells, evidence, known.means, known.unknown)
    _score_cells()


def _learn_picks() -> None:
    """All that an interaction model is made of; how it is asked is a task of its own."""
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


def _list_picks() -> None:
    """How lists are made of a choice's scores; a part of it, so that two processes have the same
    work."""
    CompileProcess.wait()
    scores = top_k.log_softmax(np.zeros((1, 2), np.float32))
    least = top_k.nth_largest(scores, 1)
    top_k.cells_between(scores, least, least, expected=1)
    blending.add_standardized(scores, 1.0, scores.copy())


_CELLS = (
    column_groups._append_entries,
    column_groups._counting_sort,
    column_groups._lookup_levels,
    column_passes.sum_context,
    column_passes.add_scores,
)
_SCORING = (newton._tilt, *_CELLS)
_DRAWING = (row_splits.scatter,)
_NEWCOMERS = (scoring._add_ratings, scoring._affine, scoring._score_cells, newton._minimize)
_LISTS = (top_k._means, top_k._criterion_bounds, top_k._keep_candidates, spelling._edits)
_FITTING = (column_passes.update_input_table, column_passes.update_flat)

_SEVERAL = (
    ordinal_cost._score_cost,
    column_passes.update_output_table_from_gradient,
    *_DRAWING,
    *_FITTING,
    *_SCORING,
)
_POSTERIORS = (posterior.lower_products, posterior.row_posteriors)
_SLOPES = (posterior.add_state_scores, posterior.state_gradients, posterior.posterior_gradients)
_START = (
    factor_analysis.expectation_step,
    factor_analysis.maximization_step,
    factor_analysis.gibbs_step,
)
_LEARNING = (*_POSTERIORS, *_SLOPES, *_START, posterior.leave_one_out, newton._tilt)
_SHARED = (
    *(posterior.row_sums, posterior.solve_sums, posterior.solve_rows),
    *(factor_analysis.residual_sums, factor_analysis.row_moments, factor_analysis.add_moments),
)
_SUMS = (sparse._add_rows, sparse._transpose, sparse._add_entries)
_LIKELIEST = (top_k._log_softmax, top_k._nth_largest, top_k._between)
_FACTORS = (
    fused_hidden_layer.pack_weights,
    fused_hidden_layer.hidden_forward,
    fused_hidden_layer.hidden_backward,
    fused_hidden_layer.hidden_update,
)
_NEAR = (
    neighborhood.solve_weights,
    neighborhood.correct_cells,
    neighborhood.correct_row,
    neighborhood.correct_column,
)
_TOGETHER = (
    sparse._cooccurrence_rows,
    neighbor_regression._gram_lines,
    neighbor_regression._regressions,
)
_SELECTION = (
    blending._top_items,
    blending._relevance,
    blending._merge_lists,
    blending._blended_gains,
)

TASKS: dict[str, tuple[Callable[[], None], tuple[Any, ...]]] = {
    "rows": (
        _train_on_rows,
        (row_splits.split_rows, column_passes.update_output_table, *_DRAWING, *_FITTING, *_SCORING),
    ),
    "factors": (_train_factors, (*_FACTORS, column_passes.update_input_table)),
    "ridge": (_train_with_ridge, (row_splits.split_rows, *_SEVERAL, *_LEARNING)),
    POSTERIORS: (_learn_posteriors, _LEARNING),
    "near": (_ask_neighbours, (*_NEAR, sparse._cooccurrence_rows)),
    "blocks": (_train_on_blocks, (_split_block, *_SEVERAL)),
    NEWCOMERS: (_meet_newcomers, _NEWCOMERS),
    "requests": (
        _answer_requests,
        (
            posterior.leave_one_out,
            scoring._score_all,
            *_NEWCOMERS,
            *_POSTERIORS,
            *_LISTS,
            *_SCORING,
        ),
    ),
    PICKS: (_learn_picks, (sparse._solve_ridge_rows, *_SUMS, *_TOGETHER, *_SELECTION)),
    LISTED: (_list_picks, (*_LIKELIEST, blending._add_standardized)),
    "ranks": (_draw_for_ranks, (row_splits.split_rows_part, *_DRAWING)),
    "blocks on ranks": (_draw_blocks_for_ranks, (_split_block_part, *_DRAWING)),
    "ridge on ranks": (_share_posteriors, (*_SHARED, *_POSTERIORS)),
}
"""What kernels are for: training a CF-NADE alone on its rows, with factors, with a ridge part, its
posteriors, a neighbourhood, on blocks of users and items; people whom training did not know;
answering requests; learning what people pick, and listing it; drawing by ranks, and their ridge
part."""


class CompileProcess:
    """The one there is, if any."""

    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, *tasks: str) -> None:
        """Unless there is one already."""
        if cls.process is not None:
            return
        code = "import gc; gc.disable()\n"  # it ends soon, and has memory enough until then
        code += (
            f"from cfnade.kernels.warmup import compile_kernels; compile_kernels(None, *{tasks})\n"
        )
        code += "import os; os._exit(0)"  # to take all of that down again takes half a second
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-c", code]
        cls.process = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)

    @classmethod
    def wait(cls) -> None:
        """If it fails, its work is done here."""
        if cls.process is not None:
            cls.process.wait()
            cls.process = None
