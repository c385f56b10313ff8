"""The files of deploy/ as far as they can be tried without a container or systemd running."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cfnade.cli import main
from cfnade.server.settings import ServerSettings

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "cfnade.service").read_text(encoding="utf-8")
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")


def said_by(setting: str) -> list[str]:
    return re.findall(rf"^{setting}=(.*)$", UNIT, re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """The container file as instructions with what follows each."""
    text = re.sub(r"^#.*\n", "", CONTAINER, flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]  # type: ignore[misc]


def last(instruction: str) -> str:
    return [rest for name, rest in instructions() if name == instruction][-1]


def served(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> ServerSettings:
    """What the command line understands of a command."""
    asked_for: list[ServerSettings] = []
    monkeypatch.setattr("cfnade.server.run.run_server", asked_for.append)
    monkeypatch.setattr(sys, "argv", ["cfnade", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return asked_for[0]


def test_the_unit_runs_a_valid_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CFNADE_API_KEY", raising=False)
    (start,) = said_by("ExecStart")
    program, *command = shlex.split(start.replace("%S", "/var/lib"))
    assert program == "/opt/cfnade/bin/cfnade"
    settings = served(monkeypatch, command)
    assert settings.model_dir == Path("/var/lib/cfnade/model")
    assert settings.host == "127.0.0.1"
    assert said_by("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert "MemoryDenyWriteExecute=yes" not in UNIT  # kernels are compiled into memory


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze is installed")
    unit = tmp_path / "cfnade.service"
    # It looks for the program: here another one stands for it.
    unit.write_text(UNIT.replace("/opt/cfnade/bin/cfnade", sys.executable))
    checked = subprocess.run([program, "verify", unit], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    rated = subprocess.run(
        [program, "security", "--offline=yes", "--threshold=20", unit],
        capture_output=True,
        text=True,
    )
    assert rated.returncode == 0, rated.stdout.splitlines()[-1]  # exposure of 2.0 of 10 at most


def test_the_container_runs_a_valid_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CFNADE_API_KEY", raising=False)
    entry, command = json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))
    assert entry[0] == "cfnade"
    settings = served(monkeypatch, [*entry[1:], *command])
    assert settings.model_dir == Path("/model")
    assert settings.host == "0.0.0.0"  # of the container; the port is opened by who runs it
    assert last("EXPOSE") == str(settings.port)
    assert f"127.0.0.1:{settings.port}/health" in last("HEALTHCHECK")
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    compile(check[-1], "healthcheck", "exec")


def test_the_container_copies_existing_files_and_runs_unprivileged() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored
        if name == "FROM":
            assert re.search(r":\d+\.\d+-slim( AS \w+)?$", rest)  # a version, not whatever is new
        assert name not in ("ADD", "MAINTAINER")
    assert last("USER") != "0"
    assert last("USER").isdigit()  # what Kubernetes can check
    assert "API_KEY" not in re.sub(r"#.*", "", CONTAINER)
    order = [name for name, _ in instructions()]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "@system-service" in UNIT
