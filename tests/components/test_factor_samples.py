"""Factor analysis by sampling."""

from __future__ import annotations

import numpy as np
import torch

from cfnade.components.gibbs import sample_factor_analysis
from cfnade.components.variational_bayes import Doubles, Factors, fit_factor_analysis
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic
from cfnade.models.config import FactorConfig
from cfnade.models.factor_network import FactorNetwork


def expected(found: list[Factors], known: Dataset, asked: Dataset) -> Doubles:
    """The mean over samples of what each expects of cells, by ridge regression. In levels."""
    rows, out = known.rows("user"), np.zeros(len(asked))
    for one in found:
        a, c, mean = (part.astype(np.float64) for part in (one.a, one.c, one.mean))
        for user in np.unique(asked.users):
            own = slice(rows.offsets[user], rows.offsets[user + 1])
            columns, mine = rows.columns[own], asked.users == user
            A, left = a[columns], rows.levels[own] - mean[columns]
            precision = np.eye(a.shape[1]) + (A.T @ A + np.diag(c[columns].sum(0))) / one.noise
            z = np.linalg.solve(precision, A.T @ left / one.noise)
            out[mine] += mean[asked.items[mine]] + a[asked.items[mine]] @ z
    return out / len(found)


def test_tastes_that_variational_bayes_switches_off_are_found() -> None:
    """Against the truth, which is known here."""
    errors = []
    for seed in (11, 12):
        made = synthetic(290, 300, 7_000, factors=4, seed=seed)
        parts = split(made.ratings, f"paper:{seed}")
        known, asked = parts.train.concat(parts.valid), parts.test
        truth = made.means(asked.users, asked.items) - 1
        drawn = sample_factor_analysis(
            known.rows("user"), known.rows("item"), 7, count=6, seed=seed, threads=1
        )
        variational = fit_factor_analysis(known.rows("user"), 20, seed=seed, threads=1)
        both = (expected(one, known, asked) for one in (drawn, [variational]))
        errors.append([np.square(one - truth).mean() for one in both])
    by_sampling, by_bounds = np.mean(errors, axis=0)
    assert by_sampling < 0.97 * by_bounds


def test_threads_do_not_change_a_bit_and_seeds_do() -> None:
    ratings = synthetic(50, 40, 800, seed=3).ratings
    rows = ratings.rows("user"), ratings.rows("item")
    one, two, other = (
        sample_factor_analysis(*rows, 4, count=2, seed=seed, threads=threads)
        for seed, threads in ((1, 1), (1, 2), (2, 1))
    )
    for first, second, third in zip(one, two, other, strict=True):
        np.testing.assert_array_equal(first.a, second.a)
        np.testing.assert_array_equal(first.mean, second.mean)
        assert first.noise == second.noise != third.noise


def test_the_noise_is_found_where_there_is_nothing_else() -> None:
    """Levels drawn evenly from 0 to 4: a variance of 2, and nobody and nothing differs."""
    rng = np.random.default_rng(5)
    ratings = synthetic(150, 150, 12_000, seed=1).ratings
    drawn = ratings.replace(levels=rng.integers(0, 5, len(ratings)).astype(np.uint8))
    found = sample_factor_analysis(
        drawn.rows("user"), drawn.rows("item"), 4, count=3, seed=0, threads=1
    )
    assert abs(np.mean([one.noise for one in found]) - 2) < 0.1
    assert max(float(np.abs(one.mean - 2).max()) for one in found) < 0.5


def test_one_sample_that_was_saved_before_there_were_several_is_read() -> None:
    network = FactorNetwork(FactorConfig(columns=3, levels=5, dimensions=2))
    state = network.state_dict() | {"mean": torch.arange(3.0), "noise": torch.tensor(0.5)}
    network.load_state_dict(state)
    assert network.mean.tolist() == [[0.0], [1.0], [2.0]]
    assert network.noise.tolist() == [0.5]
