"""Made-up ratings whose true distribution is known, so that the best reachable score is, too."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings
from cfnade.data.rows import IndexArray, LevelArray
from cfnade.data.scale import Scale, given_scale
from cfnade.data.tails import draw_cells, threads
from cfnade.data.truth import Truth, draw_levels, draw_truth
from cfnade.errors import DataError

FloatArray = npt.NDArray[np.float64]

PRESETS = {
    "ml-1m": (6_040, 3_706, 1_000_209, "1-5"),
    "ml-10m": (69_878, 10_677, 10_000_054, "0.5-5/0.5"),
    "netflix": (480_189, 17_770, 100_480_507, "1-5"),
}
"""Users, items, ratings and scale of published data sets."""

_CHUNK = 1 << 18
_FIRST_TIME, _SPAN = 946_684_800, 3 * 365 * 86_400  # three years from January 2000
_SHORTEST = 600  # seconds in which the hastiest person rates everything


@dataclass(frozen=True, eq=False, repr=False)
class Synthetic:
    """Drawn ratings and the truth that they were drawn from.

    Users and items are indices, as in `ratings.users`; parts of the ratings keep them, so a
    split's test part has a best score too.
    """

    ratings: Ratings
    truth: Truth

    def __repr__(self) -> str:
        return f"<Synthetic {self.ratings!r}, {self.truth.user_taste.shape[1]} factors>"

    def probabilities(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """The true chance of every level in these cells. Returns (n, K)."""
        return self.truth.probabilities(np.atleast_1d(users), np.atleast_1d(items))

    def means(self, users: npt.ArrayLike, items: npt.ArrayLike) -> FloatArray:
        """What these cells' ratings are on average, in stars: the best prediction. Returns (n,)."""
        means: FloatArray = self.probabilities(users, items) @ self.ratings.scale.array()
        return means

    def best_rmse(self, part: Ratings | None = None, *, drawn: bool = False) -> float:
        """The RMSE of the true means on a part (or all), expected over redrawn ratings.

        With `drawn`, the RMSE on the ratings as they fell.
        """
        values = self.ratings.scale.array()

        def errors(chances: FloatArray, levels: LevelArray) -> float:
            means = chances @ values
            if drawn:
                return float(np.square(values[levels] - means).sum())
            return float((chances @ np.square(values) - np.square(means)).sum())

        return float(np.sqrt(self._average(errors, part)))

    def best_nll(self, part: Ratings | None = None, *, drawn: bool = False) -> float:
        """The true distributions' negative log-likelihood per rating, as in `best_rmse`."""

        def costs(chances: FloatArray, levels: LevelArray) -> float:
            logs = np.log(np.maximum(chances, 1e-300))  # 0 log 0 is 0
            if drawn:
                return -float(np.take_along_axis(logs, levels[:, None].astype(np.intp), 1).sum())
            return -float((chances * logs).sum())

        return self._average(costs, part)

    def _average(
        self, total: Callable[[FloatArray, LevelArray], float], part: Ratings | None
    ) -> float:
        part = self.ratings if part is None else part
        if len(part) == 0:
            raise DataError("a part without ratings has no best score")

        def block(start: int) -> float:
            at = slice(start, start + _CHUNK)
            return total(self.probabilities(part.users[at], part.items[at]), part.levels[at])

        with ThreadPoolExecutor(threads()) as pool:
            return sum(pool.map(block, range(0, len(part), _CHUNK))) / len(part)


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
    truth = draw_truth(cells, factors, len(steps), seed)
    who, stars = draw_levels(cells, truth, seed)
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
        nearest = difflib.get_close_matches(name.lower(), PRESETS, 1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise DataError(f"no shape is named {name!r}; {hint}possible are {', '.join(PRESETS)}")
    if not 1 <= scale_down < np.inf:
        raise DataError(f"scale_down={scale_down}: it must be 1 or more")
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
    shape = f"{users:,} users, {items:,} items, {ratings:,} ratings"
    if users < 1 or items < 1:
        raise DataError(f"{shape}: at least one user and one item are needed")
    if ratings > users * items:
        raise DataError(
            f"{shape}: there are only {users * items:,} cells, and each is rated once at most"
        )
    if ratings < max(users, items):
        raise DataError(
            f"{shape}: every user and item has a rating, so there must be {max(users, items):,} "
            "or more"
        )
    if max(users, items) >= 2**31:
        raise DataError(f"{shape}: users and items are counted in 31 bits")
    if factors < 0 or seed < 0:
        raise DataError(f"factors={factors}, seed={seed}: neither can be below 0")


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
