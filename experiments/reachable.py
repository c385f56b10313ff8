"""How near to the best reachable RMSE anybody can come: made-up data, half of the truth given.

    python -m experiments.reachable             # the shape "dense" of docs/defaults.md

Somebody who knows the true items, the cuts and how users are spread still has to learn every user
from their own ratings, by the likeliest numbers under the true prior; the same the other way round.
Whoever knows neither pays about both. With few numbers p to learn of a row and many ratings n in
all, that is (N + M) p σ / 2n above the best reachable σ.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.components import Axis

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.defaults import SHAPES, parts_of
from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import FACTOR_SPREAD, ITEM_SPREAD, USER_SPREAD, Synthetic
from cfnade.evaluation.rating_metrics import rmse

STEPS = 12


def learned(made: Synthetic, known: Dataset, axis: Axis) -> Any:
    """Bias and taste of every user (or item), the others being known. Returns (N, 1 + F)."""
    truth, rows = made.truth, known.rows(axis)
    users = axis == "user"
    others = truth.item_factors if users else truth.user_factors
    bias = truth.item_bias if users else truth.user_bias
    factors = others.shape[1]
    taste = FACTOR_SPREAD / np.sqrt(factors)  # the variance of a number of a taste
    spread = USER_SPREAD if users else ITEM_SPREAD
    prior = np.array([1 / spread**2, *[1 / taste] * factors])
    found = np.zeros((len(rows), 1 + factors))
    for row in range(len(rows)):
        own = slice(rows.offsets[row], rows.offsets[row + 1])
        columns, levels = rows.columns[own], rows.levels[own]
        design = np.column_stack([np.ones(len(columns)), others[columns]])
        for _ in range(STEPS):
            liking = design @ found[row] + bias[columns]
            slope, weight = _slope(liking, levels, truth.cuts)
            matrix = (design * weight[:, None]).T @ design + np.diag(prior)
            found[row] += np.linalg.solve(matrix, design.T @ slope - prior * found[row])
    return found


def _slope(liking: Any, levels: Any, cuts: Any) -> tuple[Any, Any]:
    """Of the log-likelihood in the liking, and Fisher's information. Both (n,)."""
    below = 1 / (1 + np.exp(liking[:, None] - cuts))  # (n, K - 1)
    ends = np.zeros((len(liking), 1))
    at_most = np.concatenate([ends, below, ends + 1], 1)
    density = at_most * (1 - at_most)
    chances, change = np.diff(at_most, axis=1), -np.diff(density, axis=1)
    rows = np.arange(len(liking))
    slope = change[rows, levels] / chances[rows, levels]
    return slope, (np.square(change) / chances).sum(1)


def expected(made: Synthetic, found: Any, axis: Axis, asked: Dataset) -> Any:
    """What the cells' ratings are on average, if one side is as it was learned."""
    truth = made.truth
    user, item = (truth.user_bias, truth.user_factors), (truth.item_bias, truth.item_factors)
    own = found[:, 0], found[:, 1:]
    user, item = (own, item) if axis == "user" else (user, own)
    u, i = asked.users, asked.items
    liking = user[0][u] + item[0][i] + (user[1][u] * item[1][i]).sum(1)
    below = 1 / (1 + np.exp(liking[:, None] - truth.cuts))
    chances = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return chances @ asked.scale.array()


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "dense"
    users, items, _, factors, _ = SHAPES[name]
    lines = []
    for seed in range(3):
        parts, made = parts_of(name, seed)
        assert made is not None
        known, test = parts.train.concat(parts.valid), parts.test
        best = rmse(test.values, made.means(test.users, test.items))
        axes: tuple[Axis, ...] = ("user", "item")
        above = [
            rmse(test.values, expected(made, learned(made, known, axis), axis, test)) - best
            for axis in axes
        ]
        lines.append([best, *above])
        print(f"seed {seed}: best {best:.4f}, users learned +{above[0]:.4f}, items +{above[1]:.4f}")
    best, by_user, by_item = np.mean(lines, axis=0)
    rule = (users + items) * (1 + factors) * best / (2 * len(known))
    print(
        f"{name}: users +{by_user:.4f}, items +{by_item:.4f}, both about +{by_user + by_item:.4f}"
    )
    print(f"by the rule +{rule:.4f}")


if __name__ == "__main__":
    main()
