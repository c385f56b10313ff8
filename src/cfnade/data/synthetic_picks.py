"""Made-up interactions whose true chances are known, and with them the best list.

Everybody takes one item after the other without putting it back, each time with chances that are
the softmax of how popular the items are and how well they suit the person's taste.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade.data.dataset import Interactions
from cfnade.exceptions import DataError
from cfnade.utils.validation import check_scalar

TASTES = 4
"""How many tastes a person and an item are made of."""
_POPULARITY_SPREAD, _TASTE_SPREAD = 1.0, 1.5


@dataclass(frozen=True, eq=False)
class SyntheticPicks:
    """Drawn interactions, and the logarithms of what they were drawn in proportion to."""

    ratings: Interactions
    liking: npt.NDArray[np.float64]  # (N, M)


def synthetic_picks(users: int, items: int, per_user: int, seed: int) -> SyntheticPicks:
    """Let each of the users take `per_user` of the items; a person's stand in the order taken.

    Ids count from 1. An item that nobody took has an id all the same.
    """
    check_scalar("users", users, int, Ge(1), error=DataError)
    check_scalar("items", items, int, Ge(1), error=DataError)
    check_scalar("per_user", per_user, int, Ge(1), Le(items), error=DataError)
    check_scalar("seed", seed, int, Ge(0), error=DataError)
    draw = np.random.default_rng(seed)
    popularity = _POPULARITY_SPREAD * draw.standard_normal(items)
    tastes, kinds = (draw.standard_normal((n, TASTES)) for n in (users, items))
    liking = popularity + _TASTE_SPREAD / np.sqrt(TASTES) * tastes @ kinds.T
    # The largest sums with Gumbel noise are such a draw, largest first.
    taken = np.argsort(-(liking + draw.gumbel(size=liking.shape)), axis=1)[:, :per_user]
    ratings = Interactions(
        users=np.repeat(np.arange(users, dtype=np.int32), per_user),
        items=taken.astype(np.int32).reshape(-1),
        user_ids=np.arange(1, users + 1),
        item_ids=np.arange(1, items + 1),
        source=f"synthetic picks, seed {seed}",
    )
    return SyntheticPicks(ratings, liking)
