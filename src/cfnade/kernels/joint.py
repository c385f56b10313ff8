"""The training step of a model made of two engines: scores added, one cost, both sides moved."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cfnade.errors import ModelError
from cfnade.kernels.block_sampling import Block
from cfnade.kernels.layout import Array, scratch_of, shape_of
from cfnade.kernels.sampling import DrawnBatch
from cfnade.kernels.simd import LANES
from cfnade.kernels.step import Engine
from cfnade.kernels.targets import cost_of_scores
from cfnade.kernels.threads import run


class Cost(NamedTuple):
    """The mean cost of some targets, and its gradient in their scores."""

    mean: float
    slopes: Array  # (T, K)


def mean_cost(scores: Array, levels: Array, *, ordinal_weight: float, threads: int) -> Cost:
    """From scores (T, K) and true levels (T,): each target counts the same."""
    T, K = scores.shape
    weights = np.full(T, 1.0 / T, scores.dtype)
    slopes = np.empty_like(scores)
    fixed = (scores.reshape(-1), levels, weights, ordinal_weight, slopes.reshape(-1))
    tiles = -(-T // LANES)
    cuts = pairwise([min(T, tiles * t // threads * LANES) for t in range(threads + 1)])
    scratch = [scratch_of(scores.dtype, shape_of(K, 1)) for _ in range(threads)]
    costs = run(cost_of_scores, [(*cut, *fixed, scratch[t]) for t, cut in enumerate(cuts)])
    return Cost(float(sum(costs)), slopes)


class Joint:
    """Two engines, one for the block's users (columns are items) and one for its items."""

    def __init__(self, user: Engine, item: Engine) -> None:
        if user.ordinal_weight != item.ordinal_weight:
            raise ModelError(
                f"ordinal_weight is {user.ordinal_weight} on the user side and "
                f"{item.ordinal_weight} on the item side; one cost needs one"
            )
        self.user, self.item = user, item

    def scores(self, block: Block, scales: tuple[Array | None, Array | None]) -> Array:
        """The summed scores of the block's targets; scales are those of `Engine.step`. (T, K)."""
        kind = self.user.network.bias.numpy().dtype
        out = np.zeros((block.n_targets, self.user.network.bias.shape[1]), kind)
        for engine, side, scale in zip(self._engines, _sides(block), scales, strict=True):
            engine.encode(side.context, scale)
            engine.add_scores(side.targets, out)
        return out

    def cost(self, block: Block, scores: Array) -> Cost:
        """The mean cost of the block's targets, whose scores these are."""
        levels, threads = block.user.targets.levels, self.user.threads
        return mean_cost(scores, levels, ordinal_weight=self.user.ordinal_weight, threads=threads)

    def fit(self, block: Block, slopes: Array, rate: float = 1.0) -> None:
        """Move both sides by the gradient of the scores that were asked for last."""
        for engine, side in zip(self._engines, _sides(block), strict=True):
            engine.begin(rate)
            engine.fit_scores(side.targets, slopes)
            engine.fit_context(side.context)

    @property
    def _engines(self) -> tuple[Engine, Engine]:
        return self.user, self.item


def _sides(block: Block) -> tuple[DrawnBatch, DrawnBatch]:
    return block.user, block.item
