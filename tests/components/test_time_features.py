"""Time features against plain loops, and without a trace of the rating itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file

from cfnade.components.time_features import FEATURES, LIMIT, TimeFeatures
from cfnade.components.time_history import UNIT, VIEWS
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.exceptions import DataError

DAY = 86400


class Rating(NamedTuple):
    """`ends` are user and item; `part` is of the scale's span."""

    ends: tuple[int, int]
    part: float
    time: int


def drawn(seed: int, n_users: int = 64, n_items: int = 44, stars: float = 1.0) -> Dataset:
    """Bursts of ratings with many equal times; user 0 and item 0 rated once, user 1 never.

    A few users rate nearly all and a few items are rated by nearly all, so that no window and no
    number of neighbours spans every history.
    """
    rng = np.random.default_rng(seed)
    chance = np.full((n_users, n_items), 0.02)
    chance[:5], chance[:, :5] = 0.95, 0.95
    chance[:2], chance[:, 0] = 0, 0
    chance[0, 3] = chance[5, 0] = 1
    cells = np.argwhere(rng.random(chance.shape) < chance)
    users, items = cells[rng.permutation(len(cells))].T.astype(np.int32)
    # Differences of exactly a window's width are common, so that its edge matters.
    start = DAY * (rng.integers(0, 90, n_users)[users] + rng.choice([0, 0, 9], len(users)))
    times = 960_000_000 + start + rng.choice([0, 0, 1, 60, 600, 3600, 43_200], len(users))
    return Ratings(
        users=users,
        items=items,
        levels=rng.integers(0, 5, len(users)).astype(np.uint8),
        scale=Scale(tuple(stars * k for k in (1.0, 2.0, 3.0, 4.0, 6.0))),
        user_ids=np.arange(n_users),
        item_ids=np.arange(n_items),
        times=times.astype(np.int32),
    )


def as_list(ratings: Dataset) -> list[Rating]:
    assert ratings.times is not None
    values = ratings.values
    parts = (values - values.min()) / (values.max() - values.min())
    columns = (ratings.users, ratings.items, parts, ratings.times)
    lists = (column.tolist() for column in columns)
    return [Rating((u, i), part, time) for u, i, part, time in zip(*lists, strict=True)]


# -- the same in plain loops ------------------------------------------------------------------


def plain_biases(known: list[Rating], side: int, fold: int) -> Callable[[int], float]:
    """μ + b of the other side's indices, from rows outside the fold, by five sweeps."""
    used = [rating for rating in known if rating.ends[side] % 8 != fold]
    mean = sum(r.part for r in used) / max(len(used), 1)
    other = 1 - side
    a: dict[int, float] = {}
    b: dict[int, float] = {}
    for _ in range(5):
        a = shrunken_means(
            [(r.ends[side], r.part - mean - b.get(r.ends[other], 0.0)) for r in used]
        )
        b = shrunken_means([(r.ends[other], r.part - mean - a[r.ends[side]]) for r in used])
    return lambda column: mean + b.get(column, 0.0)


def shrunken_means(pairs: list[tuple[int, float]]) -> dict[int, float]:
    groups: dict[int, list[float]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: sum(group) / (len(group) + 5) for key, group in groups.items()}


def signed_log(seconds: int) -> float:
    return math.copysign(math.log(1 + abs(seconds) / 3600), seconds)


def plain_side(known: list[Rating], side: int, cell: tuple[int, int], time: int) -> list[float]:
    """One side's raw features. `known` has no rating of the cell."""
    view = VIEWS["item" if side else "user"]
    row, other = cell[side], cell[1 - side]
    bias = plain_biases(known, side, row % 8)
    own = [(r.time, r.ends[1 - side], r.part) for r in known if r.ends[side] == row]
    history = sorted((time, column, part - bias(column)) for time, column, part in own)
    if not history:
        return [math.nan] * view.width
    mean = sum(residual for _, _, residual in history) / len(history)

    def shrunken(some: list[tuple[int, int, float]]) -> float:
        return sum(residual - mean for _, _, residual in some) / (len(some) + view.shrink)

    earlier = sum(t < time for t, _, _ in history)
    same = sum(t == time for t, _, _ in history)
    found = [(earlier + same / 2 + 0.5) / (len(history) + 1)]
    found += [signed_log(time - history[0][0]), signed_log(history[-1][0] - time)]
    for width in view.windows:
        inside = [h for h in history if abs(h[0] - time) <= width]
        found += [shrunken(inside), math.log(1 + len(inside))]
    before = [h for h in history if (h[0], h[1]) < (time, other)]
    after = [h for h in history if (h[0], h[1]) > (time, other)]
    return found + [shrunken(before[-reach:] + after[:reach]) for reach in view.neighbours]


def plain_raw(
    known: list[Rating], period: tuple[int, int], cell: tuple[int, int], time: int
) -> list[float]:
    date = (2 * time - period[0] - period[1]) / (period[1] - period[0])
    sides = plain_side(known, 0, cell, time) + plain_side(known, 1, cell, time)
    return [*sides, date, date * date]


def plain_training(known: list[Rating]) -> npt.NDArray[np.float64]:
    """Every training rating's raw features from a list that it is not in."""
    times = [rating.time for rating in known]
    period = min(times), max(times)
    rows = [
        plain_raw([r for r in known if r is not own], period, own.ends, own.time) for own in known
    ]
    return np.array(rows)


def standardised(
    raw: npt.NDArray[np.float64], training: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    scaled = (raw - np.nanmean(training, 0)) / np.nanstd(training, 0)
    return np.asarray(np.nan_to_num(np.clip(scaled, -LIMIT, LIMIT)))


# -- exactness --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return drawn(1)


@pytest.fixture(scope="module")
def plain(ratings: Dataset) -> npt.NDArray[np.float64]:
    return plain_training(as_list(ratings))


def test_training_features_agree_with_loops_over_all_other_ratings(
    ratings: Dataset, plain: npt.NDArray[np.float64]
) -> None:
    found = TimeFeatures.of(ratings).features_of_training()
    assert found.dtype == np.float32
    assert found.shape == (len(ratings), len(FEATURES)) == (len(ratings), 30)
    np.testing.assert_allclose(found, standardised(plain, plain), atol=2e-5)


def test_features_of_new_cells_agree_with_loops(
    ratings: Dataset, plain: npt.NDArray[np.float64]
) -> None:
    known = as_list(ratings)
    times = [rating.time for rating in known]
    taken = {rating.ends for rating in known}
    free = [(u, i) for u in range(64) for i in range(44) if (u, i) not in taken][::23]
    moments = [times[3 * k % len(times)] + (0, 0, 59, 61, -9000)[k % 5] for k in range(len(free))]
    moments[0], moments[1] = min(times) - 400 * DAY, max(times) + 400 * DAY
    period = min(times), max(times)
    raw = np.array([plain_raw(known, period, c, m) for c, m in zip(free, moments, strict=True)])
    users, items = np.array(free).T
    found = TimeFeatures.of(ratings).features(users, items, np.array(moments))
    np.testing.assert_allclose(found, standardised(raw, plain), atol=2e-5)


def test_every_feature_varies_in_the_data_of_these_tests(plain: npt.NDArray[np.float64]) -> None:
    assert (np.nanstd(plain, 0) > 1e-3).all()


# -- no trace of the rating itself --------------------------------------------------------------


def raw_of(features: TimeFeatures, ratings: Dataset, at: int) -> npt.NDArray[np.float32]:
    assert ratings.times is not None
    one = slice(at, at + 1)
    users, items = np.array(ratings.users[one]), np.array(ratings.items[one])
    return features._raw(users, items, ratings.times[one].astype(np.int64))


def with_level(ratings: Dataset, at: int, level: int) -> Dataset:
    levels = ratings.levels.copy()
    levels[at] = level
    return ratings.replace(levels=levels)


@pytest.mark.parametrize("at", range(0, 300, 43))
def test_a_ratings_level_and_presence_change_no_bit_of_its_raw_features(
    ratings: Dataset, at: int
) -> None:
    """Through biases and means neither: as if everything were made anew without it."""
    found = [
        raw_of(TimeFeatures.of(with_level(ratings, at, level)), ratings, at) for level in (0, 2, 4)
    ]
    without = TimeFeatures.of(ratings.select(np.arange(len(ratings)) != at))
    without = replace(without, period=TimeFeatures.of(ratings).period)
    for other in [*found[1:], raw_of(without, ratings, at)]:
        np.testing.assert_array_equal(other, found[0])


def test_others_notice_a_ratings_level(ratings: Dataset) -> None:
    """The test above could not fail if levels did nothing."""
    other = TimeFeatures.of(with_level(ratings, 10, (int(ratings.levels[10]) + 2) % 5))
    changed = np.any(
        other.features_of_training() != TimeFeatures.of(ratings).features_of_training(), 1
    )
    assert changed.mean() > 0.5


def test_standardisation_is_the_only_trace_and_a_nth_part(ratings: Dataset) -> None:
    first, last = (
        TimeFeatures.of(with_level(ratings, 10, level)).features_of_training()[10]
        for level in (0, 4)
    )
    assert 0 < np.abs(first - last).max() < 25 / len(ratings)


def test_noise_cannot_be_learnt_from_features_made_with_it() -> None:
    """Levels drawn at random: a regression fitted on features must not predict new ones."""
    noise = drawn(3, 900, 700)
    made = TimeFeatures.of(noise)
    x = np.column_stack([made.features_of_training(), np.ones(len(noise))]).astype(np.float64)
    y = noise.values - noise.values.mean()
    weights = np.linalg.lstsq(x, y, rcond=None)[0]
    explained = 1 - np.mean(np.square(y - x @ weights)) / np.mean(np.square(y))
    # By chance F/n; a leak of own levels would be far more.
    assert explained < 3 * len(FEATURES) / len(noise)


# -- rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_the_file_changes_no_bit(ratings: Dataset, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(ratings))
    shuffled = TimeFeatures.of(ratings.select(order))
    np.testing.assert_array_equal(
        shuffled.features_of_training(), TimeFeatures.of(ratings).features_of_training()[order]
    )


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    many = drawn(5, 1500, 1300)
    monkeypatch.setattr("cfnade.components.time_features._CHUNK", 1 << 13)
    assert len(many) > 5 << 13
    first = TimeFeatures.of(many).features_of_training()
    monkeypatch.setattr("cfnade.utils.threads.available_threads", lambda: 5)
    np.testing.assert_array_equal(TimeFeatures.of(many).features_of_training(), first)


@pytest.mark.parametrize("stars", [1e-4, 0.5, 20.0])
def test_the_unit_of_the_scale_does_not_matter(stars: float) -> None:
    first = TimeFeatures.of(drawn(1)).features_of_training()
    np.testing.assert_allclose(
        TimeFeatures.of(drawn(1, stars=stars)).features_of_training(), first, atol=1e-4
    )


def test_a_side_without_other_ratings_is_neutral(ratings: Dataset) -> None:
    made, user = TimeFeatures.of(ratings), VIEWS["user"].width
    trained = made.features_of_training()
    alone = trained[ratings.users == 0]  # rated once: left out, nothing remains
    assert not alone[:, :user].any()
    assert alone[:, user:].all()
    assert not trained[ratings.items == 0][:, user:28].any()
    unknown = made.features([-1, 1, 4, -1], [3, 3, -1, -1], [960_000_000] * 4)
    assert not unknown[:2, :user].any()  # unknown, and known by id alone
    assert unknown[0, user:28].any()
    assert unknown[2, :user].any()
    assert not unknown[2:, user:28].any()
    np.testing.assert_array_equal(unknown[:, 28:], unknown[:1, 28:].repeat(4, 0))


def test_far_times_and_one_single_time_stay_finite(ratings: Dataset) -> None:
    far = TimeFeatures.of(ratings).features([4, 4, 4], [2, 2, 2], [-(2**51), 0, 2**51])
    assert np.abs(far).max() == LIMIT
    assert ratings.times is not None
    still = TimeFeatures.of(ratings.replace(times=np.full_like(ratings.times, 7)))
    assert np.isfinite(still.features_of_training()).all()
    one = TimeFeatures.of(ratings.select(np.arange(1)))
    assert not one.features_of_training().any()


def test_residuals_fit_their_units(ratings: Dataset) -> None:
    """Ratings lie in 0..1 and biases are shrunken: no residual nears the 16 that int32 holds."""
    for history in (TimeFeatures.of(ratings).user, TimeFeatures.of(ratings).item):
        assert np.abs(history.residuals * UNIT).max() < 2


# -- saved and refused --------------------------------------------------------------------------


def test_saved_and_loaded_gives_the_same_bits(ratings: Dataset, tmp_path: Path) -> None:
    made = TimeFeatures.of(ratings)
    save_file(made.arrays(), tmp_path / "time.safetensors")
    loaded = TimeFeatures.from_arrays(load_file(tmp_path / "time.safetensors"))
    assert ratings.times is not None
    cells = ratings.users, ratings.items, ratings.times
    np.testing.assert_array_equal(loaded.features(*cells), made.features_of_training())
    with pytest.raises(DataError, match=r"features\(users, items, times\) of those ratings"):
        loaded.features_of_training()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("centre", np.zeros(29), "need centre, 30 numbers of float64"),
        ("spread", np.zeros(30), "spread > 0"),
        ("period", np.array([0.0, np.inf]), "must be finite"),
        ("user.offsets", np.array([0, 5, 3]), r"user\.offsets do not rise from 0"),
        ("user.times", np.zeros(3, np.int64), "user histories' arrays differ in length"),
        ("item.others", np.zeros(3), r"need item\.others, numbers of int32"),
        ("item.offsets", np.arange(1, 46), r"item\.offsets do not rise from 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    ratings: Dataset, name: str, value: npt.NDArray[np.float64], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        TimeFeatures.from_arrays({**TimeFeatures.of(ratings).arrays(), name: value})


def test_an_index_beyond_the_other_side_is_refused(ratings: Dataset) -> None:
    arrays = TimeFeatures.of(ratings).arrays()
    with pytest.raises(DataError, match=r"user\.others must lie in 0\.\.43"):
        TimeFeatures.from_arrays({**arrays, "user.others": arrays["user.others"] + np.int32(9)})


def test_wrong_cells_are_refused(ratings: Dataset) -> None:
    made = TimeFeatures.of(ratings)
    with pytest.raises(DataError, match=r"user 0\.\.64 is outside: known are 0\.\.63"):
        made.features([0, 64], [1, 1], [5, 5])
    with pytest.raises(DataError, match="2 users, 1 items and 2 times do not make cells"):
        made.features([0, 1], [1], [5, 5])
    with pytest.raises(DataError, match="whole seconds since 1970, not float64"):
        made.features([0], [1], [5.5])
    with pytest.raises(DataError, match="beyond"):
        made.features([0], [1], [2**60])
    with pytest.raises(DataError, match="no timestamps; time features need them"):
        TimeFeatures.of(ratings.replace(times=None))
    with pytest.raises(DataError, match="no ratings"):
        TimeFeatures.of(ratings.select(np.arange(0)))
