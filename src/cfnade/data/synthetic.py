"""Made-up ratings whose true distribution is known, and with it the best prediction.

It is an ordered logit. A person's liking of an item is the person's bias, plus the item's, plus the
product of both tastes. The rating is at most level k with probability sigmoid(cut k - liking).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade._typing import IndexArray
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.draws import RatedCells, draw_cells, draw_levels, in_blocks, key_of
from cfnade.data.scale import FloatArray, LevelArray, Scale, given_scale
from cfnade.exceptions import DataError
from cfnade.utils.validation import check_scalar, describe_unknown

PRESETS = {
    "ml-1m": (6_040, 3_706, 1_000_209, "1-5"),
    "ml-10m": (69_878, 10_677, 10_000_054, "0.5-5/0.5"),
    "netflix": (480_189, 17_770, 100_480_507, "1-5"),
}
"""Users, items, ratings and scale of published data sets."""

# Spreads of liking, where that of the logistic noise is 1.81. On five stars the best RMSE is then
# about 0.81 and the standard deviation 1.12: room for models as on MovieLens and Netflix.
USER_SPREAD, ITEM_SPREAD, TASTE_SPREAD = 0.95, 1.1, 1.1
POPULAR_IS_LIKED = 0.4
"""Correlation of an item's bias with the logarithm of its popularity."""
LOWEST_CUT, HIGHEST_CUT = -6.4, 4.0
"""The ends of the scale; the cuts lie evenly between them."""

_CHUNK = 1 << 18
_FIRST_TIME, _SPAN = 946_684_800, 3 * 365 * 86_400  # three years from January 2000
_SHORTEST = 600  # seconds in which the hastiest person rates everything


@dataclass(frozen=True, eq=False)
class Truth:
    """What ratings depend on."""

    user_bias: FloatArray  # (N,)
    item_bias: FloatArray  # (M,)
    user_taste: npt.NDArray[np.float32]  # (N, F)
    item_taste: npt.NDArray[np.float32]  # (M, F)
    cuts: FloatArray  # (K-1,) rising


@dataclass(frozen=True, eq=False, repr=False)
class Synthetic:
    """Drawn ratings and the truth that they were drawn from.

    Users and items are indices, as in `ratings.users`; parts of the ratings keep them.
    """

    ratings: Dataset
    truth: Truth

    def __repr__(self) -> str:
        return f"<Synthetic {self.ratings!r}, {self.truth.user_taste.shape[1]} factors>"

    def probabilities(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """The true chance of every level in these cells. Returns (n, K)."""
        users, items, truth = np.atleast_1d(users), np.atleast_1d(items), self.truth
        tastes = np.einsum(
            "nf,nf->n", truth.user_taste[users], truth.item_taste[items], dtype=np.float64
        )
        liking = truth.user_bias[users] + truth.item_bias[items] + tastes
        at_most = np.ones((len(truth.cuts) + 1, len(liking)))  # (K, n)
        # tanh neither overflows nor warns: sigmoid(x) = (1 + tanh(x/2)) / 2
        at_most[:-1] = 0.5 + 0.5 * np.tanh((truth.cuts[:, None] - liking) / 2)
        return np.diff(at_most, axis=0, prepend=0.0).T

    def means(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """What these cells' ratings are on average, in stars: the best prediction. Returns (n,)."""
        means: FloatArray = self.probabilities(users, items) @ self.ratings.scale.array()
        return means


def synthetic(
    users: int,
    items: int,
    ratings: int,
    *,
    seed: int,
    levels: int = 5,
    factors: int = 8,
    scale: str | Scale | None = None,
    times: bool = False,
    name: str = "synthetic",
) -> Synthetic:
    """Draw ratings of this shape, in which every user and every item has at least one.

    The scale is 1 to `levels`, unless it is given, as in scale="0.5-5/0.5".
    """
    _check(users, items, ratings, factors, seed)
    steps = given_scale(f"1-{levels}" if scale is None else scale)
    cells = draw_cells(users, items, ratings, seed)
    truth = _draw_truth(cells, factors, len(steps), seed)
    who, stars = _draw_levels(cells, truth, seed)
    drawn = Ratings(
        users=who,
        items=cells.items,
        levels=stars,
        scale=steps,
        user_ids=np.arange(1, users + 1),
        item_ids=np.arange(1, items + 1),
        times=_draw_times(who, users, seed) if times else None,
        source=f"{name}, seed {seed}",
    )
    return Synthetic(drawn, truth)


def synthetic_like(
    name: str, seed: int, scale_down: float = 1, *, times: bool = False
) -> Synthetic:
    """Draw ratings with the shape and scale of a published set: "ml-1m", "ml-10m" or "netflix".

    With scale_down=10 there are a tenth of the ratings, equally dense: users and items shrink by
    the square root.
    """
    if name not in PRESETS:
        raise DataError(describe_unknown("shape", name, PRESETS))
    check_scalar("scale_down", scale_down, float, Ge(1), error=DataError)
    users, items, ratings, scale = PRESETS[name]
    side = float(np.sqrt(scale_down))
    label = f"synthetic {name}" + (f" / {scale_down:g}" if scale_down > 1 else "")
    return synthetic(
        round(users / side),
        round(items / side),
        round(ratings / scale_down),
        seed=seed,
        scale=scale,
        times=times,
        name=label,
    )


def _check(users: int, items: int, ratings: int, factors: int, seed: int) -> None:
    for name, value in {"users": users, "items": items}.items():
        check_scalar(name, value, int, Ge(1), Le(2**31 - 1), error=DataError)
    for name, value in {"ratings": ratings, "factors": factors, "seed": seed}.items():
        check_scalar(name, value, int, Ge(0), error=DataError)
    shape = f"{users:,} users, {items:,} items, {ratings:,} ratings"
    if ratings > users * items:
        raise DataError(
            f"{shape}: there are only {users * items:,} cells, and each is rated once at most"
        )
    if ratings < max(users, items):
        raise DataError(
            f"{shape}: every user and item has a rating, so there must be {max(users, items):,} "
            "or more"
        )


def _draw_truth(cells: RatedCells, factors: int, levels: int, seed: int) -> Truth:
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


def _draw_levels(cells: RatedCells, truth: Truth, seed: int) -> tuple[IndexArray, LevelArray]:
    """The user and the level of every rated cell. Returns (n,), (n,)."""
    users, levels = np.empty(len(cells.items), np.int32), np.empty(len(cells.items), np.uint8)
    key = key_of(seed, 5)
    liking = (truth.user_bias, truth.item_bias, truth.user_taste, truth.item_taste, truth.cuts)
    in_blocks(
        cells.offsets,
        lambda a, b: draw_levels(key, a, b, cells.offsets, cells.items, *liking, users, levels),
    )
    return users, levels


def _draw_times(users: IndexArray, count: int, seed: int) -> npt.NDArray[np.int32]:
    """Each person rates within a period of their own, minutes to years long, early ones mostly."""
    random = np.random.default_rng((seed, 6))
    period = np.exp(random.uniform(np.log(_SHORTEST), np.log(_SPAN), count)).astype(np.float32)
    start = (random.random(count) * (_SPAN - period)).astype(np.int32) + _FIRST_TIME
    times = np.empty(len(users), np.int32)
    for a in range(0, len(users), _CHUNK):
        who = users[a : a + _CHUNK]
        passed = np.square(random.random(len(who), np.float32)) * period[who]
        times[a : a + _CHUNK] = start[who] + passed.astype(np.int32)
    return times
