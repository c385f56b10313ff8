"""Run a temporary PostgreSQL server on loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

PASSWORD = "pass:w/rd@1"
"""A password that has to be escaped in an address and must never be shown."""


@contextmanager
def postgres(binaries: Path, *, durable: bool = False) -> Iterator[str]:
    """Run a server and yield its address, 127.0.0.1:PORT, without user and password.

    Commits wait for the disk only if `durable`. Otherwise the server's hundreds of files are in
    memory if there is room.
    """
    where = None if durable else _in_memory()
    with tempfile.TemporaryDirectory(prefix="cfnade-postgres-", dir=where) as name:
        folder, rights = Path(name), unprivileged()
        (folder / "password").write_text(PASSWORD)
        if rights:
            for place in (folder, folder / "password"):
                shutil.chown(place, rights["user"], rights["group"])

        def run(program: str, *arguments: str) -> None:
            command = [str(binaries / program), "-D", str(folder / "data"), *arguments]
            with (folder / "output").open(
                "a+"
            ) as output:  # a pipe would be held open by the server
                process = subprocess.run(
                    command, cwd=folder, stdout=output, stderr=output, **rights
                )
                output.seek(0)
                assert process.returncode == 0, output.read()

        run("initdb", "-A", "scram-sha-256", "-U", "shop", f"--pwfile={folder / 'password'}")
        port = _free_port()
        options = (
            f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= "
            f"-c fsync={'on' if durable else 'off'}"
        )
        run("pg_ctl", "-w", "-o", options, "start")
        try:
            yield f"127.0.0.1:{port}"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")


def address(server: str, password: str = PASSWORD) -> str:
    return f"postgresql://shop:{quote(password, safe='')}@{server}/postgres"


def find_binaries() -> Path | None:
    """Return the folder of the server programs: on the path, or that of Debian."""
    on_path = shutil.which("pg_ctl")
    places = [Path(on_path).resolve().parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def unprivileged() -> dict[str, Any]:
    """Return arguments that run a process as another user than root, which the server refuses."""
    if os.getuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _in_memory() -> Path | None:
    shared = Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > 2 << 30
    return shared if roomy and os.access(shared, os.W_OK) else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
