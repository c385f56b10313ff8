"""Try options of a model and keep what validation says; the test part is never looked at.

    python -m experiments.tune_baselines ml-1m biasmf --try factors=50,100 --try epochs=20,40

Every combination is fitted once, with seed 0. Validation is a twentieth, drawn at random, of what
the first split (authors:1234, u1) has beside its test part. Records go to results/tuning.jsonl;
recorded options are not fitted again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from typing import Any

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.data.load import load_split
from cfnade.data.split_protocols import add_validation
from cfnade.evaluation.rating_metrics import nll, rmse
from cfnade_baselines.compare import Record, ResultsFile
from cfnade_baselines.registry import create
from experiments.runner import RESULTS

TUNING = ResultsFile(RESULTS / "tuning.jsonl", ("name", "data", "options"))
SPLITS = {"ml-1m": "authors:1234", "ml-100k": "u1"}


def parts(data: str) -> tuple[Dataset, Dataset]:
    """Training and validation ratings."""
    whole = load_split(data, SPLITS[data])
    ratings = whole.train.concat(whole.valid)
    labels = add_validation(np.zeros(len(ratings), np.uint8), 0)
    return ratings.select(labels == 0), ratings.select(labels == 1)


def search(data: str, model: str, grid: dict[str, list[Any]], threads: int) -> None:
    """Fit every combination that has not been fitted yet."""
    train, valid = parts(data)
    for values in itertools.product(*grid.values()):
        options = dict(zip(grid, values, strict=True))
        record: Record = {"name": model, "data": data, "options": options}
        if TUNING.find(record) is not None:
            continue
        start = time.perf_counter()
        fitted = create(model, **options).fit(train, valid, seed=0, n_threads=threads)
        record["seconds"] = time.perf_counter() - start
        record["rmse"] = rmse(valid.values, fitted.predict(valid.users, valid.items))
        probabilities = fitted.predict_proba(valid.users, valid.items)
        if probabilities is not None:
            record["nll"] = nll(probabilities, valid.levels)
        TUNING.add(record)
        print(json.dumps(record), flush=True)


def _option_values(text: str) -> tuple[str, list[Any]]:
    """An option and its values: numbers and the like as in JSON, or words."""
    name, _, values = text.partition("=")
    try:
        return name, list(json.loads(f"[{values}]"))
    except json.JSONDecodeError:
        return name, values.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", choices=SPLITS)
    parser.add_argument("model")
    parser.add_argument("--try", dest="grid", action="append", default=[], type=_option_values)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    search(arguments.data, arguments.model, dict(arguments.grid), arguments.threads)


if __name__ == "__main__":
    main()
