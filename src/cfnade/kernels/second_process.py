"""A process that compiles kernels while this one does something else; see prepare.py."""

from __future__ import annotations

import os
import subprocess
import sys


class SecondProcess:
    """The one there is, if any."""

    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, *tasks: str) -> None:
        """Unless there is one already."""
        if cls.process is not None:
            return
        code = "import gc; gc.disable()\n"  # it ends soon, and has memory enough until then
        code += f"from cfnade.kernels.prepare import prepare; prepare(None, *{tasks})\n"
        code += "import os; os._exit(0)"  # to take all of that down again takes half a second
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-c", code]
        cls.process = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)

    @classmethod
    def wait(cls) -> None:
        """If it fails, its work is done here."""
        if cls.process is not None:
            cls.process.wait()
            cls.process = None
