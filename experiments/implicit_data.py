"""Data of implicit_results.py: files, likes of rating data, synthetic shapes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset, Interactions
from cfnade.data.load import load, load_split
from cfnade_baselines.ranking_protocol import RankingQuery, rated_items, row_counts

FILES = ("steam", "lastfm")
"""Data sets with a training and a test file."""
RATINGS: dict[str, dict[str, Any]] = {
    "ml-100k": {"data": "ml-100k"},
    "ml-latest-small": {"data": "ml-latest-small"},
    "ml-1m": {"data": "ml-1m"},
    "filmtrust": {"data": "other/filmtrust.txt.xz", "duplicates": "last"},
    "douban": {"data": "other/douban.csv.xz"},
}
"""Ratings whose likes are the interactions: the upper quarter of the scale, 4 and 5 of 1-5."""
SHAPES: dict[str, tuple[int, int, int, float]] = {
    "power law": (2_000, 2_000, 30, 1.2),
    "few users, many items": (300, 8_000, 100, 0.8),
    "many users, few items": (20_000, 150, 8, 0.5),
    "repeat consumption": (2_000, 1_500, 30, 0.8),
    "drifting popularity": (2_000, 1_500, 30, 0.8),
}
"""Users, items, interactions per user, exponent of popularity."""
HELD_OUT, MIN_INTERACTIONS = 0.2, 5


@dataclass(frozen=True)
class Row:
    """Interactions for training and test, with the same users and items."""

    train: Dataset
    test: Dataset

    def query(self) -> RankingQuery:
        """Return the query of all users with test items; all items are candidates."""
        histories, held_out = rated_items(self.train), rated_items(self.test)
        users = np.flatnonzero(row_counts(held_out))
        candidates = np.ones(self.train.n_items, bool)
        return RankingQuery(users, histories[users], histories[users], held_out[users], candidates)


def hide(data: Dataset, seed: int, *, latest: bool = False) -> Row:
    """Hold out a fifth of the interactions of each user with five or more."""
    keys = np.random.default_rng((seed, 40)).random(len(data))
    if latest and data.times is not None:
        keys = -data.times.astype(np.float64)
    order = np.lexsort((keys, data.users))
    counts = np.bincount(data.users, minlength=data.n_users)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.empty(len(data), np.int64)
    place[order] = np.arange(len(data)) - starts[data.users[order]]
    n_hidden = np.where(counts >= MIN_INTERACTIONS, np.maximum(1, np.rint(HELD_OUT * counts)), 0)
    hidden = place < n_hidden[data.users]
    return Row(data.select(np.flatnonzero(~hidden)), data.select(np.flatnonzero(hidden)))


def load_row(name: str, seed: int) -> Row:
    """Return the data of a row."""
    folder = Path(os.environ.get("CFNADE_DATA", "."))
    if name in FILES:
        train, test = (folder / "other" / f"{name}_{part}.csv.xz" for part in ("train", "test"))
        parts = load_split(str(train), f"file:{test}")
        return Row(parts.train.concat(parts.valid), parts.test)
    if name in RATINGS:
        options = dict(RATINGS[name])
        data = options.pop("data")
        source = str(folder / data) if "/" in data else data
        return hide(likes(load(source, **options)), seed)
    return hide(synthetic_interactions(name, seed), seed, latest=name == "drifting popularity")


def likes(ratings: Dataset) -> Interactions:
    """Return the ratings in the upper quarter of the scale as interactions."""
    liked = ratings.select(np.flatnonzero(ratings.values >= ratings.scale.default_threshold - 1e-9))
    return Interactions(
        users=liked.users,
        items=liked.items,
        user_ids=liked.user_ids,
        item_ids=liked.item_ids,
        source=liked.source,
    )


def synthetic_interactions(name: str, seed: int) -> Interactions:
    """Sample interactions by popularity n^-a and factors of eight dimensions."""
    n_users, n_items, each, power = SHAPES[name]
    rng = np.random.default_rng((seed, 41))
    popularity = -power * np.log(np.arange(1, n_items + 1))
    user_factors, item_factors = (rng.standard_normal((n, 8)) for n in (n_users, n_items))
    utility = popularity + 0.5 * user_factors @ item_factors.T
    users = np.repeat(np.arange(n_users, dtype=np.int32), each)
    times: npt.NDArray[np.int64] | None = None
    if name == "drifting popularity":  # each item has a week of highest popularity
        times = np.sort(rng.integers(0, 52, (n_users, each)), 1).ravel()
        peak = rng.integers(0, 52, n_items)
        items = np.concatenate(
            [
                _drifting(utility[u], times[u * each : (u + 1) * each], peak, rng)
                for u in range(n_users)
            ]
        )
    else:
        keys = utility + rng.gumbel(size=utility.shape)
        items = np.argsort(-keys, axis=1)[:, :each].ravel()
    weights = None
    if name == "repeat consumption":
        weights = 1 + rng.poisson(np.exp(0.5 * utility[users, items] + 2)).astype(np.float32)
    return Interactions(
        users=users,
        items=items.astype(np.int32),
        user_ids=np.arange(n_users),
        item_ids=np.arange(n_items),
        times=times,
        weights=weights,
        source=f"{name}, seed {seed}",
    )


def _drifting(
    utility: npt.NDArray[Any], weeks: npt.NDArray[Any], peak: npt.NDArray[Any], rng: Any
) -> npt.NDArray[Any]:
    """Sample a user's items one by one, without replacement."""
    available, items = utility.copy(), list[int]()
    for week in weeks:
        keys = available - 0.05 * np.abs(peak - week) + rng.gumbel(size=len(available))
        items.append(int(keys.argmax()))
        available[items[-1]] = -np.inf
    return np.array(items)
