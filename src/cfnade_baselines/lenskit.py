"""Biased ALS as LensKit fits it, in LensKit's own environment: it wants another pandas than ours.

The environment variable CFNADE_LENSKIT_PYTHON names the Python of an environment with LensKit; if
LensKit can be imported here, that is not needed. Numbers go there and come back in npz files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import util
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade_baselines.base import Count, FloatArray, MissingError, Positive, Rival
from cfnade_baselines.factor_model import FactorTables

PYTHON = "CFNADE_LENSKIT_PYTHON"
_WORKER = Path(__file__).with_name("lenskit_worker.py")


@dataclass(frozen=True, kw_only=True)
class ALS(Rival[FactorTables]):
    """LensKit's BiasedMFScorer: alternating least squares on what biases leave."""

    name: ClassVar[str] = "als"

    factors: Count = 50
    """How many numbers a taste has."""
    epochs: Count = 10
    """How often users and items are solved for in turn."""
    user_regularisation: Positive = 0.1
    """Times the user's ratings, what a taste is pulled to 0 with."""
    item_regularisation: Positive = 0.1
    """The same for items."""
    damping: Positive = 5.0
    """Imagined ratings at the mean in the biases."""

    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> FactorTables:
        """Fit in another process; `valid` is not looked at."""
        del valid
        python = interpreter()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "job.json").write_text(json.dumps(asdict(self) | {"seed": seed}))
            ratings = {"users": train.users, "items": train.items, "values": train.values}
            np.savez(folder / "ratings.npz", **ratings)  # type: ignore[arg-type]
            _run(python, folder, threads)
            with np.load(folder / "learnt.npz", allow_pickle=False) as file:
                learnt = {name: file[name] for name in file.files}
        return FactorTables.of(train, float(learnt["mean"]), *_by_index(train, learnt))


def interpreter() -> str:
    """The Python that has LensKit."""
    named = os.environ.get(PYTHON)
    if named:
        if not os.access(named, os.X_OK):
            raise MissingError(f"{PYTHON}={named}: there is no program to run; name a Python")
        return named
    if util.find_spec("lenskit") is not None:
        return sys.executable
    raise MissingError(
        "als needs LensKit in an environment of its own; make one with: python -m venv lenskit && "
        f"lenskit/bin/pip install 'lenskit>=2025.4', then set {PYTHON}=lenskit/bin/python"
    )


def _run(python: str, folder: Path, threads: int | None) -> None:
    environment = dict(os.environ)
    if threads is not None:
        count = {"LK_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        environment |= count | {"RAYON_NUM_THREADS": str(threads)}
    command = [python, "-I", str(_WORKER), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise (MissingError if "ModuleNotFoundError" in said else ModelError)(
            f"LensKit failed in {python}: {said}"
        )


def _by_index(
    train: Dataset, learnt: dict[str, Any]
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Biases and factors by our indices; LensKit leaves out whoever has no ratings."""
    biases, factors = [], []
    for side, count in (("user", train.n_users), ("item", train.n_items)):
        places = learnt[f"{side}s"]
        bias, factor = np.zeros(count), np.zeros((count, learnt[f"{side}_factors"].shape[1]))
        bias[places], factor[places] = learnt[f"{side}_biases"], learnt[f"{side}_factors"]
        biases.append(bias)
        factors.append(factor)
    return (biases[0], biases[1]), (factors[0], factors[1])
