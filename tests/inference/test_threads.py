"""Many threads ask one CFNADE, whatever number of threads torch has in each of them.

Questions about a few people have the same bits from everywhere: they run serially and use no torch.
Where many are asked about at once, and in training on more than one thread, the order of sums may
differ, so answers are equal up to rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.inference.cases import FOR_PEOPLE, ITEMS, estimator, make, make_kind

from cfnade import CFNADE, Split, split, synthetic
from cfnade.inference.ranking_options import RankBy

CRITERIA: tuple[RankBy, ...] = ("prediction", "threshold")
THREADS = 4
TORCH_THREADS = (1, 2, 3)
ALL = list(range(100, 100 + ITEMS))
KINDS = ["user", "user-deep-factored-sqrt", "item", "item-deep-unshared", "both-seeds-sqrt"]
Question = Callable[[CFNADE], pl.DataFrame]


@pytest.fixture(autouse=True)
def torch_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def about_people() -> list[Question]:
    rng, questions = np.random.default_rng(5), list[Question]()
    for number in range(8):
        items = 100 + rng.choice(ITEMS, rng.integers(0, ITEMS), replace=False)
        rated = {item: float(rng.integers(1, 11) / 2) for item in items.tolist()}
        questions += [
            partial(CFNADE.recommend, history=rated, n=5, rank_by=CRITERIA[number % 2]),
            partial(CFNADE.recommend, history=rated, n=5, exclude_seen=False),
            partial(CFNADE.predict_frame, users="me", items=ALL, histories={"me": rated}),
            partial(CFNADE.explain, history=rated, item=ALL[number % ITEMS]),
            partial(CFNADE.find_items, text=f"film {number}"),
        ]
    return questions


def about_few_users() -> list[Question]:
    questions: list[Question] = []
    for user in range(0, 80, 20):
        questions += [
            partial(CFNADE.recommend, users=[0, 30, 50, user], n=5),
            partial(CFNADE.recommend, users=user, rank_by="threshold", exclude_seen=False),
            partial(CFNADE.predict_frame, users=user, items=ALL),
            partial(CFNADE.explain, user=user, item=103),
        ]
    return questions


def about_many_users() -> list[Question]:
    everyone = np.arange(0, 90, 10)
    return [
        partial(CFNADE.recommend, users=everyone, n=ITEMS),
        partial(CFNADE.recommend, users=everyone, n=ITEMS, exclude_seen=False),
        partial(CFNADE.predict_frame, users=np.tile(everyone, 50), items=np.repeat(ALL, 50)[:450]),
    ]


def from_threads(model: CFNADE, questions: list[Question]) -> list[list[pl.DataFrame]]:
    """Every thread asks all of them, each beginning elsewhere and with another number in torch."""
    gate = threading.Barrier(THREADS)

    def work(number: int) -> list[pl.DataFrame]:
        torch.set_num_threads(TORCH_THREADS[number % 3])
        first = number * len(questions) // THREADS
        gate.wait()
        said = [question(model) for question in questions[first:] + questions[:first]]
        return said[len(questions) - first :] + said[: len(questions) - first]

    with ThreadPoolExecutor(THREADS) as pool:
        return [done.result() for done in [pool.submit(work, t) for t in range(THREADS)]]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_about_a_few_have_the_same_bits_from_all_threads(kind: str) -> None:
    fitted = make_kind(kind)
    questions = about_few_users() + (about_people() if kind in FOR_PEOPLE else [])
    model = estimator(fitted)
    answers = from_threads(model, questions)
    # What is read of all items is computed once, by whoever asks first: up to rounding there.
    alone = estimator(fitted) if kind.startswith("user") else model
    for number in TORCH_THREADS:
        torch.set_num_threads(number)
        answers.append([question(alone) for question in questions])
    for said in answers:
        for one, first in zip(said, answers[0], strict=True):
            assert one.equals(first, null_equal=True)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_about_many_are_equal_up_to_rounding(kind: str) -> None:
    fitted, questions = make_kind(kind), about_many_users()
    answers = from_threads(estimator(fitted), questions)
    few = estimator(fitted)
    first = answers[0][0]
    for said in answers:
        for one, other in zip(said, answers[0], strict=True):
            assert_frame_equal(one, other, rel_tol=1e-5)
    for (user,), own in first.group_by("user"):  # and to what each of them gets alone
        alone = few.recommend(user, n=ITEMS)
        assert_frame_equal(own, alone, rel_tol=1e-5)


def test_requests_leave_torchs_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is one for all threads that are yet to come, so no request may touch it."""
    model = estimator(make("user", hidden=(40,)))

    def refuse(_: int) -> None:
        raise AssertionError("a request set torch's number of threads")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_num_threads", refuse)
        for question in about_people()[:20]:
            assert question(model).width > 0


# -- training in the same process ------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(synthetic(40, 25, 500, seed=3).ratings, "paper:0")


def bits(estimator: CFNADE) -> list[bytes]:
    arrays = [a for member in estimator.fitted_.members for a in member.arrays().values()]
    return [array.tobytes() for array in arrays]


OPTIONS: dict[str, dict[str, Any]] = {
    "user": {"side": "user", "hidden": (40, 40), "factors": 20},
    "both": {"side": "both", "hidden": (40,)},
}


@pytest.mark.parametrize("side", OPTIONS)
def test_a_seed_gives_the_same_bits_whatever_torch_is_set_to(side: str, parts: Split) -> None:
    def trained() -> CFNADE:
        return CFNADE(**OPTIONS[side], epochs=2, batch_rows=16, n_threads=1).fit(parts)

    models = []
    for number in TORCH_THREADS:
        torch.set_num_threads(number)
        models.append(trained())
        assert torch.get_num_threads() == number
    with ThreadPoolExecutor(1) as pool:
        models.append(pool.submit(trained).result())
    assert all(bits(model) == bits(models[0]) for model in models)
    assert all(model.fitted_.calibration == models[0].fitted_.calibration for model in models)
    assert all(model.history_[-1]["cost"] == models[0].history_[-1]["cost"] for model in models)


def test_training_another_model_leaves_answers_as_they_are(parts: Split) -> None:
    model, questions = estimator(make("user", hidden=(40, 30))), about_people()[:20]
    before = [question(model) for question in questions]
    CFNADE(side="user", hidden=(8,), epochs=1, n_threads=3).fit(parts)
    after = [question(model) for question in questions]
    with ThreadPoolExecutor(1) as pool:  # a new thread takes over what training left behind
        elsewhere = list(pool.map(lambda question: question(model), questions))
    for said in (after, elsewhere):
        assert all(
            one.equals(first, null_equal=True) for one, first in zip(said, before, strict=True)
        )
