"""`cfnade` on a rank that fails once, where the variable FAULT says: RANK:WHERE:NUMBER.

WHERE is "step" (before a step), "save" (its own state is written, but not yet agreed upon), or
"hang" (it stops before a step and never goes on). The file named by FAILED is made first, so that
a rank that is started again goes on.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from cfnade.cli import main
from cfnade.components.batches import Batch
from cfnade.distributed import state as rank_state
from cfnade.training.state import write_state
from cfnade.training.steps import KernelStepper


def fail(kind: str) -> None:
    Path(os.environ["FAILED"]).touch()
    os.kill(os.getpid(), signal.SIGSTOP if kind == "hang" else signal.SIGKILL)


def install() -> None:
    rank, kind, number = os.environ["FAULT"].split(":")
    if os.environ["RANK"] != rank or Path(os.environ["FAILED"]).exists():
        return
    step, write, steps, count = KernelStepper.step, write_state, [0], [0]

    def failing_step(self: KernelStepper, batch: Batch, *, rate: float) -> float:
        if kind != "save" and steps[0] == int(number):
            fail(kind)
        steps[0] += 1
        return step(self, batch, rate=rate)

    def failing_write(*given: Any) -> None:
        write(*given)
        count[0] += 1
        if kind == "save" and count[0] == int(number):
            fail(kind)

    KernelStepper.step = failing_step  # type: ignore[method-assign]
    vars(rank_state)["write_state"] = failing_write


if __name__ == "__main__":
    install()
    main()
