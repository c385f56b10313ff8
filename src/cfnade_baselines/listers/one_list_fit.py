"""One model's lists on one split: options chosen by validation, then test, once."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from cfnade.data.splits import Split
from cfnade.exceptions import DataError
from cfnade_baselines.fit_costs import cpu_seconds, peak_mb
from cfnade_baselines.libraries import blas_threads
from cfnade_baselines.listers import make_lister
from cfnade_baselines.listers.list_questions import ListParts, list_parts
from cfnade_baselines.listers.list_rival import LikedItems
from cfnade_baselines.listers.list_scoring import PersonScores, score_lists

CHOOSES = "ndcg@100"
"""What options are chosen by; it is of each person that this is kept."""


class Tried(NamedTuple):
    """Options, and what they gave on validation."""

    options: dict[str, Any]
    value: float
    seconds: float
    cpu_seconds: float


def list_scores(job: dict[str, Any], split: Split) -> dict[str, Any]:
    """Figures of the test's people under "scores", and each person's under "people"."""
    parts = list_parts(split)
    with blas_threads(job["threads"], job["model"]):
        tried = search(job, parts)
        options = max(tried, key=lambda one: one.value).options if tried else job["options"]
        start, work = time.perf_counter(), cpu_seconds()
        liked = LikedItems.of(parts.final_likes)
        rival = make_lister(job["model"], **options)
        fitted = liked.fit(rival, seed=job["seed"], threads=job["threads"])
        learnt, worked = time.perf_counter(), cpu_seconds() - work
        person_scores = score_lists(fitted.scores, parts.test)
    costs = {
        "fit_seconds": learnt - start,
        "fit_cpu_seconds": worked,
        "predict_seconds": time.perf_counter() - learnt,
        "search_seconds": sum(one.seconds for one in tried),
        "search_cpu_seconds": sum(one.cpu_seconds for one in tried),
        "peak_mb": peak_mb(),
        "load": os.getloadavg()[0],
    }
    chosen = {"options": options, "tried": [one._asdict() for one in tried]}
    scores = {"n": len(parts.test)} | _figures(person_scores) | costs | chosen
    people = {
        "users": split.test.user_ids[person_scores.users].tolist(),
        CHOOSES: _chosen_by(person_scores),
    }
    return {"scores": scores, "people": people}


def search(job: dict[str, Any], parts: ListParts) -> list[Tried]:
    """Every setting of the job's search, on validation; the job's options are where it starts."""
    if not job["search"]:
        return []
    if len(parts.valid) == 0:
        raise DataError(
            f"split {job['split']} has no likes for validation to choose options by; take another"
        )
    liked, out = LikedItems.of(parts.likes), []
    for setting in job["search"]:
        options = job["options"] | setting
        start, work = time.perf_counter(), cpu_seconds()
        rival = make_lister(job["model"], **options)
        fitted = liked.fit(rival, seed=job["seed"], threads=job["threads"])
        value = score_lists(fitted.scores, parts.valid, ks=(100,)).estimates()[CHOOSES].mean
        out.append(Tried(options, value, time.perf_counter() - start, cpu_seconds() - work))
    return out


def _figures(person_scores: PersonScores) -> dict[str, float | None]:
    """Means by name, and their standard errors beside them."""
    out: dict[str, float | None] = {}
    for name, estimate in person_scores.estimates().items():
        out |= {name: estimate.mean, f"{name}_error": estimate.error}
    return out


def _chosen_by(person_scores: PersonScores) -> list[float]:
    return [round(value, 6) for value in person_scores.values[CHOOSES].tolist()]
