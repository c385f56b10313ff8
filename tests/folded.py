"""What each side of a member says of one cell, written down literally and slowly, in float64.

Where a side has no trained weights, they are those of its principal directions that make the known
ratings most probable (inference/fold_in.py): here by a full eigendecomposition and a minimiser that
needs slopes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from cfnade.components import Member
from cfnade.components.nade import NadeComponent
from cfnade.components.ridge import RidgeComponent
from cfnade.fitted_model import FittedModel
from cfnade.models import Context

FloatArray = npt.NDArray[np.float64]
Known = Mapping[tuple[int, int], int]
"""(user, item) -> level; -1 is a new user, or a new item, who is in nobody's context."""


RowComponent = NadeComponent | RidgeComponent

F = TypeVar("F", bound=Callable[..., Any])


def kept(function: F) -> F:
    """Computed once for the same objects, which are kept: weights must not change any more."""
    answers: dict[Any, Any] = {}

    def ask(*given: Any) -> Any:
        key = tuple(one if isinstance(one, int | str | frozenset) else id(one) for one in given)
        if key not in answers:
            answers[key] = given, function(*given)
        return answers[key][1]

    return ask  # type: ignore[return-value]


class Cell(NamedTuple):
    user: int
    item: int


def side_scores(
    fitted: FittedModel, member: Member, number: int, cell: Cell, known: Known, *, fold: bool = True
) -> FloatArray:
    """One side's scores of a cell whose own rating, if it is known, is left out. (K,)."""
    rest = {place: level for place, level in known.items() if place != cell}
    side, row, own, column = seen_by(member, number, cell, rest)
    counts = fitted.training_counts[learned(side)]
    if column >= 0 and counts[column].sum() > 0:
        return plain(side, row, column)
    others = any(one.axis not in (side.axis, None) for one in member.components.values())
    if not fold or fitted.needs_times or (not own and others):
        if any(one.axis == side.axis for one in list(member.components.values())[:number]):
            return np.zeros(counts.shape[1])  # an earlier side has said it
        return rule(list(own.values()), counts.sum(0), prior=number == 0)
    if not own:
        return np.asarray(features(fitted, side, row)[:, 0])  # the mean of the trained
    z = solution(fitted, member, learned(side), column, frozenset(rest.items()))[number]
    return np.asarray(features(fitted, side, row) @ np.append(1.0, z))


def unknown(fitted: FittedModel, cell: Cell, known: Known) -> bool:
    """Whether nothing is known of a cell's user but, maybe, the cell itself."""
    others = [item for user, item in known if user == cell.user and item != cell.item]
    return fitted.takes_histories and not others and cell.item >= 0


def frequencies(fitted: FittedModel, cell: Cell) -> FloatArray:
    """How others rated the item, among two imagined ratings spread like all of them. (K,)."""
    context, K = fitted.context, len(fitted.context.scale)
    cells = [*zip(context.users, context.items, context.levels, strict=True)]
    of_item = [k for u, i, k in cells if i == cell.item and u != cell.user]
    counts = np.bincount(of_item, minlength=K).astype(float)
    everyone = np.bincount([k for _, _, k in cells], minlength=K) + 1.0
    if not fitted.has_context:
        counts, everyone = (
            fitted.training_counts["item"][cell.item],
            fitted.training_counts["item"].sum(0) + 1,
        )
    smoothed = counts + 2 * everyone / everyone.sum()
    return np.asarray(smoothed / smoothed.sum())


def seen_by(
    member: Member, number: int, cell: Cell, rest: Known
) -> tuple[RowComponent, dict[int, int], dict[int, int], int]:
    """A side, its row and what is known of its column, without the cell; and the column."""
    side = list(member.components.values())[number]
    assert isinstance(side, RowComponent)
    of_user = {i: k for (u, i), k in rest.items() if u == cell.user and i >= 0}
    of_item = {u: k for (u, i), k in rest.items() if i == cell.item and u >= 0}
    if side.axis == "user":
        return side, of_user, of_item, cell.item
    return side, of_item, of_user, cell.user


def learned(side: RowComponent) -> Any:
    return "item" if side.axis == "user" else "user"


def rule(levels: list[int], everyone: Any, *, prior: bool) -> FloatArray:
    """Log frequencies of levels and five imagined ones, spread like everyone's."""
    frequencies = np.maximum(everyone / everyone.sum(), 1e-9)
    own = np.bincount(levels, minlength=len(frequencies)) + 5 * frequencies
    return np.asarray(np.log(own / own.sum()) - (0 if prior else np.log(frequencies)))


@kept
def exact(side: RowComponent) -> Any:
    """Its network in float64."""
    return deepcopy(side.network).double()


def context_of(row: frozenset[tuple[int, int]]) -> Context:
    columns, levels = (
        torch.tensor([one[part] for one in row], dtype=torch.int64) for part in (0, 1)
    )
    return Context(torch.tensor([0, len(row)]), columns, levels)


def plain(side: RowComponent, row: Mapping[int, int], column: int) -> FloatArray:
    """Scores of a trained column in plain torch. (K,)."""
    return _plain(side, frozenset(row.items()), column)


def state(side: RowComponent, row: Mapping[int, int]) -> FloatArray:
    return _state(side, frozenset(row.items()))


@kept
@torch.no_grad()
def _plain(side: RowComponent, row: frozenset[tuple[int, int]], column: int) -> FloatArray:
    network = exact(side)
    hidden = network.hidden(context_of(row))
    return np.asarray(network.scores(hidden, torch.tensor([0]), torch.tensor([column]))[0].numpy())


@kept
@torch.no_grad()
def _state(side: RowComponent, row: frozenset[tuple[int, int]]) -> FloatArray:
    network = exact(side)
    hidden = network.hidden(context_of(row))
    return np.asarray((hidden if _is_ridge(side) else network.output_state(hidden))[0].numpy())


def _is_ridge(side: RowComponent) -> bool:
    return isinstance(side, RidgeComponent)


# -- directions ------------------------------------------------------------------------------------


class Principal(NamedTuple):
    inverse: FloatArray  # of the metric's root
    mean: FloatArray
    vectors: FloatArray  # (steps, D)
    variances: FloatArray  # (D,)


@kept
def principal(fitted: FittedModel, side: RowComponent) -> Principal:
    rows = fitted.context.rows(side.axis)
    parts = np.split(np.arange(rows.n_ratings), rows.offsets[1:-1])
    ratings = list(zip(rows.columns.tolist(), rows.levels.tolist(), strict=True))
    states = np.array([state(side, dict(ratings[p] for p in part)) for part in parts])
    G = (states * (rows.counts() / rows.n_ratings)[:, None]).T @ states
    values, turn = np.linalg.eigh(G)
    root, inverse = turn * np.sqrt(values), turn / np.sqrt(values)
    n = fitted.training_counts[learned(side)].sum(1)
    network, seen = exact(side), n > 0
    table = network.V if _is_ridge(side) else network.output_table
    V, b = table.detach().numpy()[seen], network.b.detach().numpy()[seen]
    shared = _is_ridge(side) or network.config.shared
    V, b = (V[:, 1:], b[:, 1:]) if shared else (np.diff(V, axis=1), np.diff(b))
    X = np.concatenate([(V @ root).reshape(len(V), -1), b], axis=1)
    weights = (n / (n + 30))[seen]
    mean = np.average(X, axis=0, weights=weights)
    spread = (X - mean) * np.sqrt(weights / weights.mean())[:, None]
    variances, vectors = np.linalg.eigh(spread.T @ spread / len(X))
    variances, vectors = variances[::-1], vectors[:, ::-1]
    enough = int((np.cumsum(variances) < 0.95 * variances.sum()).sum()) + 1
    D = min(24, enough)
    return Principal(inverse, mean, vectors[:, :D], variances[:D])


def features(fitted: FittedModel, side: RowComponent, row: Mapping[int, int]) -> FloatArray:
    """Scores by the mean column and by each direction. Returns (K, 1 + D)."""
    found = principal(fitted, side)
    K, h = len(fitted.context.scale), state(side, row) @ found.inverse
    columns = np.column_stack([found.mean, found.vectors])  # (steps, 1+D)
    table, bias = columns[: -(K - 1)].reshape(K - 1, len(h), -1), columns[-(K - 1) :]
    steps = np.einsum("h,khd->kd", h, table) + bias
    return np.concatenate([np.zeros_like(steps[:1]), np.cumsum(steps, axis=0)])


# -- the most probable weights ---------------------------------------------------------------------


class Problem(NamedTuple):
    """Ratings of which one side after another says something, and sides that are folded."""

    base: FloatArray  # (n, K)
    slopes: FloatArray  # (n, K, D)
    levels: npt.NDArray[np.int64]
    variances: FloatArray
    sizes: dict[int, int]  # directions of each folded side


def problem(fitted: FittedModel, member: Member, axis: str, column: int, known: Known) -> Problem:
    own = [Cell(*c) for c in known if c[axis == "item"] == column and c[axis == "user"] >= 0]
    base, slopes, sizes = [], [], {}
    for cell in own:
        rest = {place: level for place, level in known.items() if place != cell}
        total = np.zeros(len(fitted.context.scale))
        parts: list[FloatArray] = []
        for number in range(len(member.components)):
            side, row, _, _ = seen_by(member, number, cell, rest)
            if learned(side) == axis:
                whole = features(fitted, side, row)
                total, parts = total + whole[:, 0], [*parts, whole[:, 1:]]
                sizes[number] = whole.shape[1] - 1
            else:
                total = total + side_scores(fitted, member, number, cell, known, fold=False)
        base.append(total)
        slopes.append(np.concatenate(parts, axis=1))
    sides = list(member.components.values())
    variances = [principal(fitted, sides[number]).variances for number in sizes]  # type: ignore[arg-type]
    levels = np.array([known[cell] for cell in own])
    return Problem(np.array(base), np.array(slopes), levels, np.concatenate(variances), sizes)


def cost(one: Problem, z: FloatArray) -> float:
    scores = one.base + one.slopes @ z
    own = scores[np.arange(len(scores)), one.levels]
    top = scores.max(1)
    logs = np.log(np.exp(scores - top[:, None]).sum(1)) + top
    return float((logs - own).sum() + (z**2 / one.variances).sum() / 2)


def slope(one: Problem, z: FloatArray) -> FloatArray:
    weights = np.exp(one.base + one.slopes @ z)
    weights /= weights.sum(1, keepdims=True)
    weights[np.arange(len(weights)), one.levels] -= 1.0
    return np.asarray(np.einsum("nk,nkd->d", weights, one.slopes) + z / one.variances)


def least(one: Problem) -> FloatArray:
    """Where the cost is least: Newton's method, the curvature by differences of the slope."""
    z, small = np.zeros(len(one.variances)), 1e-5
    each = small * np.eye(len(z))
    for _ in range(100):
        down = slope(one, z)
        if np.abs(down).max() < 1e-10:
            break
        bend = np.array([slope(one, z + e) - slope(one, z - e) for e in each]) / (2 * small)
        step = np.linalg.solve(bend, down)
        while cost(one, z - step) > cost(one, z) + 1e-12:
            step = step / 2
        z = z - step
    return z


@kept
def solution(
    fitted: FittedModel, member: Member, axis: str, column: int, known: frozenset[Any]
) -> dict[int, FloatArray]:
    """The coefficients of each folded side, drawn towards 0 by half a rating."""
    one = problem(fitted, member, axis, column, dict(known))
    n, ends = len(one.levels), np.cumsum(list(one.sizes.values()))[:-1]
    return dict(zip(one.sizes, np.split(least(one) * n / (n + 0.5), ends), strict=True))
