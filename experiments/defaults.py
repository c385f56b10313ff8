"""A file and no settings: `CFNADE().fit(ratings)` beside rivals, with their defaults and tuned.

    python -m experiments.defaults --workers 2           # all that has no record yet
    python -m experiments.defaults filmtrust --seeds 0 1 2
    python -m experiments.defaults --again cfnade bfm     # these once more, the others as they were
    python -m experiments.defaults --report               # only docs/results/defaults.md

Each set is cut by "paper:SEED". A rival that is tuned takes the settings that are best on the
validation part, and is then fitted again to training and validation ratings together; with its
defaults it is fitted to both at once. Ours is what fit() makes of the training and validation parts
without any argument but the seed. The test part is scored once. Rivals that predict a number are
given a distribution: a normal one around it, cut into levels, as wide as its validation errors.

Seconds are CPU seconds on one thread, those of the search included where there is one.
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
"""Made-up data, whose best reachable RMSE is known: users, items, ratings, factors, scale."""

TRIED: dict[str, dict[str, tuple[Any, ...]]] = {
    "means": {"item_shrinkage": (1.0, 5.0, 20.0), "user_shrinkage": (1.0, 5.0, 20.0)},
    "svd": {"factors": (10, 100), "epochs": (20, 60), "regularization": (0.02, 0.1)},
    "biasmf": {"factors": (10, 100), "epochs": (20, 40, 60), "regularization": (0.05, 0.1, 0.15)},
    "bfm": {"rank": (4, 8, 16), "iterations": (200,), "kept_samples": (170,)},
}
"""What each rival is tuned over."""
LARGE = {"bfm": {"rank": (16, 32), "iterations": (200,), "kept_samples": (170,)}}
"""The same for a million ratings, where smaller ranks are known to be worse."""


def parts_of(name: str, seed: int) -> tuple[Split, Synthetic | None]:
    if name in SETS:
        options = dict(SETS[name])
        return split(load(_found(options.pop("data")), **options), f"paper:{seed}"), None
    users, items, ratings, factors, scale = SHAPES[name]
    made = synthetic(users, items, ratings, factors=factors, scale=scale, seed=1)
    return split(made.ratings, f"paper:{seed}"), made


def _found(data: str) -> str:
    """Files beside the published sets are found in the same folder."""
    return str(Path(os.environ["CFNADE_DATA"]) / data) if "/" in data else data


def rows(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """The scores of every contestant, one after another."""
    parts, made = parts_of(name, seed)
    if made is not None:
        best = made.means(parts.test.users, parts.test.items)
        yield {"model": "best reachable", "rmse": rmse(parts.test.values, best)}
    yield ours(parts, seed)
    for model in TRIED:
        for tuned in (False, True):
            yield rival(model, parts, seed, tuned=tuned)


def ours(parts: Split, seed: int) -> dict[str, Any]:
    began = time.process_time()
    model = CFNADE(seed=seed, n_threads=1).fit(parts)
    seconds = time.process_time() - began
    scores = model.evaluate(parts.test)
    said = {"rmse": scores.rmse, "nll": scores.nll, "seconds": seconds}
    return {"model": "cfnade"} | said | {"tried": model.fitted_.metadata["tried"]}


def rival(model: str, parts: Split, seed: int, *, tuned: bool) -> dict[str, Any]:
    began = time.process_time()
    grid = (TRIED | (LARGE if len(parts.train) > 500_000 else {}))[model]
    choices = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    found = [_errors(model, options, parts, seed) for options in (choices if tuned else [{}])]
    best = int(np.argmin([np.square(errors).mean() for errors in found]))
    options = choices[best] if tuned else {}
    everything = parts.train.concat(parts.valid)
    fitted = create(model, **options).fit(everything, parts.valid, seed=seed, n_threads=1)
    predicted = _predicted(fitted, parts.test)
    seconds = time.process_time() - began
    width = float(np.sqrt(np.square(found[best]).mean()))
    chances = discretize(predicted, width, parts.test.scale.array())
    return {
        "model": model,
        "tuned": tuned,
        "options": options,
        "rmse": rmse(parts.test.values, predicted),
        "nll": nll(chances, parts.test.levels),
        "seconds": seconds,
    }


def _errors(model: str, options: dict[str, Any], parts: Split, seed: int) -> Any:
    fitted = create(model, **options).fit(parts.train, parts.valid, seed=seed, n_threads=1)
    return _predicted(fitted, parts.valid) - parts.valid.values


def _predicted(fitted: Any, asked: Dataset) -> Any:
    stars = asked.scale.array()
    cells = asked.users.astype(np.int64), asked.items.astype(np.int64)
    return np.clip(fitted.predict(*cells), stars[0], stars[-1])


def _record(name: str, seed: int) -> Record | None:
    return RECORDS.find({"name": name, "seed": seed})


def _one(name: str, seed: int) -> None:
    """All of one split, in this process."""
    found = {"data": name, "seed": seed, "rows": list(rows(name, seed)), **machine(1)}
    RECORDS.add({"name": name} | found)


def _again(name: str, seed: int, models: list[str]) -> None:
    """The rows of these models anew; the others' rows and the commit that they are of stay."""
    record, parts = _record(name, seed), parts_of(name, seed)[0]
    assert record is not None
    made_by = {"commit": machine(1)["commit"]}

    def anew(row: dict[str, Any]) -> dict[str, Any]:
        if row["model"] == "cfnade":
            return ours(parts, seed) | made_by
        return rival(row["model"], parts, seed, tuned=row["tuned"]) | made_by

    record["rows"] = [anew(row) if row["model"] in models else row for row in record["rows"]]
    RECORDS.add(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", help="sets and shapes; all if none")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    parser.add_argument(
        "--again", nargs="+", metavar="MODEL", help="only these, where all are kept"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.data or [*SETS, *SHAPES]
    if asked.here:
        for name, seed in product(names, asked.seeds):
            _again(name, seed, asked.again) if asked.again else _one(name, seed)
        return
    if not asked.report:
        kept = bool(asked.again)
        todo = [(n, s) for s in asked.seeds for n in names if (_record(n, s) is not None) == kept]

        def start(job: tuple[str, int]) -> None:
            own = [
                sys.executable,
                "-m",
                "experiments.defaults",
                job[0],
                "--seeds",
                str(job[1]),
                "--here",
            ]
            own += ["--again", *asked.again] if kept else []
            done = subprocess.run(own, check=False)
            print(*job, "done" if done.returncode == 0 else "FAILED", flush=True)

        with ThreadPoolExecutor(asked.workers) as pool:
            list(pool.map(start, todo))
    write_docs(RECORDS.records(), [*SETS], [*SHAPES])


if __name__ == "__main__":
    main()
