"""The state of a run on several ranks: a file each, and rank 0 says which of them count.

    ranks/commit.json                     which state is whole, and of how many ranks
    ranks/rank-001/00002-000000310/…      one rank's part of the state after epoch 2, step 310

A state counts once every rank has written its part. So after a kill at any moment all go on from
the same step. Whether it is time to write is agreed upon: clocks differ.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import TrainingError
from cfnade.training.state import (
    LoopState,
    StateStore,
    implicit_folder,
    read_history,
    read_state,
    write_state,
)
from cfnade.utils.files import write_text

FOLDER, COMMIT = "ranks", "commit.json"
EVERY = 8
"""Steps between two questions whether it is time: each costs all ranks a moment."""


@dataclass(frozen=True)
class RankStateStore(StateStore):
    """Where the ranks of a group keep their states, under the run's folder."""

    group: ProcessGroup = SINGLE_PROCESS

    def is_due(self, step: int, seconds: float) -> bool:
        return step % EVERY == 0 and self.group.any_rank(seconds > self.seconds)

    def write(self, tensors: dict[str, Tensor], state: LoopState, identity: dict[str, Any]) -> None:
        name = f"{state.epoch:05d}-{state.step:09d}"
        write_state(self._own(name), tensors, state, identity)
        self.group.barrier()
        if self.group.rank == 0:
            written = {"state": name, "ranks": self.group.size}
            write_text(self.folder / FOLDER / COMMIT, json.dumps(written) + "\n")
        self.group.barrier()  # until then the earlier one counts
        for earlier in self._own(name).parent.iterdir():
            if earlier.name != name:
                shutil.rmtree(earlier)

    def read(self, identity: dict[str, Any]) -> tuple[dict[str, Tensor], LoopState]:
        written = self.group.broadcast(self._committed())
        where = self.folder / FOLDER / COMMIT
        if not isinstance(written, dict) or set(written) != {"state", "ranks"}:
            raise TrainingError(
                f"{where}: cannot be resumed: it is damaged; start again (--overwrite)"
            )
        if written["ranks"] != self.group.size:
            raise TrainingError(
                f"{self.folder}: was begun by {written['ranks']} ranks, and these are "
                f"{self.group.size}: each keeps its own columns. Go on with as many (torchrun "
                f"--nproc-per-node × --nnodes = {written['ranks']}), or start anew with --overwrite"
            )
        return read_state(self._own(written["state"]), identity)

    def exists(self) -> bool:
        written = self.folder / FOLDER / COMMIT
        return self.group.any_rank(self.group.rank == 0 and written.exists())

    def _own(self, name: str) -> Path:
        return self.folder / FOLDER / f"rank-{self.group.rank:03d}" / name

    def _committed(self) -> Any:
        """Return the content of the commit file on rank 0; None if it is damaged."""
        if self.group.rank > 0:
            return None
        try:
            return json.loads((self.folder / FOLDER / COMMIT).read_text())
        except (OSError, ValueError):
            return None


def exists(out: Path) -> bool:
    """Whether a folder holds a state that ranks can go on from, of a member or of lists."""
    return any((place / FOLDER / COMMIT).exists() for place in (out, implicit_folder(out)))


def history(out: Path) -> list[dict[str, Any]]:
    """The epochs that the state of rank 0 knows of."""
    if not (out / FOLDER / COMMIT).exists():
        return []
    name = json.loads((out / FOLDER / COMMIT).read_text())["state"]
    return read_history(out / FOLDER / "rank-000" / name)


def forget(out: Path) -> None:
    """Remove the states of a run."""
    shutil.rmtree(out / FOLDER, ignore_errors=True)
    shutil.rmtree(implicit_folder(out) / FOLDER, ignore_errors=True)
    with suppress(OSError):  # it holds something else, or is not there
        implicit_folder(out).rmdir()
