"""The contract of top-n models."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.baselines.synthetic_interactions import ITEMS, interactions_of, synthetic_interactions

from cfnade.exceptions import ModelError
from cfnade_baselines.base import MissingDependencyError, Recommender
from cfnade_baselines.ranking_protocol import RankingQuery, row_counts, score_rankings
from cfnade_baselines.registry import RECOMMENDERS, baseline_class, create_recommender

CASES = tomllib.loads((Path(__file__).parent / "cases" / "ranking.toml").read_text())
TRAIN = synthetic_interactions(240, 1)[0]
HISTORIES, HELD_OUT = synthetic_interactions(80, 2)
STOCHASTIC = ("ials", "implicit-als", "implicit-bpr", "mult-vae", "recvae", "ease+ials", "cfnade")

every_model = pytest.mark.parametrize("name", RECOMMENDERS)


def case(name: str) -> dict[str, dict[str, Any]]:
    return cast(dict[str, dict[str, Any]], CASES[name])


def fit(model: Recommender, seed: int = 1) -> Recommender:
    try:
        return model.fit(TRAIN, seed=seed, n_threads=1)
    except MissingDependencyError as error:
        pytest.skip(str(error))


Fits = Callable[[str], Recommender]


@pytest.fixture(scope="module")
def fitted() -> Fits:
    """Fit each model once, for all tests that do not change it."""
    return cache(lambda name: fit(create_recommender(name, **case(name)["base"])))


def ndcg(model: Recommender) -> float:
    """Return the NDCG@10 of new users."""
    users = np.flatnonzero(row_counts(HELD_OUT))
    histories, held_out = HISTORIES[users], HELD_OUT[users]
    query = RankingQuery(users, histories, histories, held_out, np.ones(ITEMS, bool))
    return score_rankings(model.score, query, cutoffs=(10,)).estimates()["ndcg@10"].mean


@every_model
def test_scores_are_finite_numbers_of_all_items(name: str, fitted: Fits) -> None:
    scores = fitted(name).score(HISTORIES)
    assert scores.shape == (80, ITEMS)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()


@every_model
def test_a_user_without_interactions_gets_scores(name: str, fitted: Fits) -> None:
    assert np.isfinite(fitted(name).score(interactions_of(np.zeros((2, ITEMS))))).all()


@every_model
def test_no_users_give_no_scores(name: str, fitted: Fits) -> None:
    assert fitted(name).score(interactions_of(np.zeros((0, ITEMS)))).shape == (0, ITEMS)


@every_model
def test_scores_do_not_depend_on_other_users(name: str, fitted: Fits) -> None:
    batch = fitted(name).score(HISTORIES)
    reverse = fitted(name).score(HISTORIES[np.arange(80)[::-1]])
    np.testing.assert_allclose(reverse[::-1], batch, rtol=2e-4, atol=2e-4)
    single = fitted(name).score(HISTORIES[np.array([3])])
    np.testing.assert_allclose(single[0], batch[3], rtol=2e-4, atol=2e-4)


@every_model
def test_a_model_is_better_than_popularity(name: str, fitted: Fits) -> None:
    if name == "popularity":
        shuffled = np.random.default_rng(0).random((1, ITEMS)).astype(np.float32)

        class Random(Recommender):
            def _fit(self, interactions: Any, seed: int, n_threads: int | None) -> None: ...

            def score(self, interactions: Any) -> Any:
                return np.tile(shuffled, (interactions.shape[0], 1))

        assert ndcg(fitted(name)) > ndcg(Random()) + 0.05
    else:
        assert ndcg(fitted(name)) > ndcg(fitted("popularity")) + 0.05


@every_model
def test_the_same_seed_gives_the_same_bits(name: str, fitted: Fits) -> None:
    first = fitted(name).score(HISTORIES).tobytes()
    model = create_recommender(name, **case(name)["base"])
    assert fit(model).score(HISTORIES).tobytes() == first
    assert (fit(model, seed=2).score(HISTORIES).tobytes() != first) == (name in STOCHASTIC)


@every_model
def test_every_option_changes_the_result(name: str, fitted: Fits) -> None:
    options = case(name)
    fields = {
        field.name for field in dataclasses.fields(cast(Any, baseline_class(name, "ranking")))
    }
    assert set(options["changed"]) == fields, (
        "cases/ranking.toml must name every option, and no other"
    )
    reference = fitted(name).score(HISTORIES).tobytes()
    for option, changed in options["changed"].items():
        model = fit(create_recommender(name, **options["base"] | {option: changed}))
        assert model.score(HISTORIES).tobytes() != reference, f"{option}={changed!r} has no effect"


@every_model
def test_wrong_options_and_empty_data_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="colour"):
        create_recommender(name, colour="red")
    for option in case(name)["changed"]:
        with pytest.raises(ModelError, match=rf"{option} \(=-1\) must be"):
            create_recommender(name, **{option: -1})
    with pytest.raises(ModelError, match="there are no interactions to learn from"):
        create_recommender(name).fit(interactions_of(np.zeros((3, 4))))


def test_classes_are_named_as_registered() -> None:
    assert [baseline_class(name, "ranking").name for name in RECOMMENDERS] == list(RECOMMENDERS)


def test_an_unknown_model_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"unknown top-n model 'eas'; did you mean 'ease'"):
        baseline_class("eas", "ranking")


def test_the_registry_imports_no_library() -> None:
    code = (
        "import sys, cfnade_baselines.registry as r; r.preset_names('ranking'); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    libraries = {"torch", "numba", "scipy", "cornac", "irspack", "implicit"}
    assert not libraries & set(done.stdout.split())
