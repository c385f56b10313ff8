"""Tiny models of every kind, each trained once, and the service in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.server.given import (
    KINDS,
    Asking,
    ClientOf,
    ModelOf,
    TestClient,
    server_settings,
    trained,
)

from cfnade.inference.predictor import Predictor
from cfnade.server.app import create_app
from cfnade.server.model_registry import ModelRegistry


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> ModelOf:
    """model_of("both"): the folder of a model of that kind."""
    folder = tmp_path_factory.mktemp("models")
    return cache(lambda kind: trained(folder / kind, KINDS[kind]))


@pytest.fixture(scope="session")
def user_model(model_of: ModelOf) -> Path:
    return model_of("user")


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data, another seed: other numbers."""
    return trained(tmp_path_factory.mktemp("models") / "other", KINDS["user"], seed=1)


@pytest.fixture(scope="session")
def predictor(user_model: Path) -> Predictor:
    return Predictor.load(user_model)


@pytest.fixture(scope="session")
def asking() -> Asking:
    """The service of a folder in this process: `with asking(folder, api_key="…") as client`."""

    @contextmanager
    def make(folder: Path, **options: Any) -> Iterator[TestClient]:
        settings = server_settings(folder, **options)
        with TestClient(
            create_app(ModelRegistry(folder), settings), raise_server_exceptions=False
        ) as client:
            yield client

    return make


@pytest.fixture(scope="session")
def client_of(asking: Asking, model_of: ModelOf) -> Iterator[ClientOf]:
    """client_of("both"): asks the service of a model of that kind."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(asking(model_of(kind))))


@pytest.fixture(scope="session")
def client(client_of: ClientOf) -> TestClient:
    return client_of("user")
