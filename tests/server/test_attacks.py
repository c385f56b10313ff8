"""Attacks over loopback: what one client sends must not keep others from being answered.

Bounds on time are generous, because the machine may be busy; without the defences the waits are
several times longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from tests.server.given import JSON, TITLES, ModelOf, TestClient, history, rated, serving
from tests.server.test_bodies import LARGE

from cfnade.inference.predictor import Predictor
from cfnade.server import schemas
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.routers import inference, items
from cfnade.server.settings import Limits
from cfnade.utils.cancellation import ComputationCancelledError, cancelled_by, check_cancelled


@contextmanager
def probing(url: str) -> Iterator[list[float]]:
    """Ask /health again and again meanwhile; gives the seconds that each answer took."""
    seconds: list[float] = []
    done = threading.Event()

    def probe() -> None:
        with httpx.Client(timeout=60) as client:
            while True:
                began = time.perf_counter()
                assert client.get(f"{url}/health").status_code == 200
                seconds.append(time.perf_counter() - began)
                if done.wait(0.02):
                    return

    with ThreadPoolExecutor(1) as pool:
        probes = pool.submit(probe)
        try:
            yield seconds
        finally:
            done.set()
            probes.result()


@pytest.fixture(scope="module")
def service(user_model: Path) -> Iterator[str]:
    with serving(user_model) as url:
        yield url


@pytest.mark.parametrize("name", LARGE)
def test_invalid_bodies_do_not_keep_others_waiting(service: str, name: str) -> None:
    """Measured on a busy machine: /health within 0.2 s. Without the bounds it took seconds."""
    with (
        httpx.Client(timeout=60) as client,
        probing(service) as seconds,
        ThreadPoolExecutor(4) as attackers,
    ):
        answers = attackers.map(
            lambda _: client.post(f"{service}/predictions", content=LARGE[name], headers=JSON),
            range(12),
        )
        assert {answer.status_code for answer in answers} == {422}
    assert max(seconds) < 3.0


# -- long computations -----------------------------------------------------------------------------

QUESTIONS: dict[str, dict[str, Any]] = {
    "/predictions": {"items": [*history(20)], "ratings": rated(history())},
    "/explanations": {"item": 140, "ratings": rated(history())},
    "/items-to-rate": {"ratings": rated(history())},
    "/items/match": {"items": [{"title": "Film", "year": 1950}]},
    "/recommendations": {"candidate_items": [*TITLES.values()], "ratings": rated(history())},
}


COMPUTED: dict[str, tuple[Callable[..., Any], type[BaseModel]]] = {
    "/predictions": (inference.predictions, schemas.PredictionRequest),
    "/explanations": (inference.explanation, schemas.ExplanationRequest),
    "/items-to-rate": (inference.items_to_rate, schemas.ItemsToRateRequest),
    "/items/match": (items.matches, schemas.MatchRequest),
    "/recommendations": (inference.recommendations, schemas.RecommendationRequest),
}


@pytest.mark.parametrize(
    ("kind", "path", "more"),
    [
        *(("user", path, {}) for path in QUESTIONS if path != "/items-to-rate"),
        ("ridge", "/items-to-rate", {}),
        ("both", "/explanations", {}),
        ("lists", "/explanations", {"target": "interaction"}),
    ],
)
def test_questions_stop_once_nobody_waits_for_the_answer(
    model_of: ModelOf, kind: str, path: str, more: dict[str, Any]
) -> None:
    """Each looks for a cancellation at least once."""
    answer, takes = COMPUTED[path]
    models, body = ModelRegistry(model_of(kind)), takes(**QUESTIONS[path], **more)
    models.load()
    loaded = models.current()
    answer(loaded, body)
    cancelled = threading.Event()
    cancelled.set()
    with cancelled_by(cancelled), pytest.raises(ComputationCancelledError):
        answer(loaded, body)


def test_late_questions_do_not_keep_others_waiting(
    user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More endless explanations than threads: they end at their deadline, and others follow."""

    def endless(*_: Any, **__: Any) -> None:
        while True:
            check_cancelled()
            time.sleep(0.001)

    monkeypatch.setattr("cfnade.inference.predictor.Predictor.explain", endless)
    limits = Limits(work_seconds=1.0, threads=2)
    with serving(user_model, limits=limits) as url, ThreadPoolExecutor(4) as attackers:
        asked = [
            attackers.submit(
                httpx.post, f"{url}/explanations", json=QUESTIONS["/explanations"], timeout=60
            )
            for _ in range(4)
        ]
        assert {one.result().status_code for one in asked} == {504}
        similar = httpx.get(f"{url}/items/101/similar", timeout=60)
    assert similar.status_code == 200


def test_repeated_items_are_computed_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    plain = Predictor.predicted

    def counted(self: Predictor, items: Any, *args: Any, **options: Any) -> Any:
        computed.extend(items.tolist())
        return plain(self, items, *args, **options)

    monkeypatch.setattr(Predictor, "predicted", counted)
    ratings = rated(history())
    one = client.post("/predictions", json={"items": [101, "x", 102], "ratings": ratings}).json()
    computed.clear()
    repeated = [101, "x", 102] * 300
    many = client.post("/predictions", json={"items": repeated, "ratings": ratings}).json()
    assert len(computed) == 2
    assert many["unknown_items"] == ["x"] * 300
    names = [line["item"] for line in many["predictions"]]
    assert names == [101, 102] * 300
    expected = [line["prediction"] for line in one["predictions"]]
    assert [line["prediction"] for line in many["predictions"]] == pytest.approx(expected * 300)
