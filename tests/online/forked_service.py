"""The service in processes that may be killed, each started in a moment.

This program loads a model once. For every line on its input it forks a service of that model, with
the store and on the port that the line names, and says its process id; "end" of one waits for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Services:
    """The program, as a test has it."""

    def __init__(self, model: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, store: str, port: int) -> int:
        """A service; returns its process id."""
        return int(self._ask({"store": store, "port": port}))

    def wait(self, pid: int) -> int:
        """Until it has ended; returns how."""
        return int(self._ask({"wait": pid}))

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


def main(model: str) -> None:
    from uvicorn import Server

    from cfnade.server.app import create_app
    from cfnade.server.connection import LimitedConfig
    from cfnade.server.model_registry import ModelRegistry
    from cfnade.server.run import bind
    from cfnade.server.settings import Limits, ServerSettings

    models, limits = ModelRegistry(model), Limits()
    models.load()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitpid(request["wait"], 0)[1], flush=True)
            continue
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        listener = bind("127.0.0.1", request["port"])
        settings = ServerSettings(
            model_dir=Path(model), store_url=request["store"], allow_hosts=(), limits=limits
        )
        app = create_app(models, settings)
        config = LimitedConfig(app, limits, log_config=None)
        Server(config).run([listener])
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
