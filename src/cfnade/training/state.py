"""The resumable state of a run: a resumed run ends with the bits of an uninterrupted one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cfnade.exceptions import DataError, TrainingError
from cfnade.utils.files import unfinished_writes
from cfnade.utils.safetensors_io import open_arrays, write_arrays

FORMAT, VERSION = "cfnade-training", "2"
NAME = "training.safetensors"


@dataclass
class LoopState:
    """Where a training loop stands. All of it is JSON."""

    epoch: int = 0  # completed epochs
    step: int = 0  # completed steps of all epochs
    epoch_cost: float = 0.0  # Σ cost · rows of the steps of the current epoch
    epoch_rows: int = 0  # completed rows of the current epoch
    epoch_seconds: float = 0.0
    seconds: float = 0.0  # of the completed epochs
    best_epoch: int = 0  # counts from 1; 0 is the start
    best: dict[str, float] | None = None  # validation scores of that epoch; None before the first
    rate_cuts: int = 0  # of the plateau schedule
    last_cut: int = 0  # epoch
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class StateStore:
    """Where and how often the state of a run is written."""

    folder: Path
    seconds: float = 30.0
    resume: bool = False

    def is_due(self, step: int, seconds: float) -> bool:
        """Return whether to write the state, so many seconds after the last one."""
        del step
        return seconds > self.seconds

    def write(self, tensors: dict[str, Tensor], state: LoopState, identity: dict[str, Any]) -> None:
        """Write a state of the run with this identity."""
        write_state(self.folder, tensors, state, identity)

    def read(self, identity: dict[str, Any]) -> tuple[dict[str, Tensor], LoopState]:
        """Return the state of the run with this identity."""
        return read_state(self.folder, identity)

    def exists(self) -> bool:
        """Return whether there is a state to resume from."""
        return (self.folder / NAME).exists()


def member_folder(folder: Path, number: int) -> Path:
    """Return the folder of a member's state; the first one is in the folder of the model."""
    return folder if number == 0 else folder / f"seed-{number}"


def implicit_folder(folder: Path) -> Path:
    """Return the folder of the interaction model's state."""
    return folder / "lists"


def write_state(
    folder: Path, tensors: dict[str, Tensor], state: LoopState, run: dict[str, Any]
) -> None:
    """Save tensors and state; `run` identifies the run."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "progress": json.dumps(vars(state)),
        "run": json.dumps(run),
    }
    write_arrays(folder / NAME, arrays, meta)


def read_state(folder: Path, run: dict[str, Any]) -> tuple[dict[str, Tensor], LoopState]:
    """Return the saved state; a damaged one or that of another run is an error."""
    path = folder / NAME
    if not path.exists():
        raise TrainingError(
            f"{folder}: holds no unfinished training ({NAME}); leave out --resume to start one"
        )
    try:
        arrays, meta = open_arrays(path)
        if meta.get("format") != FORMAT or meta.get("version") != VERSION:
            raise DataError("it is not the training state of this version")
        earlier, state = json.loads(meta["run"]), LoopState(**json.loads(meta["progress"]))
    except (DataError, ValueError, LookupError, TypeError) as error:
        raise TrainingError(f"{path}: cannot be resumed: {error}") from error
    if earlier != run:
        raise TrainingError(f"{path}: belongs to another run: {_difference(earlier, run)}")
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, state


def _difference(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    names = [n for n in {**earlier, **now} if earlier.get(n) != now.get(n)]
    parts = [f"{name} was {earlier.get(name)!r}, now {now.get(name)!r}" for name in names[:3]]
    return "; ".join(parts) + ". Give the same arguments, or train into another folder"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Return the epochs of the saved state."""
    try:
        history: list[dict[str, Any]] = json.loads(open_arrays(folder / NAME)[1]["progress"])[
            "history"
        ]
    except (DataError, ValueError, LookupError) as error:
        raise TrainingError(f"{folder / NAME}: cannot be resumed: {error}") from error
    return history


def read_histories(folder: Path, members: int) -> list[dict[str, Any]]:
    """Return the epochs of all members of a run, as callbacks receive them."""
    if members == 1:
        return read_history(folder)
    records = []
    for number in range(members):
        place = member_folder(folder, number)
        if (place / NAME).exists():
            records += [{"member": number, **record} for record in read_history(place)]
    return records


def state_files(folder: Path) -> list[Path]:
    """Return the files of a run's states, with temporary files of interrupted writes."""
    places = (folder, implicit_folder(folder), *folder.glob("seed-*"))
    return [
        path for place in places for path in (*place.glob(NAME), *unfinished_writes(place / NAME))
    ]


def state_times(folder: Path) -> dict[Path, int]:
    """Return when each file of a run's states was written, in nanoseconds."""
    return {path: time for path in state_files(folder) if (time := _time(path)) is not None}


def _time(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def delete_states(folder: Path, earlier: Mapping[Path, int] | None = None) -> None:
    """Remove the states of a run; with `earlier`, only files that were not written since."""
    for path in state_files(folder) if earlier is None else earlier:
        if earlier is not None and _time(path) != earlier[path]:
            continue
        path.unlink()
        if path.parent != folder and not any(path.parent.iterdir()):
            path.parent.rmdir()
