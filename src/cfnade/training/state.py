"""The state of an unfinished run on disk: enough to end with the bits of an uninterrupted one."""

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

FORMAT, VERSION = "cfnade-training", "1"
NAME = "training.safetensors"


@dataclass
class Progress:
    """Where a run stands. All of it is JSON."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done in all
    epoch_cost: float = 0.0  # Σ cost · rows of the steps of the epoch under way
    epoch_rows: int = 0  # how many of its rows are done
    epoch_seconds: float = 0.0
    seconds: float = 0.0  # of the epochs done
    best_epoch: int = 0  # counts from 1; 0 is the start, or none yet
    best_rmse: float | None = None  # of that epoch
    best_nll: float | None = None
    quarters: int = 0
    last_cut: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def member_folder(folder: Path, number: int) -> Path:
    """Where the state of a run's model is kept: the first beside the saved model."""
    return folder if number == 0 else folder / f"seed-{number}"


def lists_folder(folder: Path) -> Path:
    """Where the state of what makes lists is kept."""
    return folder / "lists"


def write_state(
    folder: Path, tensors: dict[str, Tensor], progress: Progress, run: dict[str, Any]
) -> None:
    """Save tensors and progress; `run` says which run they belong to."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "progress": json.dumps(vars(progress)),
        "run": json.dumps(run),
    }
    write_arrays(folder / NAME, arrays, meta)


def read_state(folder: Path, run: dict[str, Any]) -> tuple[dict[str, Tensor], Progress]:
    """The saved state, refused if it is damaged or belongs to another run."""
    path = folder / NAME
    if not path.exists():
        raise TrainingError(
            f"{folder}: holds no unfinished training ({NAME}); leave out --resume to start one"
        )
    try:
        arrays, meta = open_arrays(path)
        if meta.get("format") != FORMAT or meta.get("version") != VERSION:
            raise DataError("it is not the training state of this version")
        earlier, progress = json.loads(meta["run"]), Progress(**json.loads(meta["progress"]))
    except (DataError, ValueError, LookupError, TypeError) as error:
        raise TrainingError(f"{path}: cannot be resumed: {error}") from error
    if earlier != run:
        raise TrainingError(f"{path}: belongs to another run: {_difference(earlier, run)}")
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, progress


def _difference(earlier: dict[str, Any], asked: dict[str, Any]) -> str:
    names = [n for n in {**earlier, **asked} if earlier.get(n) != asked.get(n)]
    parts = [f"{name} was {earlier.get(name)!r}, now {asked.get(name)!r}" for name in names[:3]]
    return "; ".join(parts) + ". Give the same arguments, or train into another folder"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The epochs that the saved state knows of."""
    try:
        history: list[dict[str, Any]] = json.loads(open_arrays(folder / NAME)[1]["progress"])[
            "history"
        ]
    except (DataError, ValueError, LookupError) as error:
        raise TrainingError(f"{folder / NAME}: cannot be resumed: {error}") from error
    return history


def read_histories(folder: Path, members: int) -> list[dict[str, Any]]:
    """The same of all models of a run, as its reporter gets them."""
    if members == 1:
        return read_history(folder)
    records = []
    for number in range(members):
        own = member_folder(folder, number)
        if (own / NAME).exists():
            records += [{"member": number, **record} for record in read_history(own)]
    return records


def states_in(folder: Path) -> list[Path]:
    """The files of a run's states, of all its models, and what kills left of writing them."""
    places = (folder, lists_folder(folder), *folder.glob("seed-*"))
    return [
        path for place in places for path in (*place.glob(NAME), *unfinished_writes(place / NAME))
    ]


def stamps_of_states(folder: Path) -> dict[Path, int]:
    """Return when each file of a run's states was written, in nanoseconds."""
    return {path: stamp for path in states_in(folder) if (stamp := _stamp(path)) is not None}


def _stamp(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def forget(folder: Path, earlier: Mapping[Path, int] | None = None) -> None:
    """Remove the states of a run; with `earlier`, only files that were not written since."""
    for path in states_in(folder) if earlier is None else earlier:
        if earlier is not None and _stamp(path) != earlier[path]:
            continue
        path.unlink()
        if path.parent != folder and not any(path.parent.iterdir()):
            path.parent.rmdir()
