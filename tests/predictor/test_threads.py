"""Many threads ask one Predictor: every answer has the bits that it has alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.predictor.given import ITEMS, VARIANTS, make

from cfnade.bundle import Bundle
from cfnade.predictor import Predictor
from cfnade.predictor.ranking import RANKS

THREADS = 8
ALL = list(range(100, 100 + ITEMS))
Question = Callable[[Predictor], pl.DataFrame]


def histories(count: int) -> list[dict[int, float]]:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(count):
        items = 100 + rng.choice(ITEMS, rng.integers(0, ITEMS), replace=False)
        found.append({item: float(rng.integers(1, 11) / 2) for item in items.tolist()})
    return found


def about_people() -> list[Question]:
    questions: list[Question] = []
    for at, h in enumerate(histories(40)):
        me, rank = {"me": h}, RANKS[at % 3]
        questions += [
            partial(Predictor.recommend, history=h, n=5, rank=rank),
            partial(Predictor.recommend, history=h, n=5, exclude_seen=False),
            partial(Predictor.predict_frame, users="me", items=ALL, histories=me),
            partial(Predictor.explain, history=h, item=ALL[at % ITEMS]),
            partial(Predictor.search, text=f"film {at % ITEMS}"),
        ]
    return questions


def about_users() -> list[Question]:
    questions: list[Question] = []
    for user in range(0, 80, 10):
        questions += [
            partial(Predictor.recommend, users=user, n=5),
            partial(Predictor.recommend, users=[0, 10, 20, 30, 40, user], n=5),
            partial(Predictor.recommend, users=user, rank="quantile", exclude_seen=False),
            partial(Predictor.predict_frame, users=user, items=ALL),
            partial(Predictor.explain, user=user, item=103),
        ]
    return questions


def ask_from_threads(bundle: Bundle, questions: list[Question]) -> list[list[pl.DataFrame]]:
    """Every thread asks all of them, each beginning elsewhere, a Predictor that is still new."""
    predictor, gate = Predictor(bundle), threading.Barrier(THREADS)

    def work(number: int) -> list[pl.DataFrame]:
        first = number * len(questions) // THREADS
        gate.wait()
        said = [question(predictor) for question in questions[first:] + questions[:first]]
        return said[len(questions) - first :] + said[: len(questions) - first]

    with ThreadPoolExecutor(THREADS) as pool:
        return [done.result() for done in [pool.submit(work, t) for t in range(THREADS)]]


@pytest.mark.parametrize("variant", ["plain", "deep-factored-sqrt"])
@pytest.mark.parametrize("side", ["user", "item"])
def test_answers_have_the_same_bits_from_eight_threads(side: Any, variant: str) -> None:
    bundle = make(side, **VARIANTS[variant])
    questions = about_users() + (about_people() if side == "user" else [])
    before = torch.get_num_threads()
    alone = Predictor(bundle)
    expected = [question(alone) for question in questions]
    for said in ask_from_threads(bundle, questions):
        for one, right in zip(said, expected, strict=True):
            assert one.equals(right, null_equal=True)
    assert torch.get_num_threads() == before


def test_requests_leave_torchs_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is one for all threads that are yet to come, so no request may touch it."""
    predictor = Predictor(make("user", hidden=(40,)))

    def refuse(_: int) -> None:
        raise AssertionError("a request set torch's number of threads")

    monkeypatch.setattr(torch, "set_num_threads", refuse)
    for question in about_people()[:30]:
        assert question(predictor).width > 0
