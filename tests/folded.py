"""What each side of a member says of one cell, written down literally and slowly, in float64.

Where a side has no trained weights, they are those of its principal directions that make the known
ratings most probable (newcomers.py): here by a full eigendecomposition and torch's own minimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from cfnade.fitted import FittedModel
from cfnade.models import Context
from cfnade.sides import Member
from cfnade.sides.nade import NadeSide

FloatArray = npt.NDArray[np.float64]
Known = Mapping[tuple[int, int], int]
"""(user, item) -> level; -1 is a new user, or a new item, who is in nobody's context."""


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
    counts = fitted.trained_on[learned(side)]
    if column >= 0 and counts[column].sum() > 0:
        return plain(side, row, column)
    if not own or not fold or fitted.needs_times:
        return rule(list(own.values()), counts.sum(0), prior=number == 0)
    z = solution(fitted, member, learned(side), column, frozenset(rest.items()))[number]
    return features(fitted, side, row) @ np.append(1.0, z)


def seen_by(
    member: Member, number: int, cell: Cell, rest: Known
) -> tuple[NadeSide, dict[int, int], dict[int, int], int]:
    """A side, its row and what is known of its column, without the cell; and the column."""
    side = list(member.sides.values())[number]
    assert isinstance(side, NadeSide)
    of_user = {i: k for (u, i), k in rest.items() if u == cell.user and i >= 0}
    of_item = {u: k for (u, i), k in rest.items() if i == cell.item and u >= 0}
    if side.axis == "user":
        return side, of_user, of_item, cell.item
    return side, of_item, of_user, cell.user


def learned(side: NadeSide) -> Any:
    return "item" if side.axis == "user" else "user"


def rule(levels: list[int], everyone: Any, *, prior: bool) -> FloatArray:
    """Log frequencies of levels and five imagined ones, spread like everyone's."""
    frequencies = np.maximum(everyone / everyone.sum(), 1e-9)
    own = np.bincount(levels, minlength=len(frequencies)) + 5 * frequencies
    return np.asarray(np.log(own / own.sum()) - (0 if prior else np.log(frequencies)))


@kept
def exact(side: NadeSide) -> Any:
    """Its network in float64."""
    return deepcopy(side.network).double()


def context_of(row: Mapping[int, int]) -> Context:
    columns, levels = (torch.tensor(list(part), dtype=torch.int64) for part in (row, row.values()))
    return Context(torch.tensor([0, len(row)]), columns, levels)


@torch.no_grad()
def plain(side: NadeSide, row: Mapping[int, int], column: int) -> FloatArray:
    network = exact(side)
    hidden = network.hidden(context_of(row))
    return np.asarray(network.scores(hidden, torch.tensor([0]), torch.tensor([column]))[0].numpy())


@torch.no_grad()
def state(side: NadeSide, row: Mapping[int, int]) -> FloatArray:
    network = exact(side)
    return np.asarray(network.output_state(network.hidden(context_of(row)))[0].numpy())


# -- directions ------------------------------------------------------------------------------------


class Principal(NamedTuple):
    inverse: FloatArray  # of the metric's root
    mean: FloatArray
    vectors: FloatArray  # (steps, D)
    variances: FloatArray  # (D,)


@kept
def principal(fitted: FittedModel, side: NadeSide) -> Principal:
    rows = fitted.context.rows(side.axis)
    parts = np.split(np.arange(rows.n_ratings), rows.offsets[1:-1])
    ratings = list(zip(rows.columns.tolist(), rows.levels.tolist(), strict=True))
    states = np.array([state(side, dict(ratings[p] for p in part)) for part in parts])
    G = (states * (rows.counts() / rows.n_ratings)[:, None]).T @ states
    values, turn = np.linalg.eigh(G)
    root, inverse = turn * np.sqrt(values), turn / np.sqrt(values)
    n = fitted.trained_on[learned(side)].sum(1)
    network, seen = exact(side), n > 0
    V, b = network.output_table.detach().numpy()[seen], network.b.detach().numpy()[seen]
    V, b = (V[:, 1:], b[:, 1:]) if network.config.shared else (np.diff(V, axis=1), np.diff(b))
    X = np.concatenate([(V @ root).reshape(len(V), -1), b], axis=1)
    weights = (n / (n + 30))[seen]
    mean = np.average(X, axis=0, weights=weights)
    spread = (X - mean) * np.sqrt(weights / weights.mean())[:, None]
    variances, vectors = np.linalg.eigh(spread.T @ spread / len(X))
    variances, vectors = variances[::-1], vectors[:, ::-1]
    enough = int((np.cumsum(variances) < 0.95 * variances.sum()).sum()) + 1
    D = min(24, enough)
    return Principal(inverse, mean, vectors[:, :D], variances[:D])


def features(fitted: FittedModel, side: NadeSide, row: Mapping[int, int]) -> FloatArray:
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
        total, parts = np.zeros(len(fitted.context.scale)), []
        for number in range(len(member.sides)):
            side, row, _, _ = seen_by(member, number, cell, rest)
            if learned(side) == axis:
                whole = features(fitted, side, row)
                total, parts = total + whole[:, 0], [*parts, whole[:, 1:]]
                sizes[number] = whole.shape[1] - 1
            else:
                total = total + side_scores(fitted, member, number, cell, known, fold=False)
        base.append(total)
        slopes.append(np.concatenate(parts, axis=1))
    sides = list(member.sides.values())
    variances = [principal(fitted, sides[number]).variances for number in sizes]  # type: ignore[arg-type]
    levels = np.array([known[cell] for cell in own])
    return Problem(np.array(base), np.array(slopes), levels, np.concatenate(variances), sizes)


def cost(one: Problem, z: torch.Tensor) -> torch.Tensor:
    base, slopes, variances = map(torch.from_numpy, (one.base, one.slopes, one.variances.copy()))
    chances = torch.log_softmax(base + slopes @ z, 1)
    own = chances[torch.arange(len(base)), torch.from_numpy(one.levels)]
    return -own.sum() + (z**2 / variances).sum() / 2


@kept
def solution(
    fitted: FittedModel, member: Member, axis: str, column: int, known: frozenset[Any]
) -> dict[int, FloatArray]:
    """The coefficients of each folded side, drawn towards 0 by half a rating."""
    one = problem(fitted, member, axis, column, dict(known))
    z = torch.zeros(len(one.variances), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [z], max_iter=300, tolerance_grad=1e-11, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Any:
        search.zero_grad()
        value = cost(one, z)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(closure)  # type: ignore[no-untyped-call]
    n = len(one.levels)
    ends = np.cumsum(list(one.sizes.values()))[:-1]
    parts = np.split(z.detach().numpy() * n / (n + 0.5), ends)
    return dict(zip(one.sizes, parts, strict=True))
