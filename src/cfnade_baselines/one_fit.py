"""One model on one split, in a process of its own: a job in JSON comes in, scores go out."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

import numpy as np

from cfnade import Dataset, Split, load_split
from cfnade.evaluation.rating_metrics import calibration_error, mae, nll, rmse
from cfnade.exceptions import CfnadeError, ModelError
from cfnade_baselines import make
from cfnade_baselines.base import Fitted, FloatArray, IntArray, MissingError
from cfnade_baselines.fit_costs import cpu_seconds, peak_mb
from cfnade_baselines.listers.one_list_fit import list_scores


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """The scores of a job, or why there are none."""
    try:
        parts = load_split(job["data"], job["split"], **job["reading"])
        if parts.fingerprint != job["fingerprint"]:
            raise ModelError(f"split {job['split']} has changed since the comparison began")
        return list_scores(job, parts) if job.get("lists") else {"scores": scores(job, parts)}
    except MissingError as error:
        return {"scores": None, "reason": str(error), "missing": True}
    except CfnadeError as error:
        return {"scores": None, "reason": str(error)}


def scores(job: dict[str, Any], parts: Split) -> dict[str, Any]:
    """Fit on train, with validation to stop by, or on both; score test once."""
    rival, train, valid = make(job["model"], **job["options"]), parts.train, parts.valid
    if job.get("with_validation"):
        train, valid = train.concat(valid), valid.select(np.empty(0, np.int64))
    start, work = time.perf_counter(), cpu_seconds()
    fitted = rival.fit(train, valid, seed=job["seed"], threads=job["threads"])
    learnt, worked = time.perf_counter(), cpu_seconds() - work
    test, stars = parts.test, parts.test.scale.values
    predictions = fitted.predict(*_cells(test))
    predicted = time.perf_counter()
    if not np.isfinite(predictions).all():
        raise ModelError(f"{int((~np.isfinite(predictions)).sum()):,} predictions are not finite")
    predictions = np.clip(predictions, stars[0], stars[-1])
    return {
        "n": len(test),
        "rmse": rmse(test.values, predictions),
        "mae_of_means": mae(test.values, predictions),
        **_of_distribution(fitted.probabilities(*_cells(test)), test),
        "valid_rmse": _valid_rmse(fitted, valid),
        "fit_seconds": learnt - start,
        "fit_cpu_seconds": worked,
        "predict_seconds": predicted - learnt,
        "peak_mb": peak_mb(),
        "load": os.getloadavg()[0],
    }


def _cells(ratings: Dataset) -> tuple[IntArray, IntArray]:
    return ratings.users.astype(np.int64), ratings.items.astype(np.int64)


def _of_distribution(chances: FloatArray | None, test: Dataset) -> dict[str, float | None]:
    """None without a distribution, or if a rating was held impossible: JSON has no infinity."""
    if chances is None:
        return {"nll": None, "calibration_error": None}
    likelihood = nll(chances, test.levels)
    return {
        "nll": likelihood if math.isfinite(likelihood) else None,
        "calibration_error": calibration_error(chances, test.levels),
    }


def _valid_rmse(fitted: Fitted, valid: Dataset) -> float | None:
    return rmse(valid.values, fitted.predict(*_cells(valid))) if len(valid) else None


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
