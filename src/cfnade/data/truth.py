"""The ordered logit that synthetic ratings are drawn from.

A person's liking of an item is the person's bias, plus the item's, plus the product of both
tastes. The rating is at most level k with probability sigmoid(cut k - liking).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade.data.tails import Cells, in_blocks, key_of

FloatArray = npt.NDArray[np.float64]

# Spreads of liking, where that of the logistic noise is 1.81. On five stars the best RMSE is then
# about 0.81 and the standard deviation 1.12: room for models as on MovieLens and Netflix.
USER_SPREAD, ITEM_SPREAD, TASTE_SPREAD = 0.95, 1.1, 1.1
POPULAR_IS_LIKED = 0.4
"""Correlation of an item's bias with the logarithm of its popularity."""
LOWEST_CUT, HIGHEST_CUT = -6.4, 4.0
"""The ends of the scale; the cuts lie evenly between them."""


@dataclass(frozen=True, eq=False)
class Truth:
    """What ratings depend on."""

    user_bias: FloatArray  # (N,)
    item_bias: FloatArray  # (M,)
    user_taste: npt.NDArray[np.float32]  # (N, F)
    item_taste: npt.NDArray[np.float32]  # (M, F)
    cuts: FloatArray  # (K-1,) rising

    def probabilities(
        self, users: npt.NDArray[np.integer], items: npt.NDArray[np.integer]
    ) -> FloatArray:
        """The chance of every level in these cells. Returns (n, K)."""
        tastes = np.einsum(
            "nf,nf->n", self.user_taste[users], self.item_taste[items], dtype=np.float64
        )
        liking = self.user_bias[users] + self.item_bias[items] + tastes
        at_most = np.ones((len(self.cuts) + 1, len(liking)))  # (K, n)
        # tanh neither overflows nor warns: sigmoid(x) = (1 + tanh(x/2)) / 2
        at_most[:-1] = 0.5 + 0.5 * np.tanh((self.cuts[:, None] - liking) / 2)
        return np.diff(at_most, axis=0, prepend=0.0).T


def draw_truth(cells: Cells, factors: int, levels: int, seed: int) -> Truth:
    """Biases and tastes for everybody and everything in these cells."""
    random = np.random.default_rng((seed, 4))
    n_users, n_items = len(cells.offsets) - 1, len(cells.popularity)
    user_bias = USER_SPREAD * random.standard_normal(n_users)
    own = np.sqrt(1 - POPULAR_IS_LIKED**2) * random.standard_normal(n_items)
    item_bias = ITEM_SPREAD * (POPULAR_IS_LIKED * cells.popularity + own)
    # Centred on the rated cells, so that the histogram hardly depends on the shape and the tails.
    user_bias -= np.average(user_bias, weights=np.diff(cells.offsets))
    item_bias -= np.average(item_bias, weights=np.bincount(cells.items, minlength=n_items))
    deviation = np.sqrt(TASTE_SPREAD) / factors**0.25 if factors else 0.0
    tastes = deviation * random.standard_normal((n_users + n_items, factors), np.float32)
    return Truth(
        user_bias,
        item_bias,
        tastes[:n_users].astype(np.float32),
        tastes[n_users:].astype(np.float32),
        np.linspace(LOWEST_CUT, HIGHEST_CUT, levels + 1)[1:-1],
    )


def draw_levels(
    cells: Cells, truth: Truth, seed: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The user and the level of every rated cell. Returns (n,), (n,)."""
    from cfnade.data import draws

    users, levels = np.empty(len(cells.items), np.int32), np.empty(len(cells.items), np.uint8)
    key = key_of(seed, 5)
    liking = (truth.user_bias, truth.item_bias, truth.user_taste, truth.item_taste, truth.cuts)
    in_blocks(
        cells.offsets,
        lambda a, b: draws.draw_levels(
            key, a, b, cells.offsets, cells.items, *liking, users, levels
        ),
    )
    return users, levels
