"""One model on one split, in a process of its own: a job in JSON comes in, scores go out."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.data.loader import load_split
from cfnade.errors import CfnadeError, ModelError
from cfnade.metrics import calibration_error, mae, nll, rmse
from cfnade.rivals import make
from cfnade.rivals.interface import FloatArray, MissingError, Rival


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """The scores of a job, or why there are none."""
    try:
        return {"scores": scores(job)}
    except MissingError as error:
        return {"scores": None, "reason": str(error), "missing": True}
    except CfnadeError as error:
        return {"scores": None, "reason": str(error)}


def scores(job: dict[str, Any]) -> dict[str, Any]:
    """Fit on train, with validation to stop by; score test once."""
    parts = load_split(job["data"], job["split"], **job["reading"])
    if parts.fingerprint != job["fingerprint"]:
        raise ModelError(f"split {job['split']} has changed since the comparison began")
    rival = make(job["model"], **job["options"])
    start, work = time.perf_counter(), _cpu_seconds()
    rival.fit(parts.train, parts.valid, seed=job["seed"], threads=job["threads"])
    fitted, worked = time.perf_counter(), _cpu_seconds() - work
    test, stars = parts.test, parts.test.scale.values
    users, items = test.users.astype(np.int64), test.items.astype(np.int64)
    predictions = rival.predict(users, items)
    predicted = time.perf_counter()
    if not np.isfinite(predictions).all():
        raise ModelError(f"{int((~np.isfinite(predictions)).sum()):,} predictions are not finite")
    predictions = np.clip(predictions, stars[0], stars[-1])
    return {
        "n": len(test),
        "rmse": rmse(test.values, predictions),
        "mae": mae(test.values, predictions),
        **_of_distribution(rival.probabilities(users, items), test.levels),
        "valid_rmse": _valid_rmse(rival, parts.valid),
        "fit_seconds": fitted - start,
        "fit_cpu_seconds": worked,
        "predict_seconds": predicted - fitted,
        "peak_mb": _with_worker(peak_mb(), rival),
        "load": os.getloadavg()[0],
    }


def _of_distribution(chances: FloatArray | None, levels: Any) -> dict[str, float | None]:
    """None without a distribution, or if a rating was held impossible: JSON has no infinity."""
    if chances is None:
        return {"nll": None, "calibration_error": None}
    likelihood = nll(chances, levels)
    return {
        "nll": likelihood if math.isfinite(likelihood) else None,
        "calibration_error": calibration_error(chances, levels),
    }


def _valid_rmse(rival: Rival, valid: Any) -> float | None:
    if len(valid) == 0:
        return None
    users, items = valid.users.astype(np.int64), valid.items.astype(np.int64)
    return rmse(valid.values, rival.predict(users, items))


def _cpu_seconds() -> float:
    """Of all threads and of processes that have ended: on a busy machine the fairer clock."""
    return sum(os.times()[:4])


def _with_worker(own: float | None, rival: Rival) -> float | None:
    """The larger of this process and the one that the model ran in, if it needed another."""
    worker: float = getattr(rival, "worker_peak_mb", 0.0)
    return None if own is None else max(own, worker)


def peak_mb() -> float | None:
    """The peak memory of this process alone (its parent's does not count); None if unknown."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return found[0] if found else None


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
