"""Commands in processes of their own, which may be killed.

A server imports the library once and forks for every command: a start costs a moment and not the
seconds that imports take.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from runpy import run_path
from typing import Any


class Server:
    """The process that forks."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(
        self,
        *arguments: str | Path,
        file_bytes: int | None = None,
        program: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> Run:
        """Run `cfnade` or a program; no file may grow beyond file_bytes, as on a full disk."""
        self._count += 1
        out, err = (self._folder / f"{self._count}.{name}" for name in ("out", "err"))
        out.touch()  # it may be killed before it writes anything
        err.touch()
        request: dict[str, Any] = {"arguments": [str(one) for one in arguments]}
        request |= {"out": str(out), "err": str(err)}
        request |= {"file_bytes": file_bytes, "env": env or {}, "program": program and str(program)}
        return Run(self, self.ask(request), out, err)

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


class Run:
    """One command under way."""

    def __init__(self, server: Server, pid: int, out: Path, err: Path) -> None:
        self._server, self.pid, self._out, self._err = server, pid, out, err
        self.code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, as subprocess has it; None while it runs."""
        if self.code is None:
            self.code = self._server.ask({"code_of": self.pid})
        return self.code

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self, seconds: float = 240.0) -> tuple[str, str]:
        """Wait for it, and give what it said on standard output and standard error."""
        limit = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > limit:
                self.signal(signal.SIGKILL)
                raise TimeoutError(self._err.read_text())
            time.sleep(0.01)
        return self._out.read_text(), self._err.read_text()


# -- in the server -------------------------------------------------------------------------------


def _serve() -> None:
    import cfnade.checkpoint
    import cfnade.data.load
    import cfnade.training.progress
    import cfnade.training.train  # noqa: F401
    from cfnade.kernels.warmup import compile_kernels

    compile_kernels()
    _fail_once()
    for line in sys.stdin:
        request = json.loads(line)
        if "code_of" in request:
            answer = _code_of(request["code_of"])
        else:
            answer = os.fork()
            if answer == 0:
                _command(**request)
        print(json.dumps(answer), flush=True)


def _fail_once() -> None:
    """A command that does nothing, for what is imported by the first."""
    from cfnade.cli import main

    sys.argv = ["cfnade", "train", "--resume", "--out", "nowhere"]
    with suppress(SystemExit):
        main()
    logging.getLogger("cfnade").handlers.clear()


def _code_of(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _command(
    arguments: list[str],
    out: str,
    err: str,
    file_bytes: int | None,
    env: dict[str, str],
    program: str | None,
) -> None:
    from cfnade.cli import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    if file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    os.environ |= env
    sys.argv = ["cfnade", *arguments]
    if program is not None:
        run_path(program, run_name="__main__")
        sys.exit(0)
    main()


if __name__ == "__main__":
    _serve()
