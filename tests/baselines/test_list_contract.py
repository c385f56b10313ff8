"""What every model of lists must do, whoever wrote it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.baselines.listing import ITEMS, likes_of, made_up

from cfnade.exceptions import ModelError
from cfnade_baselines.base import MissingError
from cfnade_baselines.listers import LISTERS, lister_class, make_lister
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_questions import ListQuestion
from cfnade_baselines.listers.list_rival import FittedLists, ListRival
from cfnade_baselines.listers.list_scoring import score_lists

CASES = Path(__file__).parent / "list_cases"
LIKES = made_up(240, 1)[0]
STRANGERS, ANSWERS = made_up(80, 2)
DRAWN = ("ials", "implicit-als", "implicit-bpr", "mult-vae", "recvae", "ease+ials", "cfnade")

every = pytest.mark.parametrize("name", LISTERS)


def case(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((CASES / f"{name}.toml").read_text())


def fit(rival: ListRival[FittedLists], seed: int = 1) -> FittedLists:
    try:
        return rival.fit(LIKES, seed=seed, threads=1)
    except MissingError as error:
        pytest.skip(str(error))


Fits = Callable[[str], FittedLists]


@pytest.fixture(scope="module")
def fitted() -> Fits:
    """Each model fitted once, for all tests that only look at it."""
    done: dict[str, FittedLists] = {}

    def one(name: str) -> FittedLists:
        if name not in done:
            done[name] = fit(make_lister(name, **case(name)["base"]))
        return done[name]

    return one


def value(model: FittedLists) -> float:
    """NDCG@10 of people whom the model has never met."""
    asked = np.flatnonzero(ANSWERS.counts())
    given, answers = STRANGERS.people(asked), ANSWERS.people(asked)
    question = ListQuestion(asked, given, given, answers, np.ones(ITEMS, bool))
    return score_lists(model.scores, question, ks=(10,)).estimates()["ndcg@10"].mean


@every
def test_scores_are_finite_numbers_of_all_items(name: str, fitted: Fits) -> None:
    scores = fitted(name).scores(STRANGERS)
    assert scores.shape == (80, ITEMS)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()


@every
def test_somebody_who_likes_nothing_yet_gets_scores(name: str, fitted: Fits) -> None:
    assert np.isfinite(fitted(name).scores(likes_of(np.zeros((2, ITEMS))))).all()


@every
def test_nobody_is_no_answer(name: str, fitted: Fits) -> None:
    assert fitted(name).scores(likes_of(np.zeros((0, ITEMS)))).shape == (0, ITEMS)


@every
def test_company_does_not_matter(name: str, fitted: Fits) -> None:
    """People are answered by what they like, in whichever order they come."""
    together = fitted(name).scores(STRANGERS)
    back = fitted(name).scores(STRANGERS.people(np.arange(80)[::-1]))
    np.testing.assert_allclose(back[::-1], together, rtol=2e-4, atol=2e-4)
    alone = fitted(name).scores(STRANGERS.people(np.array([3])))
    np.testing.assert_allclose(alone[0], together[3], rtol=2e-4, atol=2e-4)


@every
def test_it_is_better_than_popularity(name: str, fitted: Fits) -> None:
    if name == "popularity":
        shuffled = np.random.default_rng(0).random((1, ITEMS)).astype(np.float32)

        class _Any(FittedLists):
            def scores(self, given: Likes) -> Any:
                return np.tile(shuffled, (len(given), 1))

        assert value(fitted(name)) > value(_Any()) + 0.05
    else:
        assert value(fitted(name)) > value(fitted("popularity")) + 0.05


@every
def test_the_same_seed_gives_the_same_bits(name: str, fitted: Fits) -> None:
    first = fitted(name).scores(STRANGERS).tobytes()
    rival = make_lister(name, **case(name)["base"])
    assert fit(rival).scores(STRANGERS).tobytes() == first
    assert (fit(rival, seed=2).scores(STRANGERS).tobytes() != first) == (name in DRAWN)


@every
def test_every_option_changes_the_result(name: str, fitted: Fits) -> None:
    options = case(name)
    fields = {field.name for field in dataclasses.fields(cast(Any, lister_class(name)))}
    assert set(options["changed"]) == fields, "list_cases/ must name every option, and no other"
    usual = fitted(name).scores(STRANGERS).tobytes()
    for option, changed in options["changed"].items():
        model = fit(make_lister(name, **options["base"] | {option: changed}))
        assert model.scores(STRANGERS).tobytes() != usual, f"{option}={changed!r} changes nothing"


@every
def test_wrong_options_and_no_likes_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="colour"):
        make_lister(name, colour="red")
    for option in case(name)["changed"]:
        with pytest.raises(ModelError, match=rf"{option} \(=-1\) must be"):
            make_lister(name, **{option: -1})
    with pytest.raises(ModelError, match="nobody likes anything"):
        make_lister(name).fit(likes_of(np.zeros((3, 4))))


def test_all_classes_are_there_and_named_as_registered() -> None:
    assert [lister_class(name).name for name in LISTERS] == list(LISTERS)


def test_an_unknown_model_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"unknown model of lists 'eas'; did you mean 'ease'"):
        lister_class("eas")


def test_looking_at_the_registry_imports_no_library() -> None:
    code = "import sys, cfnade_baselines.presets as c; c.names(lists=True); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    strange = {"torch", "numba", "scipy", "cornac", "irspack", "implicit"}
    assert not strange & set(done.stdout.split())
