"""The state of a run on several ranks: one file for each, committed by rank 0.

    ranks/commit.json                     the committed state, and the number of ranks
    ranks/rank-001/00002-000000310/…      one rank's part of the state after epoch 2, step 310

A state is committed once every rank has written its part. So after a kill at any moment all ranks
resume from the same step. The ranks agree on when to write, as their clocks differ.
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
    member_folder,
    read_history,
    read_state,
    write_state,
)
from cfnade.utils.files import write_text

FOLDER, COMMIT = "ranks", "commit.json"
EVERY = 8
"""Steps between two agreements on whether to write, each of which is one sum over ranks."""


@dataclass(frozen=True)
class RankStateStore(StateStore):
    """Where the ranks of a group keep their states, under the run's folder."""

    group: ProcessGroup = SINGLE_PROCESS

    def is_due(self, step: int, seconds: float) -> bool:
        return step % EVERY == 0 and self.group.any_rank(seconds > self.seconds)

    def write(self, tensors: dict[str, Tensor], state: LoopState, identity: dict[str, Any]) -> None:
        name = f"{state.epoch:05d}-{state.step:09d}"
        write_state(self._state_folder(name), tensors, state, identity)
        self.group.barrier()
        if self.group.rank == 0:
            commit = {"state": name, "ranks": self.group.size}
            write_text(self.folder / FOLDER / COMMIT, json.dumps(commit) + "\n")
        self.group.barrier()  # until then the earlier state may be needed
        for earlier in self._state_folder(name).parent.iterdir():
            if earlier.name != name:
                shutil.rmtree(earlier)

    def read(self, identity: dict[str, Any]) -> tuple[dict[str, Tensor], LoopState]:
        commit = self.group.broadcast(self._read_commit())
        path = self.folder / FOLDER / COMMIT
        if not isinstance(commit, dict) or set(commit) != {"state", "ranks"}:
            raise TrainingError(
                f"{path}: cannot be resumed: it is damaged; start again (--overwrite)"
            )
        if commit["ranks"] != self.group.size:
            raise TrainingError(
                f"{self.folder}: was begun by {commit['ranks']} ranks, and these are "
                f"{self.group.size}: each keeps its own columns. Resume with as many (torchrun "
                f"--nproc-per-node × --nnodes = {commit['ranks']}), or start anew with --overwrite"
            )
        return read_state(self._state_folder(commit["state"]), identity)

    def exists(self) -> bool:
        path = self.folder / FOLDER / COMMIT
        return self.group.any_rank(self.group.rank == 0 and path.exists())

    def _state_folder(self, name: str) -> Path:
        return self.folder / FOLDER / f"rank-{self.group.rank:03d}" / name

    def _read_commit(self) -> Any:
        """Return the content of the commit file on rank 0; None if it is damaged."""
        if self.group.rank > 0:
            return None
        try:
            return json.loads((self.folder / FOLDER / COMMIT).read_text())
        except (OSError, ValueError):
            return None


def exists(out: Path) -> bool:
    """Return whether a folder holds a state that ranks can resume."""
    return any((folder / FOLDER / COMMIT).exists() for folder in _folders(out))


def history(out: Path, n_members: int = 1) -> list[dict[str, Any]]:
    """Return the epochs in the states of rank 0, as callbacks receive them."""
    records: list[dict[str, Any]] = []
    for number in range(n_members):
        folder = member_folder(out, number) / FOLDER
        if not (folder / COMMIT).exists():
            continue
        name = json.loads((folder / COMMIT).read_text())["state"]
        epochs = read_history(folder / "rank-000" / name)
        records += epochs if n_members == 1 else [{"member": number, **record} for record in epochs]
    return records


def forget(out: Path) -> None:
    """Remove the states of a run."""
    for folder in _folders(out):
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        if folder != out:
            with suppress(OSError):  # it holds something else, or does not exist
                folder.rmdir()


def _folders(out: Path) -> list[Path]:
    """Return where states of members and of the interaction model may be."""
    return [out, *out.glob("seed-*"), implicit_folder(out)]
