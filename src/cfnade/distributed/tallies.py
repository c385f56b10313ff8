"""Scores of more test ratings than fit into memory: sums of parts, added up."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np
import polars as pl

from cfnade.data.scale import Scale
from cfnade.evaluation import rating_metrics
from cfnade.evaluation.evaluate import BUCKET_BOUNDS
from cfnade.inference.results import probability_names

Tally = dict[str, Any]


def tally_of(judged: pl.DataFrame, scale: Scale) -> Tally:
    """What a table of predictions with their ratings adds to the scores."""
    if not len(judged):
        return {"n": 0}
    values, chances = (
        judged["rating"].to_numpy(),
        judged.select(probability_names(scale)).to_numpy(),
    )
    levels, stars = scale.nearest(values).astype(np.int64), scale.array()
    squares, n = np.square(values - judged["prediction"].to_numpy()), len(judged)
    told: Tally = {
        "n": n,
        "squares": float(squares.sum()),
        "mae_of_medians": n * rating_metrics.mae(values, rating_metrics.medians(chances, stars)),
        "nll": n * rating_metrics.nll(chances, levels),
        "rps": n * rating_metrics.rps(chances, levels, stars),
    }
    for name, of in (("by_user", "n_user_ratings"), ("by_item", "n_item_ratings")):
        bucket = np.searchsorted(BUCKET_BOUNDS, judged[of].to_numpy(), side="right") - 1
        told[name] = np.bincount(bucket, minlength=len(BUCKET_BOUNDS)).tolist()
        told[f"{name}_squares"] = np.bincount(bucket, squares, len(BUCKET_BOUNDS)).tolist()
    unseen = (pl.col("n_user_ratings") == 0) | (pl.col("n_item_ratings") == 0)
    return told | {"unseen_ratings": judged.filter(unseen).height}


def added(tallies: list[Tally]) -> dict[str, Any]:
    """The scores of all parts. Exact sums, so that it does not matter how ratings were cut."""
    some = [tally for tally in tallies if tally["n"]]
    n = sum(tally["n"] for tally in some)
    if not n:
        return {"n": 0}

    def mean(name: str) -> float:
        return float(fsum([tally[name] for tally in some]) / n)

    scores: dict[str, Any] = {"n": n, "rmse": mean("squares") ** 0.5}
    scores |= {name: mean(name) for name in ("mae_of_medians", "nll", "rps")}
    scores["unseen_ratings"] = sum(tally["unseen_ratings"] for tally in some)
    for name in ("by_user", "by_item"):
        counts = np.sum([tally[name] for tally in some], axis=0).tolist()
        squares = [
            fsum(column) for column in zip(*(t[f"{name}_squares"] for t in some), strict=True)
        ]
        scores[name] = [
            {"known": f"{low}+", "n": count, "rmse": (total / count) ** 0.5 if count else None}
            for low, count, total in zip(BUCKET_BOUNDS, counts, squares, strict=True)
        ]
    return scores
