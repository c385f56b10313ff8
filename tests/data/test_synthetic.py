from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cfnade.data.splits import split
from cfnade.data.synthetic import (
    N_FACTORS,
    PRESETS,
    Synthetic,
    alias_table,
    apportion,
    synthetic,
    synthetic_interactions,
    synthetic_like,
)
from cfnade.exceptions import DataError
from cfnade.kernels.synthetic_sampling import draw_items


@pytest.fixture(scope="module")
def drawn() -> Synthetic:
    return synthetic_like("ml-1m", 7, scale_down=10)


# -- shape -------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 30), st.data(), st.integers(0, 2**40))
def test_shapes_are_exact(users: int, items: int, data: st.DataObject, seed: int) -> None:
    n = data.draw(st.integers(max(users, items), users * items))
    ratings = synthetic(users, items, n, seed=seed, factors=2).ratings
    assert (len(ratings), ratings.n_users, ratings.n_items) == (n, users, items)
    cells = ratings.users.astype(np.int64) * items + ratings.items
    assert np.all(np.diff(cells) > 0)  # distinct, by user, items rising
    assert np.bincount(ratings.users, minlength=users).min() >= min(3, n // users)
    assert np.bincount(ratings.items, minlength=items).min() >= 1
    assert ratings.users.max() < users
    assert ratings.items.max() < items
    assert ratings.levels.max() < 5


@pytest.mark.parametrize(("name", "shape"), PRESETS.items())
def test_presets_have_the_published_shapes(name: str, shape: tuple[int, int, int, str]) -> None:
    published = {
        "ml-1m": (6_040, 3_706, 1_000_209, "1-5"),
        "ml-10m": (69_878, 10_677, 10_000_054, "0.5-5/0.5"),
        "netflix": (480_189, 17_770, 100_480_507, "1-5"),
    }
    assert shape == published[name]
    small = synthetic_like(name, 1, scale_down=10_000).ratings
    assert len(small) == round(shape[2] / 10_000)
    assert (small.n_users, small.n_items) == (round(shape[0] / 100), round(shape[1] / 100))
    assert len(small.scale) == (10 if name == "ml-10m" else 5)
    assert small.source == f"synthetic {name} / 10000, seed 1"


# -- truth -------------------------------------------------------------------------------------


def test_ratings_follow_the_true_distribution(drawn: Synthetic) -> None:
    """Within each tenth of the cells by true mean, levels have their expected counts."""
    ratings = drawn.ratings
    chances = drawn.probabilities(ratings.users, ratings.items)
    groups = np.array_split(np.argsort(drawn.means(ratings.users, ratings.items)), 10)
    for group in groups:
        expected = chances[group].sum(0)
        observed = np.bincount(ratings.levels[group], minlength=5)
        used = expected > 5
        statistic = (np.square(observed - expected) / expected)[used].sum()
        assert stats.chi2.sf(statistic, used.sum() - 1) > 1e-4


def test_probabilities_follow_the_formula(drawn: Synthetic) -> None:
    truth = drawn.truth
    for user, item in [(0, 0), (5, 17), (1000, 900)]:
        taste = float(
            truth.user_factors[user].astype(float) @ truth.item_factors[item].astype(float)
        )
        liking = truth.user_bias[user] + truth.item_bias[item] + taste
        at_most = [1 / (1 + np.exp(liking - cut)) for cut in truth.cuts]
        expected = np.diff([0.0, *at_most, 1.0])
        np.testing.assert_allclose(drawn.probabilities(user, item)[0], expected, atol=1e-12)
        np.testing.assert_allclose(drawn.means(user, item), expected @ np.arange(1, 6))


# -- seeds, times, refusals --------------------------------------------------------------------


def test_seeds_are_reproducible() -> None:
    one, two, other = (synthetic(300, 200, 9000, seed=s, times=True) for s in (5, 5, 6))
    assert one.ratings == two.ratings
    assert one.ratings != other.ratings
    np.testing.assert_array_equal(one.truth.user_factors, two.truth.user_factors)
    assert not np.array_equal(one.ratings.items, other.ratings.items)


def test_every_option_changes_the_ratings() -> None:
    def draw(**options: object) -> Synthetic:
        return synthetic(60, 50, 900, seed=1, **options)  # type: ignore[arg-type]

    plain = draw()
    assert draw(factors=3).ratings != plain.ratings
    assert draw(levels=7).ratings.scale.values == (1, 2, 3, 4, 5, 6, 7)
    assert draw(scale="0-1").ratings.scale.values == (0, 1)
    assert draw(name="mine").ratings.source == "mine, seed 1"
    assert plain.ratings.times is None
    assert draw(times=True).ratings.times is not None


def test_times_of_each_user_lie_in_a_short_period() -> None:
    ratings = synthetic(300, 200, 9000, seed=5, times=True).ratings
    times = ratings.times
    assert times is not None
    assert times.dtype == np.int32
    assert times.min() >= 946_684_800
    assert times.max() <= 946_684_800 + 3 * 365 * 86_400
    own = [times[ratings.users == user] for user in range(300)]
    assert np.median([np.ptp(part) for part in own]) < np.ptp(times) / 10
    assert split(ratings, "time").test.n_users == 300


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 4, 13), r"3 users, 4 items, 13 ratings: .*must be 4 to 12"),
        ((3, 4, 3), r"every user and item has a rating .*must be 4 to 12"),
        ((0, 4, 0), r"users \(=0\) must be a whole number in 1\.\.2147483647"),
        ((3, -4, 4), r"items \(=-4\) must be a whole number"),
        ((3, 4, 5.0), r"ratings \(=5\.0\) must be a whole number"),
    ],
)
def test_impossible_shapes_are_refused(shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        synthetic(*shape, seed=1)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(DataError, match=r"factors \(=-1\) must be a whole number of at least 0"):
        synthetic(3, 4, 5, seed=1, factors=-1)
    with pytest.raises(DataError, match=r"unknown shape 'ml-2m'; did you mean 'ml-1m'\?"):
        synthetic_like("ml-2m", 1)


# -- sampling ----------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.integers(1, 50), st.data())
def test_apportion(weights: list[float], maximum: int, data: st.DataObject) -> None:
    total = data.draw(st.integers(0, maximum * len(weights)))
    shares = apportion(total, np.array(weights), maximum)
    assert shares.sum() == total
    assert shares.min() >= 0
    assert shares.max() <= maximum
    order = np.argsort(weights, kind="stable")
    assert np.all(np.diff(shares[order]) >= -1)  # who weighs more has no less, but for rounding


@settings(max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_alias_table(weights: list[float]) -> None:
    accept, alias = alias_table(np.array(weights))
    probabilities = np.minimum(accept, 1) / len(weights)
    np.add.at(probabilities, alias, (1 - np.minimum(accept, 1)) / len(weights))
    np.testing.assert_allclose(probabilities, np.array(weights) / sum(weights), atol=1e-9)


def test_items_are_sampled_by_weight() -> None:
    """With one rating each, people's items are independent draws from the popularities."""
    weights = np.array([5.0, 1.0, 3.0, 0.5, 2.0, 1.5, 4.0, 3.0])
    offsets, items = np.arange(20_001), np.empty(20_000, np.int32)
    tables = (weights, *alias_table(weights))
    draw_items(np.uint64(5), 0, 20_000, offsets, *tables, items)
    observed = np.bincount(items, minlength=8)
    assert stats.chisquare(observed, 20_000 * weights / weights.sum()).pvalue > 1e-4


@pytest.mark.parametrize("count", [8, 16])  # one by one from 8 items on; by waiting times below
def test_both_samplers_draw_without_replacement(
    count: int,
) -> None:
    weights = np.linspace(1.0, 4.0, count)
    if count == 8:
        weights = weights[:7]  # 4 · 2 > 7
    probabilities = weights / weights.sum()
    offsets, items = 2 * np.arange(20_001), np.empty(40_000, np.int32)
    draw_items(np.uint64(9), 0, 20_000, offsets, weights, *alias_table(weights), items)
    pairs = items.reshape(-1, 2)
    observed, expected = [], []
    for a in range(len(weights)):
        for b in range(a + 1, len(weights)):
            in_turn = (
                probabilities[a]
                * probabilities[b]
                * (1 / (1 - probabilities[a]) + 1 / (1 - probabilities[b]))
            )
            expected.append(20_000 * in_turn)
            observed.append(int(((pairs[:, 0] == a) & (pairs[:, 1] == b)).sum()))
    assert sum(observed) == 20_000
    assert stats.chisquare(observed, expected).pvalue > 1e-4


# -- interactions ------------------------------------------------------------------------------


def test_interactions_are_sampled_without_replacement() -> None:
    made = synthetic_interactions(4000, 5, 2, seed=3)
    first, second = made.interactions.items.reshape(-1, 2).T
    assert (first != second).all()
    probabilities = np.exp(made.utility) / np.exp(made.utility).sum(1, keepdims=True)
    after_first = probabilities.copy()
    after_first[np.arange(4000), first] = 0
    after_first /= after_first.sum(1, keepdims=True)
    for drawn, expected in ((first, probabilities), (second, after_first)):
        spread = np.sqrt((expected * (1 - expected)).sum(0))
        odd = (np.bincount(drawn, minlength=5) - expected.sum(0)) / spread
        assert np.abs(odd).max() < 4
    assert np.linalg.matrix_rank(made.utility - made.utility.mean(0)) <= N_FACTORS


def test_seeds_of_interactions_are_reproducible() -> None:
    ratings = synthetic_interactions(30, 20, 7, seed=1).interactions
    assert ratings == synthetic_interactions(30, 20, 7, seed=1).interactions
    assert ratings != synthetic_interactions(30, 20, 7, seed=2).interactions
    assert ratings.implicit
    assert np.bincount(ratings.users).tolist() == [7] * 30
    with pytest.raises(DataError, match=r"per_user \(=21\) must be a whole number in 1\.\.20"):
        synthetic_interactions(30, 20, 21, seed=1)
