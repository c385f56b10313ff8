"""Whether a disk has room for a run, asked before hours go into it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cfnade.components import bytes_of_weights
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.training.member import Job
from cfnade.training.state import states_in

_COPIES = 4  # of the weights in a state: themselves, the best ones and Adam's two moments
_RATING = 17  # bytes, with its time


def require_space(folder: Path, split: Split, jobs: Sequence[Job]) -> None:
    """Refuse a run whose states and model would fill the disk; states that are there are replaced.

    A state is written whole before the last one goes, and the model while all states are there.
    """
    weights = [bytes_of_weights(job.names, split.train, job.fields) for job in jobs]
    states = [
        size * (_COPIES + (job.settings.average > 0))
        for size, job in zip(weights, jobs, strict=True)
    ]
    model = sum(weights) + _RATING * sum(map(len, (split.train, split.valid, split.fold_in)))
    there = sum(path.stat().st_size for path in states_in(folder))
    needed = sum(states) + max(model, *states) - there
    free = shutil.disk_usage(_nearest(folder)).free
    if free < needed:
        raise TrainingError(
            f"{folder}: the disk has {_size(free)} free, and training needs about "
            f"{_size(needed)} there while it runs, for its state and for the model "
            f"({_size(model)}); make room, or train into a folder on another disk"
        )


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above that is there."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
