"""What kernels are for: tasks with the smallest work of each, and the kernels that it compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade.kernels import (
    bounds,
    conjugate,
    cooccurrence,
    costing,
    counting_sort,
    dense,
    drawing,
    grouping,
    likeliest,
    marking,
    mean_tilt,
    nearness,
    neighbor_regression,
    newton,
    passes,
    posterior,
    ragged_sums,
    request,
    scattering,
    shared_posterior,
    spelling,
    standardize,
    top_items,
    vector_draws,
)
from cfnade.kernels.block_drawing import BlockPart, BlockSampler, _mark_block, _mark_block_part
from cfnade.kernels.drawing import Sampler
from cfnade.kernels.forward import cell_scores, context_sum
from cfnade.kernels.marking import WholeRows
from cfnade.kernels.memory import Array
from cfnade.kernels.second_process import SecondProcess
from cfnade.kernels.spelling import Spellings

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

    from cfnade.kernels.adam import Rule
    from cfnade.kernels.engine import Engine
    from cfnade.kernels.network import Network

    table = torch.zeros(2, 2, 1)
    factors = (torch.zeros(1, 1), torch.zeros(1, 1)) if factored else ()
    network = Network(table, table.clone(), torch.zeros(2, 2), torch.zeros(1), *factors)
    return Engine(network, dict.fromkeys(network.named(), Rule()), threads=1)


def _train_on_rows() -> None:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = Sampler(*data, n_columns=2, n_levels=2, threads=1)
    _engine().step(sampler.draw(_ROWS, seed=0, step=0))
    _score_cells()


def _train_factors() -> None:
    """What a hidden layer between factors needs besides."""
    engine = _engine(factored=True)
    sampler = Sampler(_OFFSETS, _COLUMNS, _LEVELS, n_columns=2, n_levels=2, threads=1)
    batch = sampler.draw(_ROWS, seed=0, step=0)
    engine.encode(batch.context)
    engine.begin()
    engine.fit_context(batch.context)


def _draw_for_ranks() -> None:
    data, whole = (_OFFSETS, _COLUMNS, _LEVELS), WholeRows(_COLUMNS, np.full(2, 2, np.int32))
    sampler = Sampler(*data, n_columns=2, n_levels=2, threads=1, whole=whole)
    sampler.draw(_ROWS, seed=0, step=0)


def _draw_blocks_for_ranks() -> None:
    data, whole = (_OFFSETS, _COLUMNS, _LEVELS), WholeRows(_COLUMNS, np.full(2, 2, np.int32))
    part = BlockPart(_COLUMNS[:2], whole)
    how: Any = {"columns": 1, "n_levels": 2, "rate": (0.5, 1.0), "threads": 1}
    BlockSampler(data, data, parts=(part, part), **how).draw(_ROWS, seed=0, step=0)


def _share_posteriors() -> None:
    """What a ridge part does where ranks share its columns."""
    rows, evidence, state = _posteriors()
    sums, one = np.ones((1, 2), np.float32), np.ones(1, np.float32)
    shared_posterior.row_sums(rows, evidence, sums)
    shared_posterior.solve_sums(0, 1, sums, evidence, state)
    shared_posterior.solve_rows(0, 1, state.factors, state.means)
    table, residuals = np.ones((2, 1), np.float32), np.ones(4, np.float32)
    shared_posterior.residual_sums(0, rows[:2], residuals, (table, table), sums)
    shared_posterior.row_moments(0, 1, sums, one)
    into = table.copy(), table.copy(), table.copy()
    shared_posterior.add_moments(0, rows[:2], residuals, sums, into)


def _train_on_blocks() -> None:
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = BlockSampler(data, data, columns=1, n_levels=2, rate=(0.5, 1.0), threads=1)
    _step_of_several(sampler.draw(_ROWS, seed=0, step=0).user)


def _step_of_several(batch: drawing.DrawnBatch) -> None:
    """A CF-NADE's part in the step of a member with more than one side."""
    engine, targets = _engine(), batch.targets
    if not len(targets.order):
        targets = targets._replace(order=np.arange(len(targets.rows)))
    scores = np.zeros((len(targets.rows), 2), np.float32)
    engine.encode(batch.context)
    engine.add_scores(targets, scores)
    cost = costing.cost_of(scores, targets.levels, targets.weights, ordinal_weight=1.0, threads=1)
    engine.begin()
    engine.fit_scores(targets, cost.slopes)
    engine.fit_context(batch.context)
    _score_cells()


def _train_with_ridge() -> None:
    """Two sides on the same rows, one of them with posteriors."""
    data = (_OFFSETS, _COLUMNS, _LEVELS)
    sampler = Sampler(*data, n_columns=2, n_levels=2, rate=(0.5, 1.0), threads=1)
    _step_of_several(sampler.draw(_ROWS, seed=0, step=0))
    _learn_posteriors()


def _learn_posteriors() -> None:
    """What factor analyses need, and a ridge part beside the step of several sides."""
    SecondProcess.wait()
    _tilt()  # first of all, as others need it soon
    rows, evidence, state = _posteriors()
    one, cells = np.zeros((1, 2), np.float32), (np.array([0, 1, 1]), _ROWS.astype(np.int32), _ROWS)
    V, b = np.zeros((2, 2, 2), np.float32), np.zeros((2, 2), np.float32)
    posterior.add_state_scores(cells, one, V, b, one.copy())
    posterior.state_slopes(cells, one, V, one, (V, b, one))
    slopes = np.zeros((1, 1), np.float32), evidence.E
    posterior.posterior_slopes(rows, evidence, state, slopes[0], (state.means, slopes[1], b[0, :1]))
    factor = np.ones((2, 1), np.float32)
    sums = tuple(np.ones((2, 1), np.float32) for _ in range(3))
    posterior.expect(0, 1, rows[:2], factor[:, 0], (factor, factor), sums)
    posterior.maximise(0, 2, sums, b[0, :1] + 1, b[0, :1], (factor, factor.copy()))
    prior, noise = (b[0, :1] + 1, b[0, :1]), np.zeros((1, 1), np.float32)
    out = noise.copy(), noise.copy(), noise.copy(), np.zeros(1, np.float32)
    vector_draws.draw_vectors(0, 1, rows[:2], factor[:, 0], (factor, factor), prior, noise, out)
    asked = tuple(np.zeros(1, np.int64) for _ in range(3))
    posterior.posteriors_without(rows, asked, evidence, state.means, state.unknown)


def _tilt() -> None:
    mean_tilt.tilt_to_mean(np.zeros((1, 2)), np.arange(2.0), np.full((1, 2), 0.5))


def _ask_neighbours() -> None:
    """What a neighbourhood is made of, and asked with."""
    near = nearness.Nearness(np.array([0, 1, 2]), _COLUMNS[1:3].copy(), np.zeros(2), np.ones(2))
    ragged, weights = (_OFFSETS, _COLUMNS), np.zeros(4)
    nearness.near_weights(*ragged, np.ones(4), near, weights)
    nearness.near_cells((_ROWS, _ROWS), ragged, weights, near, np.zeros(1))
    nearness.near_row(_COLUMNS[:2].copy(), weights, near, np.zeros(2))
    nearness.near_column(0, ragged, weights, near, np.zeros(2))
    cooccurrence.co_picks(*ragged, np.ones(4, np.float32), 2)


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
    counting_sort.place_entries(_COLUMNS, _COLUMNS, _LEVELS, _OFFSETS[:2].copy(), entries)
    table, state = np.zeros((2, 2, 1), np.float32), np.zeros((1, 1), np.float32)
    ratings = grouping.ratings_of(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    grouping.levels_of(ratings, _ROWS, _ROWS, 2)
    parts = ratings.rows, ratings.columns, ratings.levels
    context_sum(table, grouping.group(*parts, size=1, n_columns=2, n_levels=2), shared=True)
    cell_scores(state, table, table[:, :, 0].copy(), _ROWS, _ROWS, shared=True)


def _meet_newcomers() -> None:
    """What is asked about people whom training did not know, by validation and by requests."""
    SecondProcess.wait()
    table, bias = np.zeros((2, 2, 1), np.float32), np.zeros((2, 2), np.float32)
    ratings = grouping.ratings_of(_OFFSETS, _COLUMNS, _LEVELS, _ROWS)
    state: Array = request.sum_ratings(ratings, table, shared=True)
    request.affine(state, state, state[0])
    request.score_cells(state, _ROWS, _ROWS, table, bias, shared=True)
    newton.most_probable(np.zeros((1, 2)), np.zeros((1, 2, 1)), _ROWS, np.ones(1))


def _answer_requests() -> None:
    _meet_newcomers()
    table, bias = np.zeros((2, 2, 1), np.float32), np.zeros((2, 2), np.float32)
    state = np.zeros((1, 1), np.float32)
    scores = request.score_all(state[0], table, bias, shared=True).T[None]
    ends, allowed = np.zeros(2), np.ones((1, 2), bool)
    criterion = bounds.Criterion(bounds.QUANTILE, ends, 1.0, ends[None], 1, 0.5, np.zeros(3))
    for bound in (bounds.mean_levels(scores, ends), bounds.bounds(scores, criterion)[0]):
        bounds.keep_possible(bound, bound, 1, allowed)
    Spellings(["a"]).edits("a", 1)
    rows, evidence, known = _posteriors()
    cells = tuple(np.zeros(1, np.int64) for _ in range(3))
    posterior.posteriors_without(rows, cells, evidence, known.means, known.unknown)
    _score_cells()


def _learn_picks() -> None:
    """All that an interaction model is made of; how it is asked is a task of its own."""
    weights, table = np.ones(4, np.float32), np.zeros((2, 1), np.float32)
    data, rows = (_OFFSETS, _COLUMNS, weights), len(_OFFSETS) - 1
    scores, hits = np.zeros((rows, 2), np.float32), np.zeros((rows, 1), np.int8)
    ragged_sums.sum_rows(*data, table)
    ragged_sums.add_entries(*data, *data)
    conjugate.solve_rows(*data, table, np.ones(1, np.float32), np.ones(rows))
    cooccurrence.co_picks(*data, 2)
    lines = neighbor_regression.gram_lines(*data, 2, 1)
    neighbor_regression.neighbor_regressions(*lines, np.ones(2), 1)
    lists = top_items.top_items(scores, *data[:2], 1)
    top_items.relevant(lists, *data[:2])
    top_items.candidates(lists[None], 1, 2)
    top_items.blended_gain(np.zeros((1, rows, 1), np.float32), hits, np.ones(1), np.ones(1))


def _list_picks() -> None:
    """How lists are made of a choice's scores; a part of it, so that two processes have the same
    work."""
    SecondProcess.wait()
    scores = likeliest.log_softmax(np.zeros((1, 2), np.float32))
    least = likeliest.nth_largest(scores, 1)
    likeliest.cells_between(scores, least, least, expected=1)
    standardize.add_standardized(scores, 1.0, scores.copy())


_CELLS = (
    counting_sort._place_entries,
    grouping._sort,
    grouping._find,
    passes.sum_context,
    passes.add_scores,
)
_SCORING = (mean_tilt._tilt, *_CELLS)
_DRAWING = (scattering.scatter,)
_NEWCOMERS = (request._add_ratings, request._affine, request._score_cells, newton._descend)
_LISTS = (bounds._means, bounds._calibrated_bounds, bounds._keep_possible, spelling._edits)
_FITTING = (passes.context_step, passes.flat_step)

_SEVERAL = (costing._cost_of_scores, passes.score_step, *_DRAWING, *_FITTING, *_SCORING)
_POSTERIORS = (posterior.lower_products, posterior.row_posteriors)
_SLOPES = (posterior.add_state_scores, posterior.state_slopes, posterior.posterior_slopes)
_START = (posterior.expect, posterior.maximise, vector_draws.draw_vectors)
_LEARNING = (*_POSTERIORS, *_SLOPES, *_START, posterior.posteriors_without, mean_tilt._tilt)
_SHARED = (
    *(shared_posterior.row_sums, shared_posterior.solve_sums, shared_posterior.solve_rows),
    *(shared_posterior.residual_sums, shared_posterior.row_moments, shared_posterior.add_moments),
)
_SUMS = (ragged_sums._add_rows, ragged_sums._transpose, ragged_sums._add_entries)
_LIKELIEST = (likeliest._log_softmax, likeliest._nth_largest, likeliest._between)
_FACTORS = (dense.pack, dense.hidden_forward, dense.hidden_backward, dense.hidden_step)
_NEAR = (nearness.near_weights, nearness.near_cells, nearness.near_row, nearness.near_column)
_TOGETHER = (
    cooccurrence._dense_rows,
    neighbor_regression._gram_lines,
    neighbor_regression._regressions,
)
_SELECTION = (
    top_items._top_items,
    top_items._relevant,
    top_items._candidates,
    top_items._blended_gain,
)

TASKS: dict[str, tuple[Callable[[], None], tuple[Any, ...]]] = {
    "rows": (_train_on_rows, (marking.mark, passes.target_step, *_DRAWING, *_FITTING, *_SCORING)),
    "factors": (_train_factors, (*_FACTORS, passes.context_step)),
    "ridge": (_train_with_ridge, (marking.mark, *_SEVERAL, *_LEARNING)),
    POSTERIORS: (_learn_posteriors, _LEARNING),
    "near": (_ask_neighbours, (*_NEAR, cooccurrence._dense_rows)),
    "blocks": (_train_on_blocks, (_mark_block, *_SEVERAL)),
    NEWCOMERS: (_meet_newcomers, _NEWCOMERS),
    "requests": (
        _answer_requests,
        (
            posterior.posteriors_without,
            request._score_all,
            *_NEWCOMERS,
            *_POSTERIORS,
            *_LISTS,
            *_SCORING,
        ),
    ),
    PICKS: (_learn_picks, (conjugate._solve_rows, *_SUMS, *_TOGETHER, *_SELECTION)),
    LISTED: (_list_picks, (*_LIKELIEST, standardize._add_standardized)),
    "ranks": (_draw_for_ranks, (marking.mark_part, *_DRAWING)),
    "blocks on ranks": (_draw_blocks_for_ranks, (_mark_block_part, *_DRAWING)),
    "ridge on ranks": (_share_posteriors, (*_SHARED, *_POSTERIORS)),
}
"""What kernels are for: training a CF-NADE alone on its rows, with factors, with a ridge part, its
posteriors, a neighbourhood, on blocks of users and items; people whom training did not know;
answering requests; learning what people pick, and listing it; drawing by ranks, and their ridge
part."""
