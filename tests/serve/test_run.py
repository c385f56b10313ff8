"""The service as a process: stopping, reloading under load, workers, and errors at the start."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.given import Running, Service, history, rated

from cfnade.cli import main
from cfnade.predictor import Predictor
from cfnade.serve.run import bind

BODY = {"ratings": rated(history()), "n": 3}
SLOW = """
import time
from cfnade.predictor import Predictor
plain, gate = Predictor.ranked, Path(sys.argv[1]).parent / "gate"
def ranked(self, *given, **options):
    if options["n"] == 7:
        (gate / "waits").touch()
        while not (gate / "open").exists():
            time.sleep(0.01)
    return plain(self, *given, **options)
Predictor.ranked = ranked
"""


def wait_for(path: Path) -> None:
    pause = threading.Event()
    while not path.exists():
        pause.wait(0.01)


@pytest.fixture
def own_model(user_model: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(user_model, tmp_path / "model"))


def test_requests_under_way_are_finished_after_sigterm(running: Running, own_model: Path) -> None:
    gate = own_model.parent / "gate"
    gate.mkdir()
    with running(own_model, before=SLOW) as service:
        answers: list[httpx.Response] = []

        def ask() -> None:
            slow = BODY | {"n": 7}
            answers.append(httpx.post(f"{service.url}/recommend", json=slow, timeout=120))

        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(gate / "waits")
        service.process.send_signal(signal.SIGTERM)
        while True:  # until nobody new is let in
            try:
                socket.create_connection((service.host, service.port), timeout=10).close()
            except ConnectionRefusedError:
                break
        assert service.process.poll() is None
        assert not answers
        (gate / "open").touch()
        asking.join()
        assert answers[0].status_code == 200
        assert len(answers[0].json()["items"]) == 7
        assert service.process.wait() == 0
        assert "Traceback" not in "".join(service.said)


@contextmanager
def under_load(service: Service) -> Iterator[list[Any]]:
    """Ask from four threads all the time; afterwards, all that was said."""
    said: list[Any] = []
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=service.url, timeout=60) as client:
            while not stop.is_set():
                try:
                    answer = client.post("/recommend", json=BODY)
                    said.append((answer.status_code, answer.json()["items"][0]["expected"]))
                except Exception as error:
                    said.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield said
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def best_of(folder: Path) -> float:
    return float(Predictor.load(folder).recommend(history=history(), n=3)["prediction"][0])


@pytest.mark.parametrize("way", ["signal", "watch"])
def test_a_new_model_takes_over_without_a_failed_request(
    running: Running, own_model: Path, other_model: Path, way: str
) -> None:
    old, new = best_of(own_model), best_of(other_model)
    assert old != new
    settings = "watch=0.05" if way == "watch" else ""
    with running(own_model, settings=settings) as service, under_load(service) as said:
        _wait_until(lambda: len(said) > 20)
        from cfnade import checkpoint

        checkpoint.save(checkpoint.load(other_model), own_model)
        if way == "signal":
            service.process.send_signal(signal.SIGHUP)
        _wait_until(lambda: (200, new) in said)
        count = len(said)
        _wait_until(lambda: len(said) > count + 20)
        (own_model / "model.json").write_text("{}")
        if way == "signal":
            service.process.send_signal(signal.SIGHUP)
        service.wait_until_said("the old model goes on")
        count = len(said)
        _wait_until(lambda: len(said) > count + 20)
    assert {status for status, _ in said} == {200}
    first_new = next(at for at, (_, expected) in enumerate(said) if expected == new)
    assert {expected for _, expected in said[:first_new]} == {old}
    assert {expected for _, expected in said[first_new + 4 :]} == {new}
    assert said[-1] == (200, new)


def _wait_until(true: Any) -> None:
    pause = threading.Event()
    while not true():
        pause.wait(0.01)


def test_the_key_of_the_environment_is_asked_for(running: Running, own_model: Path) -> None:
    settings = "key=key_from_environment()"
    before = "from cfnade.serve.security import key_from_environment"
    with running(own_model, before=before, settings=settings, CFNADE_API_KEY="s3cret") as service:
        assert httpx.post(f"{service.url}/recommend", json=BODY).status_code == 401
        for headers in ({"x-api-key": "s3cret"}, {"authorization": "Bearer s3cret"}):
            assert httpx.post(f"{service.url}/recommend", json=BODY, headers=headers).is_success
        assert httpx.get(f"{service.url}/").status_code == 200
        assert "s3cret" not in "".join(service.said)


@pytest.mark.slow
def test_workers_are_replaced_one_by_one(
    running: Running, own_model: Path, other_model: Path
) -> None:
    from cfnade import checkpoint

    old, new = best_of(own_model), best_of(other_model)
    with running(own_model, settings="workers=2") as service:
        assert _asked(service) == old
        checkpoint.save(checkpoint.load(other_model), own_model)
        service.process.send_signal(signal.SIGHUP)
        _wait_until(lambda: {_asked(service) for _ in range(8)} == {new})
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait() == 0


def _asked(service: Service) -> float:
    """On a connection of its own, which any worker may take."""
    answer = httpx.post(f"{service.url}/recommend", json=BODY, timeout=60)
    assert answer.status_code == 200
    return float(answer.json()["items"][0]["expected"])


# -- at the start --------------------------------------------------------------------------------


def failing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> str:
    """What a command that cannot start says, in one line."""
    monkeypatch.setattr(sys, "argv", ["cfnade", "serve", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return re.sub(r"^error: ", "", said)


def test_a_folder_that_is_no_model_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = failing(monkeypatch, capsys, tmp_path / "none", "--port", "0")
    assert "is no folder; give the folder of a saved model" in missing
    assert "holds no model.json" in failing(monkeypatch, capsys, tmp_path, "--port", "0")


def test_a_port_in_use_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], user_model: Path
) -> None:
    with bind("127.0.0.1", 0) as other:
        other.listen()
        port = other.getsockname()[1]
        said = failing(monkeypatch, capsys, user_model, "--port", str(port))
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use; give another" in said
    said = failing(monkeypatch, capsys, user_model, "--host", "no.such.host.invalid")
    assert "cannot listen on no.such.host.invalid port 8000" in said


def test_wrong_settings_are_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], user_model: Path
) -> None:
    said = failing(monkeypatch, capsys, user_model, "--cors", "example.org/path")
    assert "--cors 'example.org/path' is no origin" in said
    monkeypatch.setenv("CFNADE_API_KEY", "")
    assert "CFNADE_API_KEY is set but empty" in failing(monkeypatch, capsys, user_model)
