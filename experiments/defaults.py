"""`CFNADE().fit(ratings)` without options, beside default and tuned baselines.

    python -m experiments.defaults --workers 2           # all that has no record yet
    python -m experiments.defaults filmtrust --seeds 0 1 2
    python -m experiments.defaults --again cfnade bfm     # only these models of recorded rows
    python -m experiments.defaults --report               # only docs/results/defaults.md

Each data set is split by "paper:SEED". Tuned baselines take the options that are best on the
validation part, and are fitted again to training and validation ratings together; with default
options they are fitted to both at once. cfnade is fitted to the training and validation parts with
no argument but the seed. The test part is scored once. Baselines that predict a number get a
distribution: a Gaussian around it, cut into levels, with the deviation of the validation errors.

Seconds are CPU seconds on one thread, including the search.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import machine
from cfnade import CFNADE, Dataset
from cfnade.data.load import load
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import Synthetic, synthetic
from cfnade.evaluation.rating_metrics import nll, rmse
from cfnade_baselines.compare import Record, ResultsFile
from cfnade_baselines.registry import create
from experiments.defaults_report import write_docs
from experiments.new_users.baselines import discretize
from experiments.runner import RESULTS

RECORDS = ResultsFile(RESULTS / "defaults.jsonl", ("name", "seed"))
SETS: dict[str, dict[str, Any]] = {
    "filmtrust": {"data": "other/filmtrust.txt.xz", "duplicates": "last"},
    "douban": {"data": "other/douban.csv.xz"},
    "ml-100k": {"data": "ml-100k"},
    "ml-latest-small": {"data": "ml-latest-small"},
    "ml-1m": {"data": "ml-1m"},
}
SHAPES: dict[str, tuple[int, int, int, int, str]] = {
    "tiny": (290, 300, 7_000, 4, "1-5"),
    "long rows": (200, 2_000, 60_000, 4, "1-5"),
    "short rows": (8_000, 500, 80_000, 4, "1-5"),
    "sparse": (3_000, 3_000, 26_000, 4, "0.5-5/0.5"),
    "dense": (400, 500, 100_000, 2, "1-5"),
    "two levels": (1_500, 1_000, 60_000, 4, "0-1"),
    "ten levels": (1_000, 1_000, 100_000, 4, "1-10"),
    "no tastes": (2_000, 1_500, 50_000, 1, "1-5"),
}
"""Synthetic data, whose least possible RMSE is known: users, items, ratings, factors, scale."""

GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "means": {"item_shrinkage": (1.0, 5.0, 20.0), "user_shrinkage": (1.0, 5.0, 20.0)},
    "svd": {"factors": (10, 100), "epochs": (20, 60), "regularization": (0.02, 0.1)},
    "biasmf": {"factors": (10, 100), "epochs": (20, 40, 60), "regularization": (0.05, 0.1, 0.15)},
    "bfm": {"rank": (4, 8, 16), "iterations": (200,), "kept_samples": (170,)},
}
"""Options among which each baseline is tuned."""
LARGE_GRIDS = {"bfm": {"rank": (16, 32), "iterations": (200,), "kept_samples": (170,)}}
"""The same for a million ratings, where smaller ranks are worse."""


def load_parts(name: str, seed: int) -> tuple[Split, Synthetic | None]:
    """Return the split, and the generator of synthetic data."""
    if name in SETS:
        options = dict(SETS[name])
        return split(load(_path_or_name(options.pop("data")), **options), f"paper:{seed}"), None
    users, items, ratings, factors, scale = SHAPES[name]
    made = synthetic(users, items, ratings, factors=factors, scale=scale, seed=1)
    return split(made.ratings, f"paper:{seed}"), made


def _path_or_name(data: str) -> str:
    """Return the path of a file in the data folder, or the name of a published data set."""
    return str(Path(os.environ["CFNADE_DATA"]) / data) if "/" in data else data


def rows(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the scores of each model."""
    parts, made = load_parts(name, seed)
    if made is not None:
        best = made.means(parts.test.users, parts.test.items)
        yield {"model": "best reachable", "rmse": rmse(parts.test.values, best)}
    yield score_cfnade(parts, seed)
    for model in GRIDS:
        for tuned in (False, True):
            yield score_baseline(model, parts, seed, tuned=tuned)


def score_cfnade(parts: Split, seed: int) -> dict[str, Any]:
    began = time.process_time()
    model = CFNADE(seed=seed, n_threads=1).fit(parts)
    seconds = time.process_time() - began
    scores = model.evaluate(parts.test)
    figures = {"rmse": scores.rmse, "nll": scores.nll, "seconds": seconds}
    return {"model": "cfnade"} | figures | {"tried": model.fitted_.metadata["tried"]}


def score_baseline(model: str, parts: Split, seed: int, *, tuned: bool) -> dict[str, Any]:
    began = time.process_time()
    grid = (GRIDS | (LARGE_GRIDS if len(parts.train) > 500_000 else {}))[model]
    candidates = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    candidates = candidates if tuned else [{}]
    errors = [_valid_errors(model, options, parts, seed) for options in candidates]
    best = int(np.argmin([np.square(candidate).mean() for candidate in errors]))
    options = candidates[best]
    ratings = parts.train.concat(parts.valid)
    fitted = create(model, **options).fit(ratings, parts.valid, seed=seed, n_threads=1)
    predictions = _predict(fitted, parts.test)
    seconds = time.process_time() - began
    deviation = float(np.sqrt(np.square(errors[best]).mean()))
    probabilities = discretize(predictions, deviation, parts.test.scale.array())
    return {
        "model": model,
        "tuned": tuned,
        "options": options,
        "rmse": rmse(parts.test.values, predictions),
        "nll": nll(probabilities, parts.test.levels),
        "seconds": seconds,
    }


def _valid_errors(model: str, options: dict[str, Any], parts: Split, seed: int) -> Any:
    fitted = create(model, **options).fit(parts.train, parts.valid, seed=seed, n_threads=1)
    return _predict(fitted, parts.valid) - parts.valid.values


def _predict(fitted: Any, ratings: Dataset) -> Any:
    values = ratings.scale.array()
    pairs = ratings.users.astype(np.int64), ratings.items.astype(np.int64)
    return np.clip(fitted.predict(*pairs), values[0], values[-1])


def _record(name: str, seed: int) -> Record | None:
    return RECORDS.find({"name": name, "seed": seed})


def _measure(name: str, seed: int) -> None:
    """Record the rows of all models of a split."""
    figures = {"data": name, "seed": seed, "rows": list(rows(name, seed)), **machine(1)}
    RECORDS.add({"name": name} | figures)


def _measure_again(name: str, seed: int, models: list[str]) -> None:
    """Replace the rows of these models, with the commit that they are of."""
    record, parts = _record(name, seed), load_parts(name, seed)[0]
    assert record is not None
    commit = {"commit": machine(1)["commit"]}

    def update(row: dict[str, Any]) -> dict[str, Any]:
        if row["model"] not in models:
            return row
        if row["model"] == "cfnade":
            return score_cfnade(parts, seed) | commit
        return score_baseline(row["model"], parts, seed, tuned=row["tuned"]) | commit

    record["rows"] = [update(row) for row in record["rows"]]
    RECORDS.add(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", help="data sets and shapes; all by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    parser.add_argument(
        "--again", nargs="+", metavar="MODEL", help="only these models of recorded rows"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names, again = arguments.data or [*SETS, *SHAPES], arguments.again
    if arguments.here:
        for name, seed in product(names, arguments.seeds):
            _measure_again(name, seed, again) if again else _measure(name, seed)
        return
    if not arguments.report:
        jobs = [
            (name, seed)
            for seed in arguments.seeds
            for name in names
            if (_record(name, seed) is not None) == bool(again)
        ]

        def start(job: tuple[str, int]) -> None:
            command = [sys.executable, "-m", "experiments.defaults", "--here"]
            command += [job[0], "--seeds", str(job[1])]
            command += ["--again", *again] if again else []
            process = subprocess.run(command, check=False)
            print(*job, "done" if process.returncode == 0 else "FAILED", flush=True)

        with ThreadPoolExecutor(arguments.workers) as pool:
            list(pool.map(start, jobs))
    write_docs(RECORDS.records(), [*SETS], [*SHAPES])


if __name__ == "__main__":
    main()
