"""Tiny models of both sides, the service in this process, and the service as people run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.serve.given import Asking, Running, Service, TestClient, trained

from cfnade import checkpoint
from cfnade.predictor import Predictor
from cfnade.serve.app import create_app
from cfnade.serve.limits import Limits
from cfnade.serve.loading import Models


@pytest.fixture(scope="session")
def user_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("models") / "user", "user")


@pytest.fixture(scope="session")
def item_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("models") / "item", "item")


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data, another seed: other numbers."""
    return trained(tmp_path_factory.mktemp("models") / "other", "user", seed=1)


@pytest.fixture(scope="session")
def untitled_model(user_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose data had no titles."""
    bundle = checkpoint.load(user_model)
    folder = tmp_path_factory.mktemp("models") / "untitled"
    checkpoint.save(replace(bundle, context=replace(bundle.context, titles=None)), folder)
    return folder


@pytest.fixture(scope="session")
def predictor(user_model: Path) -> Predictor:
    return Predictor.load(user_model)


@pytest.fixture(scope="session")
def asking() -> Asking:
    """The service of a folder in this process: `with asking(folder, key="…") as client`."""

    @contextmanager
    def make(folder: Path, limits: Limits | None = None, **options: Any) -> Iterator[TestClient]:
        app = create_app(Models(folder), limits=limits, **options)
        with TestClient(app, raise_server_exceptions=False) as client:
            yield client

    return make


@pytest.fixture(scope="session")
def client(asking: Asking, user_model: Path) -> Iterator[TestClient]:
    with asking(user_model) as client:
        yield client


@pytest.fixture(scope="session")
def item_client(asking: Asking, item_model: Path) -> Iterator[TestClient]:
    with asking(item_model) as client:
        yield client


# -- as people run it ----------------------------------------------------------------------------


_SCRIPT = """
import sys
from pathlib import Path
from cfnade.serve.limits import Limits
from cfnade.serve.run import Settings, serve
{before}
if __name__ == "__main__":
    serve(Settings(Path(sys.argv[1]), port=0, {settings}))
"""


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Running:
    """The service of a folder in a process of its own, on a free port of loopback."""

    @contextmanager
    def make(
        folder: Path, *, before: str = "", settings: str = "", **environment: str
    ) -> Iterator[Service]:
        script = tmp_path_factory.mktemp("scripts") / "run.py"
        script.write_text(_SCRIPT.format(before=before, settings=settings))
        process = subprocess.Popen(
            [sys.executable, str(script), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        said: list[str] = []
        reader = threading.Thread(target=_read, args=(process, said), daemon=True)
        reader.start()
        service = Service(process, "127.0.0.1", 0, said)
        try:
            service.wait_until_said("stop with Ctrl-C")
            service.port = int(re.findall(r"on http://127\.0\.0\.1:(\d+)", "".join(said))[0])
            _wait_until_it_listens(service)
            yield service
        finally:
            process.kill()
            process.wait()
            reader.join()
            if process.stderr:
                process.stderr.close()

    return make


def _read(process: subprocess.Popen[str], said: list[str]) -> None:
    assert process.stderr
    for line in process.stderr:
        said.append(line)


def _wait_until_it_listens(service: Service) -> None:
    while True:
        try:
            assert service.healthy()
            return
        except httpx.ConnectError:
            assert service.process.poll() is None, "".join(service.said)


@pytest.fixture(scope="session")
def service(running: Running, user_model: Path) -> Iterator[Service]:
    """One process with small limits, for all tests that leave it as it was."""
    with running(
        user_model, settings="limits=Limits(body_seconds=2.0, body_bytes=50_000, connections=40)"
    ) as service:
        yield service
