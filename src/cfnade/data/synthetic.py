"""Synthetic data whose true distribution is known, and with it the best prediction.

Ratings follow an ordered logit: the utility of an item for a user is the user's bias, plus the
item's, plus the product of their factors. The rating is at most level k with probability
sigmoid(cut k - utility). Few users rate many items, few items have many ratings.

Interactions are drawn without replacement: each user takes one item after the other, with the
softmax of popularity and of the product of the factors as probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade._typing import IndexArray, IntArray
from cfnade.data.dataset import Dataset, Interactions, Ratings
from cfnade.data.scale import FloatArray, LevelArray, Scale, parse_scale
from cfnade.data.split_protocols import choose_positions
from cfnade.exceptions import DataError
from cfnade.utils.threads import parallel_map
from cfnade.utils.validation import check_scalar, describe_unknown

PRESETS = {
    "ml-1m": (6_040, 3_706, 1_000_209, "1-5"),
    "ml-10m": (69_878, 10_677, 10_000_054, "0.5-5/0.5"),
    "netflix": (480_189, 17_770, 100_480_507, "1-5"),
}
"""Users, items, ratings and scale of published data sets."""

# Standard deviations of utility, where that of the logistic noise is 1.81. On five stars the best
# RMSE is then about 0.81 and the standard deviation 1.12: room for models as on MovieLens, Netflix.
USER_SPREAD, ITEM_SPREAD, FACTOR_SPREAD = 0.95, 1.1, 1.1
POPULARITY_CORRELATION = 0.4
"""Correlation of an item's bias with the logarithm of its popularity."""
LOWEST_CUT, HIGHEST_CUT = -6.4, 4.0
"""The ends of the scale; the cuts lie evenly between them."""
ACTIVITY_SPREAD, POPULARITY_SPREAD = 1.1, 1.6
"""Standard deviations of the logarithms of the activity of users and the popularity of items."""
MIN_RATINGS = 20
"""Where there are enough ratings, every user has at least these, as in MovieLens."""
N_FACTORS = 4
"""Factors of users and items in synthetic interactions."""
_INTERACTION_POPULARITY_SPREAD, _INTERACTION_FACTOR_SPREAD = 1.0, 1.5

_BLOCK = 1 << 20  # ratings that a thread draws at a time
_CHUNK = 1 << 18
_FIRST_TIME, _TIME_SPAN = 946_684_800, 3 * 365 * 86_400  # three years from January 2000
_SHORTEST_PERIOD = 600  # seconds in which the fastest user rates everything


@dataclass(frozen=True, eq=False)
class Truth:
    """The parameters of the distribution of ratings."""

    user_bias: FloatArray  # (N,)
    item_bias: FloatArray  # (M,)
    user_factors: npt.NDArray[np.float32]  # (N, F)
    item_factors: npt.NDArray[np.float32]  # (M, F)
    cuts: FloatArray  # (K-1,) rising


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Synthetic ratings and the truth that they were drawn from.

    Users and items are indices, as in `ratings.users`; subsets of the ratings keep them.
    """

    ratings: Dataset
    truth: Truth = field(repr=False)

    def probabilities(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """Return the true probability of every level for pairs of a user and an item, (n, K)."""
        users, items, truth = np.atleast_1d(users), np.atleast_1d(items), self.truth
        products = np.einsum(
            "nf,nf->n", truth.user_factors[users], truth.item_factors[items], dtype=np.float64
        )
        utility = truth.user_bias[users] + truth.item_bias[items] + products
        at_most = np.ones((len(truth.cuts) + 1, len(utility)))  # (K, n)
        # tanh neither overflows nor warns: sigmoid(x) = (1 + tanh(x/2)) / 2
        at_most[:-1] = 0.5 + 0.5 * np.tanh((truth.cuts[:, None] - utility) / 2)
        return np.diff(at_most, axis=0, prepend=0.0).T

    def means(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """Return the mean rating of pairs on the scale, the best prediction, (n,)."""
        means: FloatArray = self.probabilities(users, items) @ self.ratings.scale.array()
        return means


@dataclass(frozen=True, eq=False)
class SyntheticInteractions:
    """Synthetic interactions, and the logarithms of the weights that they were drawn by."""

    interactions: Interactions
    utility: FloatArray  # (N, M)


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
    """Draw ratings of a given shape; every user and every item has at least one.

    Args:
        users: Number of users.
        items: Number of items.
        ratings: Number of ratings.
        seed: Seed of all random numbers.
        levels: Levels of the scale 1 to `levels`, unless `scale` is given.
        factors: Factors of users and items.
        scale: The scale, such as "0.5-5/0.5".
        times: Whether ratings have timestamps.
        name: Name of the data set, which its `source` and therefore its fingerprint contain.
    """
    _check_shape(users, items, ratings, factors, seed)
    steps = parse_scale(f"1-{levels}" if scale is None else scale)
    pairs = _draw_pairs(users, items, ratings, seed)
    truth = _draw_truth(pairs, factors, len(steps), seed)
    user_index, rating_levels = _draw_levels(pairs, truth, seed)
    dataset = Ratings(
        users=user_index,
        items=pairs.items,
        levels=rating_levels,
        scale=steps,
        user_ids=np.arange(1, users + 1),
        item_ids=np.arange(1, items + 1),
        times=_draw_times(user_index, users, seed) if times else None,
        source=f"{name}, seed {seed}",
    )
    return Synthetic(dataset, truth)


def synthetic_like(
    name: str, seed: int, scale_down: float = 1, *, times: bool = False
) -> Synthetic:
    """Draw ratings with the shape and scale of a published data set.

    Args:
        name: "ml-1m", "ml-10m" or "netflix".
        seed: Seed of all random numbers.
        scale_down: With 10 there are a tenth of the ratings, equally dense: the numbers of users
            and items shrink by the square root.
        times: Whether ratings have timestamps.
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


def synthetic_interactions(
    users: int, items: int, per_user: int, seed: int
) -> SyntheticInteractions:
    """Draw interactions of every user with `per_user` of the items, in the order of the draws.

    Ids count from 1. Items that no user has taken have an id as well.
    """
    check_scalar("users", users, int, Ge(1), error=DataError)
    check_scalar("items", items, int, Ge(1), error=DataError)
    check_scalar("per_user", per_user, int, Ge(1), Le(items), error=DataError)
    check_scalar("seed", seed, int, Ge(0), error=DataError)
    random = np.random.default_rng(seed)
    popularity = _INTERACTION_POPULARITY_SPREAD * random.standard_normal(items)
    user_factors, item_factors = (random.standard_normal((n, N_FACTORS)) for n in (users, items))
    scale = _INTERACTION_FACTOR_SPREAD / np.sqrt(N_FACTORS)
    utility = popularity + scale * user_factors @ item_factors.T
    # The largest sums with Gumbel noise are draws without replacement, largest first.
    order = np.argsort(-(utility + random.gumbel(size=utility.shape)), axis=1)[:, :per_user]
    interactions = Interactions(
        users=np.repeat(np.arange(users, dtype=np.int32), per_user),
        items=order.astype(np.int32).reshape(-1),
        user_ids=np.arange(1, users + 1),
        item_ids=np.arange(1, items + 1),
        source=f"synthetic interactions, seed {seed}",
    )
    return SyntheticInteractions(interactions, utility)


def _check_shape(users: int, items: int, ratings: int, factors: int, seed: int) -> None:
    for name, value in {"users": users, "items": items}.items():
        check_scalar(name, value, int, Ge(1), Le(2**31 - 1), error=DataError)
    for name, value in {"ratings": ratings, "factors": factors, "seed": seed}.items():
        check_scalar(name, value, int, Ge(0), error=DataError)
    least, most = max(users, items), users * items
    if not least <= ratings <= most:
        raise DataError(
            f"{users:,} users, {items:,} items, {ratings:,} ratings: every user and item has a "
            f"rating and each pair one at most, so there must be {least:,} to {most:,}"
        )


# -- who rates what -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatedPairs:
    """User u rated items[offsets[u]:offsets[u+1]], in rising order."""

    offsets: IntArray  # (N+1,)
    items: IndexArray  # (n,)
    popularity: FloatArray  # (M,) logarithm of an item's weight, standard normal


def _draw_pairs(users: int, items: int, ratings: int, seed: int) -> RatedPairs:
    """Draw distinct pairs, with at least one of each user and each item."""
    from cfnade.kernels.synthetic_sampling import draw_items

    random = np.random.default_rng((seed, 0))
    popularity = random.standard_normal(items)
    activity = np.exp(ACTIVITY_SPREAD * random.standard_normal(users))
    average = ratings // users
    minimum = max(min(3, average), min(MIN_RATINGS, average // 4))
    counts = minimum + apportion(ratings - users * minimum, activity, items - minimum)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    weights = np.exp(POPULARITY_SPREAD * popularity)
    accept, alias = alias_table(weights)
    index = np.empty(ratings, np.int32)
    key = _stream_key(seed, 1)
    _in_blocks(offsets, lambda a, b: draw_items(key, a, b, offsets, weights, accept, alias, index))
    _cover_items(index, offsets, items, seed)
    return RatedPairs(offsets, index, popularity)


def apportion(total: int, weights: FloatArray, maximum: int) -> IntArray:
    """Divide a total into whole numbers up to a maximum, nearly proportional to weights, (N,)."""
    low, high = 0.0, maximum / weights.min() + 1
    for _ in range(200):  # bisection for the factor; the excess over the maximum goes to others
        middle = (low + high) / 2
        if np.minimum(middle * weights, maximum).sum() < total:
            low = middle
        else:
            high = middle
    exact = np.minimum(low * weights, maximum)
    shares = np.floor(exact).astype(np.int64)
    # At most one more each, by what was lost in rounding down.
    order = np.argsort(shares - exact, kind="stable")
    below_maximum = order[shares[order] < maximum]
    shares[below_maximum[: total - int(shares.sum())]] += 1
    return shares


def alias_table(weights: FloatArray) -> tuple[FloatArray, IndexArray]:
    """Return Walker's table: draw i evenly, accept it with probability accept[i], else alias[i]."""
    scaled = weights * (len(weights) / weights.sum())
    accept, alias = scaled.tolist(), list(range(len(weights)))
    small, large = np.flatnonzero(scaled < 1).tolist(), np.flatnonzero(scaled >= 1).tolist()
    while small and large:
        i, j = small.pop(), large[-1]
        alias[i] = j
        accept[j] -= 1 - accept[i]
        if accept[j] < 1:
            small.append(large.pop())
    return np.array(accept), np.array(alias, np.int32)


def _cover_items(index: IndexArray, offsets: IntArray, n_items: int, seed: int) -> None:
    """Give every item without a rating one, of items that have several.

    There are enough of those as long as there are at least as many ratings as items.
    """
    counts = np.bincount(index, minlength=n_items)
    missing = np.flatnonzero(counts == 0)
    spare, size = np.empty(0, np.int64), 4 * len(missing)
    while len(spare) < len(missing):
        sample = np.flatnonzero(choose_positions(len(index), min(size, len(index)), (seed, 2)))
        sample = sample[np.argsort(index[sample], kind="stable")]
        group = index[sample]
        rank = np.arange(len(sample)) - np.searchsorted(group, group)
        spare, size = sample[rank < counts[group] - 1], 2 * size  # one of each item stays
    moved = spare[choose_positions(len(spare), len(missing), (seed, 3))]
    index[moved] = missing
    for user in np.unique(np.searchsorted(offsets, moved, side="right") - 1).tolist():
        index[offsets[user] : offsets[user + 1]].sort()


# -- ratings and times ----------------------------------------------------------------------------


def _draw_truth(pairs: RatedPairs, factors: int, levels: int, seed: int) -> Truth:
    random = np.random.default_rng((seed, 4))
    n_users, n_items = len(pairs.offsets) - 1, len(pairs.popularity)
    user_bias = USER_SPREAD * random.standard_normal(n_users)
    independent = np.sqrt(1 - POPULARITY_CORRELATION**2) * random.standard_normal(n_items)
    item_bias = ITEM_SPREAD * (POPULARITY_CORRELATION * pairs.popularity + independent)
    # Centered on the rated pairs, so that the histogram hardly depends on the shape and the tails.
    user_bias -= np.average(user_bias, weights=np.diff(pairs.offsets))
    item_bias -= np.average(item_bias, weights=np.bincount(pairs.items, minlength=n_items))
    deviation = np.sqrt(FACTOR_SPREAD) / factors**0.25 if factors else 0.0
    vectors = deviation * random.standard_normal((n_users + n_items, factors), np.float32)
    return Truth(
        user_bias,
        item_bias,
        vectors[:n_users].astype(np.float32),
        vectors[n_users:].astype(np.float32),
        np.linspace(LOWEST_CUT, HIGHEST_CUT, levels + 1)[1:-1],
    )


def _draw_levels(pairs: RatedPairs, truth: Truth, seed: int) -> tuple[IndexArray, LevelArray]:
    """Draw the level of every rated pair. Returns users and levels, (n,) each."""
    from cfnade.kernels.synthetic_sampling import draw_levels

    users, levels = np.empty(len(pairs.items), np.int32), np.empty(len(pairs.items), np.uint8)
    key = _stream_key(seed, 5)
    parameters = (
        *(truth.user_bias, truth.item_bias),
        *(truth.user_factors, truth.item_factors, truth.cuts),
    )
    _in_blocks(
        pairs.offsets,
        lambda a, b: draw_levels(key, a, b, pairs.offsets, pairs.items, *parameters, users, levels),
    )
    return users, levels


def _draw_times(users: IndexArray, count: int, seed: int) -> npt.NDArray[np.int32]:
    """Draw times: each user rates within a period of minutes to years, mostly early in it."""
    random = np.random.default_rng((seed, 6))
    period = np.exp(random.uniform(np.log(_SHORTEST_PERIOD), np.log(_TIME_SPAN), count)).astype(
        np.float32
    )
    start = (random.random(count) * (_TIME_SPAN - period)).astype(np.int32) + _FIRST_TIME
    times = np.empty(len(users), np.int32)
    for a in range(0, len(users), _CHUNK):
        chunk = users[a : a + _CHUNK]
        elapsed = np.square(random.random(len(chunk), np.float32)) * period[chunk]
        times[a : a + _CHUNK] = start[chunk] + elapsed.astype(np.int32)
    return times


# -- threads --------------------------------------------------------------------------------------


def _stream_key(seed: int, stream: int) -> np.uint64:
    """Return the key of one stream of random numbers."""
    return np.uint64(np.random.SeedSequence((seed, stream)).generate_state(1, np.uint64)[0])


def _in_blocks(offsets: IntArray, work: Callable[[int, int], object]) -> None:
    """Call work(first, last) for ranges of users with about a million ratings each, in threads."""
    n_blocks = 1 + int(offsets[-1]) // _BLOCK
    targets = np.linspace(0, int(offsets[-1]), n_blocks + 1)[1:-1]
    bounds = [0, *np.searchsorted(offsets, targets).tolist(), len(offsets) - 1]
    parallel_map(work, bounds[:-1], bounds[1:])
