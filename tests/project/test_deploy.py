"""The files of deploy/, as far as they can be checked without a container or running systemd."""

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


def unit_values(setting: str) -> list[str]:
    return re.findall(rf"^{setting}=(.*)$", UNIT, re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file with their arguments."""
    text = re.sub(r"^#.*\n", "", CONTAINER, flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]  # type: ignore[misc]


def last(instruction: str) -> str:
    return [arguments for name, arguments in instructions() if name == instruction][-1]


def server_settings(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> ServerSettings:
    """Return the settings with which a command would start the service."""
    started: list[ServerSettings] = []
    monkeypatch.setattr("cfnade.server.run.run_server", started.append)
    monkeypatch.setattr(sys, "argv", ["cfnade", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return started[0]


def test_the_unit_runs_a_valid_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CFNADE_API_KEY", raising=False)
    (start,) = unit_values("ExecStart")
    program, *command = shlex.split(start.replace("%S", "/var/lib"))
    assert program == "/opt/cfnade/bin/cfnade"
    settings = server_settings(monkeypatch, command)
    assert settings.model_dir == Path("/var/lib/cfnade/model")
    assert settings.host == "127.0.0.1"
    assert unit_values("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert "MemoryDenyWriteExecute=yes" not in UNIT  # kernels are compiled into memory


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze is installed")
    unit = tmp_path / "cfnade.service"
    # systemd-analyze requires that the program exists.
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
    settings = server_settings(monkeypatch, [*entry[1:], *command])
    assert settings.model_dir == Path("/model")
    assert settings.host == "0.0.0.0"  # of the container; the port is opened by who runs it
    assert last("EXPOSE") == str(settings.port)
    assert f"127.0.0.1:{settings.port}/health" in last("HEALTHCHECK")
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    compile(check[-1], "healthcheck", "exec")


def test_the_container_copies_existing_files_and_runs_unprivileged() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name, arguments in instructions():
        if name == "COPY" and "--from" not in arguments:
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored
        if name == "FROM":
            assert re.search(
                r":\d+\.\d+-slim( AS \w+)?$", arguments
            )  # a version, not whatever is new
        assert name not in ("ADD", "MAINTAINER")
    assert last("USER") != "0"
    assert last("USER").isdigit()  # what Kubernetes can check
    assert "API_KEY" not in re.sub(r"#.*", "", CONTAINER)
    order = [name for name, _ in instructions()]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "@system-service" in UNIT
