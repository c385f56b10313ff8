"""A model takes another's place, or says why not."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.given import history, rated, server_settings

from cfnade import checkpoint
from cfnade.estimator import CFNADE
from cfnade.exceptions import CheckpointError
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankingOptions
from cfnade.server import model_registry
from cfnade.server.app import create_app
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel, ModelRegistry


def count_listed(predictor: Predictor) -> int:
    top = predictor.recommend(predictor.resolve_user(history={}), RankingOptions(n=1))
    return len(top.items)


@pytest.fixture
def folder(user_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(user_model, tmp_path / "model"))


def test_before_it_is_loaded_there_is_nothing_to_ask(folder: Path) -> None:
    with pytest.raises(ApiError) as refused:
        ModelRegistry(folder).current()
    assert refused.value.status_code == 503
    assert refused.value.headers == {"Retry-After": "1"}


def test_a_change_of_the_folder_is_seen_once(folder: Path, other_model: Path) -> None:
    models = ModelRegistry(folder)
    models.load()
    before = models.current()
    assert not models.changed()
    checkpoint.save(checkpoint.load(other_model), folder)
    assert models.changed()
    assert models.reload()
    assert not models.changed()
    assert models.current() is not before
    assert models.current().fingerprint != before.fingerprint
    assert count_listed(before.predictor) == 1  # it still answers


def test_a_first_model_that_cannot_be_warmed_up_is_said_and_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Event()

    def fail(_: LoadedModel) -> None:
        tried.set()
        raise MemoryError("no memory is left")

    monkeypatch.setattr(LoadedModel, "warm_up", fail)
    monkeypatch.setattr(model_registry, "_WARM_UP_DELAY", 0.0)
    models = ModelRegistry(folder)

    async def visit() -> None:
        async with models.watch(None):
            assert await asyncio.to_thread(tried.wait, 60)

    asyncio.run(visit())
    assert tried.is_set()
    assert "not warmed up, so that first answers take longer: no memory is left" in caplog.text
    assert count_listed(models.current().predictor) == 1


def test_a_broken_model_leaves_the_old_one_and_is_tried_again(
    folder: Path, other_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = ModelRegistry(folder)
    models.load()
    before = models.current()
    # As a copy that is under way: the description is there, the weights are the old ones.
    shutil.copy(other_model / "model.json", folder / "model.json")
    with caplog.at_level(logging.ERROR, "cfnade.server"):
        assert models.changed()
        assert not models.reload()
        assert not models.reload()
    assert models.current() is before
    assert len(caplog.records) == 1  # said once, not at every look
    assert "the old model stays" in caplog.text
    assert "another save" in caplog.text
    assert models.changed()
    shutil.copytree(other_model, folder, dirs_exist_ok=True)
    assert models.reload()
    assert models.current() is not before


def test_loading_indexes_no_titles_and_starts_no_thread(folder: Path) -> None:
    """The first answer does not wait for them; a supervisor that only checks the model is done."""
    before = set(threading.enumerate())
    models = ModelRegistry(folder)
    models.load()
    assert set(threading.enumerate()) == before
    assert count_listed(models.current().predictor) == 1
    assert "sample_profiles" not in models.current().__dict__
    assert models.current().sample_profiles


def test_the_first_load_fails_loudly(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no model\.json"):
        ModelRegistry(tmp_path).load()


# -- under load ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["signal", "watch"])
def test_a_new_model_takes_over_without_a_failed_request(
    folder: Path, other_model: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    old, new = best_of(folder), best_of(other_model)
    assert old != new

    def tell() -> None:
        if way == "signal":
            os.kill(os.getpid(), signal.SIGHUP)

    async def visit(said: list[Any]) -> None:
        settings = server_settings(folder, watch=0.01 if way == "watch" else None)
        app = create_app(ModelRegistry(folder), settings)
        async with app.router.lifespan_context(app), _under_load(app, said):
            await _until(lambda: len(said) > 20)
            checkpoint.save(checkpoint.load(other_model), folder)
            tell()
            await _until(lambda: (200, new) in said)
            (folder / "model.json").write_text("{}")
            tell()
            await _until(lambda: "the old model stays" in caplog.text)
            count = len(said)
            await _until(lambda: len(said) > count + 20)

    said: list[tuple[int, float]] = []
    with caplog.at_level(logging.ERROR, "cfnade.server"):
        asyncio.run(visit(said))
    assert {status for status, _ in said} == {200}
    first_new = said.index((200, new))
    assert {expected for _, expected in said[:first_new]} == {old}
    late = [expected for _, expected in said[first_new:] if expected != new]
    assert late == [old] * len(late)
    assert len(late) < 4  # each client had asked once before


class _under_load:  # noqa: N801  # reads as a context
    """Four clients that ask all the time, and note what is said."""

    def __init__(self, app: Any, said: list[Any]) -> None:
        self.app, self.said, self.is_over = app, said, False

    async def __aenter__(self) -> None:
        self.tasks = [asyncio.create_task(self._ask()) for _ in range(4)]

    async def __aexit__(self, *_: object) -> None:
        self.is_over = True
        await asyncio.gather(*self.tasks)

    async def _ask(self) -> None:
        body = {"ratings": rated(history()), "n": 3}
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            while not self.is_over:
                answer = await client.post("/recommendations", json=body)
                self.said.append((answer.status_code, answer.json()["items"][0]["prediction"]))


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


def best_of(folder: Path) -> float:
    return float(CFNADE.load(folder).recommend(history=history(), n=3)["prediction"][0])
