"""One fit of a comparison in a process of its own: a job in JSON on stdin, its result on stdout."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cfnade import Dataset, Split, load_split
from cfnade.evaluation.rating_metrics import calibration_error, mae, nll, rmse
from cfnade.exceptions import CfnadeError, DataError, ModelError
from cfnade_baselines.base import (
    FloatArray,
    IntArray,
    MissingDependencyError,
    RatingPredictor,
    blas_threads,
)
from cfnade_baselines.ranking_protocol import (
    RankingTask,
    drop_unused_items,
    ranking_task,
    score_all_items,
    score_rankings,
)
from cfnade_baselines.registry import create, create_recommender

SELECTION_METRIC = "ndcg@100"
"""Metric by which validation selects the options of top-n models."""


def run_fit(job: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of a job, or None and a reason."""
    try:
        split = load_split(job["data"], job["split"], **job["load_options"])
        if split.fingerprint != job["fingerprint"]:
            raise ModelError(f"split {job['split']} has changed since the comparison began")
        fit = fit_recommender if job["task"] == "ranking" else fit_rating_predictor
        return {"scores": fit(job, split)}
    except MissingDependencyError as error:
        return {"scores": None, "reason": str(error), "missing": True}
    except CfnadeError as error:
        return {"scores": None, "reason": str(error)}


# -- ratings ---------------------------------------------------------------------------------------


def fit_rating_predictor(job: dict[str, Any], split: Split) -> dict[str, Any]:
    """Fit on the training part, or also on validation; score the test part once."""
    model, train, valid = create(job["model"], **job["options"]), split.train, split.valid
    if job.get("with_validation"):
        train, valid = train.concat(valid), valid.select(np.empty(0, np.int64))
    costs: dict[str, float] = {}
    with _measured("fit", costs):
        model.fit(train, valid, seed=job["seed"], n_threads=job["n_threads"])
    test, levels = split.test, split.test.scale.values
    with _measured("predict", costs):
        predictions = model.predict(*_pairs(test))
    if not np.isfinite(predictions).all():
        raise ModelError(f"{int((~np.isfinite(predictions)).sum()):,} predictions are not finite")
    predictions = np.clip(predictions, levels[0], levels[-1])
    return {
        "n": len(test),
        "rmse": rmse(test.values, predictions),
        "mae_of_means": mae(test.values, predictions),
        **_distribution_scores(model.predict_proba(*_pairs(test)), test),
        "valid_rmse": _valid_rmse(model, valid),
        "fit_seconds": costs["fit_seconds"],
        "fit_cpu_seconds": costs["fit_cpu_seconds"],
        "predict_seconds": costs["predict_seconds"],
        "peak_mb": peak_mb(),
        "load": os.getloadavg()[0],
    }


def _pairs(ratings: Dataset) -> tuple[IntArray, IntArray]:
    return ratings.users.astype(np.int64), ratings.items.astype(np.int64)


def _distribution_scores(
    probabilities: FloatArray | None, test: Dataset
) -> dict[str, float | None]:
    """None without a distribution, and for an infinite NLL, which JSON does not have."""
    if probabilities is None:
        return {"nll": None, "calibration_error": None}
    likelihood = nll(probabilities, test.levels)
    return {
        "nll": likelihood if math.isfinite(likelihood) else None,
        "calibration_error": calibration_error(probabilities, test.levels),
    }


def _valid_rmse(model: RatingPredictor, valid: Dataset) -> float | None:
    return rmse(valid.values, model.predict(*_pairs(valid))) if len(valid) else None


# -- top-n lists -----------------------------------------------------------------------------------


def fit_recommender(job: dict[str, Any], split: Split) -> dict[str, Any]:
    """Select options on validation, fit with them, and score the test part once."""
    task, costs = ranking_task(split), dict[str, float]()
    with blas_threads(job["n_threads"], job["model"]):
        candidates = search(job, task)
        best = max(candidates, key=lambda candidate: candidate["value"], default=job)
        options = best["options"]
        items, matrix = drop_unused_items(task.final_train)
        model = create_recommender(job["model"], **options)
        with _measured("fit", costs):
            model.fit(matrix, seed=job["seed"], n_threads=job["n_threads"])
        with _measured("predict", costs):
            user_scores = score_rankings(score_all_items(model.score, items), task.test)
    scores: dict[str, Any] = {"n": len(task.test)}
    for name, estimate in user_scores.estimates().items():
        scores |= {name: estimate.mean, f"{name}_error": estimate.error}
    return scores | {
        "fit_seconds": costs["fit_seconds"],
        "fit_cpu_seconds": costs["fit_cpu_seconds"],
        "predict_seconds": costs["predict_seconds"],
        "search_seconds": sum(candidate["seconds"] for candidate in candidates),
        "search_cpu_seconds": sum(candidate["cpu_seconds"] for candidate in candidates),
        "peak_mb": peak_mb(),
        "load": os.getloadavg()[0],
        "options": options,
        "tried": candidates,
    }


def search(job: dict[str, Any], task: RankingTask) -> list[dict[str, Any]]:
    """Score every candidate of the job's search on validation."""
    if not job["search"]:
        return []
    if len(task.valid) == 0:
        raise DataError(
            f"split {job['split']} has no interactions in validation to select options by; use "
            "another"
        )
    (items, matrix), tried = drop_unused_items(task.train), []
    for changes in job["search"]:
        options, costs = job["options"] | changes, dict[str, float]()
        with _measured("candidate", costs):
            model = create_recommender(job["model"], **options)
            model.fit(matrix, seed=job["seed"], n_threads=job["n_threads"])
            score = score_all_items(model.score, items)
            estimates = score_rankings(score, task.valid, cutoffs=(100,)).estimates()
        tried.append(
            {
                "options": options,
                "value": estimates[SELECTION_METRIC].mean,
                "seconds": costs["candidate_seconds"],
                "cpu_seconds": costs["candidate_cpu_seconds"],
            }
        )
    return tried


# -- costs -----------------------------------------------------------------------------------------


@contextmanager
def _measured(name: str, costs: dict[str, float]) -> Iterator[None]:
    """Set seconds and CPU seconds of the block, of all threads and of ended child processes."""
    start, cpu_start = time.perf_counter(), sum(os.times()[:4])
    yield
    costs[f"{name}_seconds"] = time.perf_counter() - start
    costs[f"{name}_cpu_seconds"] = sum(os.times()[:4]) - cpu_start


def peak_mb() -> float | None:
    """Return the peak memory of this process or of its largest child; None if unknown.

    VmHWM, because ru_maxrss of this process starts with its parent's.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peaks = [float(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    if not peaks:
        return None
    return max(peaks[0], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


if __name__ == "__main__":
    print(json.dumps(run_fit(json.load(sys.stdin))))
