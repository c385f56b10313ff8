"""The service as a process: reloading, stopping, workers, and errors at the start."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.given import history, rated

from cfnade import checkpoint
from cfnade.cli import main
from cfnade.estimator import CFNADE
from cfnade.server.run import bind
from cfnade.server.settings import ServerSettings

BODY = {"ratings": rated(history()), "n": 3}
SCRIPT = """
import sys, time
from pathlib import Path
from cfnade.inference.predictor import Predictor
from cfnade.server import run
from cfnade.server.settings import Limits, ServerSettings

run._LOGGING["loggers"]["uvicorn"]["level"] = "INFO"
run._SHUTDOWN_SECONDS = 3600  # however busy the machine is
plain, gate = Predictor.recommend, Path(sys.argv[1]).parent / "gate"

def ranked(self, users, options):
    if options.n == 7:
        (gate / "waits").touch()
        while not (gate / "open").exists():
            time.sleep(0.01)
    return plain(self, users, options)

Predictor.recommend = ranked
if __name__ == "__main__":
    limits = Limits(work_seconds=3600)
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    run.run_server(
        ServerSettings(model_dir=folder, port=0, workers=workers, limits=limits)
    )
"""


@dataclass
class Service:
    """A process that serves; a list of 7 waits until the file gate/open is there."""

    process: subprocess.Popen[str]
    gate: Path
    port: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_said(self, text: str, times: int = 1) -> None:
        """Until the log has the text; the test's own time-out ends a wait in vain."""
        self.wait_until(lambda: "".join(self.said).count(text) >= times)

    def wait_until(self, true: Callable[[], bool]) -> None:
        pause = threading.Event()
        while not true():
            assert self.process.poll() is None, "".join(self.said)
            pause.wait(0.02)

    def read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line)


@contextmanager
def running(folder: Path, *, workers: int = 1) -> Iterator[Service]:
    """The service of a folder in a process of its own, on a free port of loopback."""
    script, gate = folder.parent / "run.py", folder.parent / "gate"
    script.write_text(SCRIPT)
    gate.mkdir()
    command = [sys.executable, str(script), str(folder), str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    service = Service(process, gate)
    reader = threading.Thread(target=service.read, daemon=True)
    reader.start()
    try:
        service.wait_until_said("stop with Ctrl-C")
        service.port = int(re.findall(r"on http://127\.0\.0\.1:(\d+)", "".join(service.said))[0])
        service.wait_until_said("Application startup complete", workers)
        yield service
    finally:
        process.kill()
        process.wait()
        reader.join()
        if process.stderr:
            process.stderr.close()


@pytest.fixture
def own_model(user_model: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(user_model, tmp_path / "model"))


def best_of(folder: Path) -> float:
    return float(CFNADE.load(folder).recommend(history=history(), n=3)["prediction"][0])


def asked(service: Service, n: int = 3) -> httpx.Response:
    """On a connection of its own, which any worker may take."""
    answer = httpx.post(f"{service.url}/recommendations", json=BODY | {"n": n}, timeout=None)
    assert answer.status_code == 200
    return answer


def first(answer: httpx.Response) -> float:
    return float(answer.json()["items"][0]["prediction"])


def test_a_process_reloads_on_sighup_and_finishes_after_sigterm(
    own_model: Path, other_model: Path
) -> None:
    with running(own_model) as service:
        assert first(asked(service)) == best_of(own_model)
        assert "server" not in httpx.get(f"{service.url}/health").headers
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert b"application/problem+json" in connection.recv(65_536)

        checkpoint.save(checkpoint.load(other_model), own_model)
        service.process.send_signal(signal.SIGHUP)
        service.wait_until_said("loaded, ")
        assert first(asked(service)) == best_of(other_model)

        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(asked(service, 7)))
        asking.start()
        service.wait_until(lambda: (service.gate / "waits").exists())
        service.process.send_signal(signal.SIGTERM)
        service.wait_until_said("Waiting for connections to close")
        with pytest.raises(ConnectionRefusedError):  # nobody new is let in
            socket.create_connection(("127.0.0.1", service.port))
        assert not answers
        (service.gate / "open").touch()
        asking.join()
        assert len(answers[0].json()["items"]) == 7
        assert service.process.wait() == 0
    assert "Traceback" not in "".join(service.said)


@pytest.mark.slow
def test_workers_are_replaced_one_by_one(own_model: Path, other_model: Path) -> None:
    old, new = best_of(own_model), best_of(other_model)
    with running(own_model, workers=2) as service:
        assert first(asked(service)) == old
        checkpoint.save(checkpoint.load(other_model), own_model)
        service.process.send_signal(signal.SIGHUP)
        service.wait_until(lambda: {first(asked(service)) for _ in range(8)} == {new})
        lists = sum(
            sample.value
            for family in text_string_to_metric_families(httpx.get(f"{service.url}/metrics").text)
            for sample in family.samples
            if sample.name == "cfnade_requests_total"
            and sample.labels["path"] == "/recommendations"
        )
        assert lists >= 9  # of all workers, also those that have gone
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait() == 0


# -- at the start --------------------------------------------------------------------------------


def failing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> str:
    """What a command that cannot start says, in one line."""
    monkeypatch.setattr(sys, "argv", ["cfnade", "serve", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err.removeprefix("compiling kernels (once)…\n")
    assert said.count("\n") == 1
    return re.sub(r"^error: ", "", said)


def test_a_folder_that_is_no_model_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = failing(monkeypatch, capsys, tmp_path / "none", "--port", "0")
    assert "is not a folder; give the folder of a saved model" in missing
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
    said = failing(monkeypatch, capsys, user_model, "--allow-origin", "example.org/path")
    assert "--allow-origin example.org/path: is not an origin" in said
    said = failing(monkeypatch, capsys, user_model, "--allow-host", "http://films.example.org")
    assert "--allow-host 'http://films.example.org' is no name of a host" in said
    monkeypatch.setenv("CFNADE_API_KEY", "")
    assert "CFNADE_API_KEY is set but empty" in failing(monkeypatch, capsys, user_model)


def test_a_missing_store_is_created_on_first_use(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    user_model: Path,
    tmp_path: Path,
) -> None:
    stores: list[str | None] = []
    path = tmp_path / "ratings.db"
    said = []
    with monkeypatch.context() as patched:
        patched.setattr(
            "cfnade.server.run.run_server", lambda given: stores.append(given.store_url)
        )
        arguments = ["cfnade", "serve", str(user_model), "--store", str(path)]
        for _ in range(2):
            patched.setattr(sys, "argv", arguments)
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code
            said.append(capsys.readouterr().err)
    assert f"{path}: created an empty store\n" in said[0]
    assert "created" not in said[1]
    assert stores == [str(path)] * 2
    missing = failing(
        monkeypatch, capsys, tmp_path / "none", "--port", "0", "--store", tmp_path / "other.db"
    )
    assert "is not a folder" in missing
    assert not (tmp_path / "other.db").exists()


def test_options_and_the_key_of_the_environment_reach_the_service(
    monkeypatch: pytest.MonkeyPatch, user_model: Path
) -> None:
    asked_for: list[ServerSettings] = []
    monkeypatch.setattr("cfnade.server.run.run_server", asked_for.append)
    monkeypatch.setenv("CFNADE_API_KEY", "a secret of many")
    options = [
        "--host",
        "::1",
        "--port",
        "9000",
        "--workers",
        "3",
        "--watch",
        "--allow-origin",
        "*",
    ]
    options += ["--allow-host", "Films.example.org", "--access-log", "json"]
    monkeypatch.setattr(sys, "argv", ["cfnade", "serve", str(user_model), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    (settings,) = asked_for
    assert (settings.model_dir, settings.host, settings.port) == (user_model, "::1", 9000)
    assert (settings.workers, settings.api_key, settings.allow_origins) == (
        3,
        "a secret of many",
        ("*",),
    )
    assert (settings.allow_hosts, settings.access_log) == (("films.example.org",), "json")
    assert settings.watch == 2.0
