"""CF-NADE with and without a ridge component on Netflix, for known and for held-out users.

    python -m experiments.netflix_people ridge --threads 1
    python -m experiments.netflix_people plain --threads 1

One training serves both: 2,000 users are removed from the split "paper:1". The test ratings of the
others measure predictions for known users. The histories of held-out users are their first 0, 1, 5
and 20 ratings in a random order; up to 50 of the later ones are predicted, the same for all sizes.
Shrunken means predict the same ratings. Records are in results/netflix_people.jsonl.

--share 0.08 trains on that fraction of the users, holds out others and uses no test rating: the
options were chosen so (LOG.md). The result is printed, not recorded.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.load import load_split
from cfnade.data.splits import Split
from cfnade.evaluation.evaluate import evaluate
from cfnade.evaluation.rating_metrics import nll, rmse
from cfnade.inference.predictor import Predictor
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.progress import ProgressCallback
from cfnade.training.train import train
from cfnade_baselines.compare import ResultsFile
from experiments.fit import commit
from experiments.runner import RESULTS

PLAN = Path(__file__).with_suffix(".toml")
N_HELD_OUT, MIN_RATINGS, MAX_TARGETS = 2_000, 30, 50
HISTORY_SIZES = (0, 1, 5, 20)
SHRINKAGE = (2.0, 5.0, 10.0, 20.0, 40.0)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class HeldOut:
    """Users who are in no part of the split, with histories and targets."""

    def __init__(self, ratings: Dataset, users: IntArray, seed: int) -> None:
        random, order = np.random.default_rng((seed, 1)), np.argsort(ratings.users, kind="stable")
        starts = np.searchsorted(ratings.users[order], users, side="left")
        ends = np.searchsorted(ratings.users[order], users, side="right")
        places = [
            order[random.permutation(np.arange(*span))] for span in zip(starts, ends, strict=True)
        ]
        longest = max(HISTORY_SIZES)
        self.ratings, self.histories = ratings, [user[:longest] for user in places]
        targets = [user[longest:][:MAX_TARGETS] for user in places]
        self.targets = np.concatenate(targets)  # places
        self.rows = np.repeat(np.arange(len(users)), [*map(len, targets)])

    def target_values(self) -> FloatArray:
        return np.asarray(self.ratings.values[self.targets])

    def scores(self, predictor: Predictor) -> dict[str, dict[str, float]]:
        """Return RMSE and NLL of a model by history size."""
        scores, values = {}, self.ratings.scale.array()
        for size in HISTORY_SIZES:
            probabilities = self._predict(predictor, size)
            scores[str(size)] = {
                "rmse": rmse(self.target_values(), probabilities @ values),
                "nll": nll(probabilities, self.ratings.levels[self.targets]),
            }
        return scores

    def _predict(self, predictor: Predictor, size: int) -> FloatArray:
        ids, items, values = self.ratings.item_ids, self.ratings.items, self.ratings.values
        histories = {
            f"new{row}": {int(ids[items[place]]): float(values[place]) for place in places[:size]}
            for row, places in enumerate(self.histories)
        }
        users = [f"new{row}" for row in self.rows]
        item_ids = ids[items[self.targets]]
        return predictor.predict(users, item_ids, histories=histories).probabilities

    def means(self, train: Dataset) -> dict[str, dict[str, float]]:
        """Return the RMSE of shrunken means by history size, with the best shrinkages."""
        scores, values = {}, self.target_values()
        for size in HISTORY_SIZES:
            errors = [
                rmse(values, self._means(train, size, items, users))
                for items in SHRINKAGE
                for users in SHRINKAGE
            ]
            scores[str(size)] = {"rmse": min(errors)}
        return scores

    def _means(
        self, train: Dataset, size: int, item_shrinkage: float, user_shrinkage: float
    ) -> FloatArray:
        values, mean = train.scale.array(), float(train.values.mean())
        counts = train.level_counts("item")
        offsets = counts @ (values - mean) / (counts.sum(1) + item_shrinkage)
        ratings, users = self.ratings, np.zeros(len(self.histories))
        for row, places in enumerate(self.histories):
            history = places[:size]
            residuals = ratings.values[history] - mean - offsets[ratings.items[history]]
            users[row] = residuals.sum() / (size + user_shrinkage)
        predictions = mean + offsets[ratings.items[self.targets]] + users[self.rows]
        return np.asarray(np.clip(predictions, values[0], values[-1]))


def hold_out(parts: Split, fraction: float) -> tuple[Split, HeldOut]:
    """Return the split without held-out users; for a fraction of the users the test is empty."""
    seed, n_users = int(fraction < 1), parts.train.n_users
    random = np.random.default_rng((seed, 0))
    ratings = parts.train.concat(parts.valid).concat(parts.test)
    counts = np.bincount(ratings.users, minlength=n_users)
    candidates = random.permutation(np.flatnonzero(counts >= MIN_RATINGS))
    held_out = np.sort(candidates[:N_HELD_OUT])
    is_used = random.random(n_users) < fraction
    is_used[held_out] = False
    train, valid, test = (
        part.select(is_used[part.users]) for part in (parts.train, parts.valid, parts.test)
    )
    if fraction < 1:
        test = test.select(np.zeros(len(test), bool))
    held_out_ratings = ratings.select(np.isin(ratings.users, held_out))
    remaining = replace(parts, train=train, valid=valid, test=test)
    return remaining, HeldOut(held_out_ratings, held_out, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a table of netflix_people.toml")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], help="key=value of training or model")
    options = parser.parse_args()
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))[options.name]
    for text in options.set:
        key, value = text.split("=", 1)
        plan["model" if key in plan["model"] else "training"][key] = json.loads(value)
    parts, held_out = hold_out(load_split("netflix", "paper:1"), options.share)
    code, began, cpu_began = commit(), time.perf_counter(), time.process_time()
    trained = train(
        parts,
        plan_side("user", plan["model"], TrainingConfig.from_dict(plan["training"])),
        RunOptions(n_threads=options.threads, callbacks=[ProgressCallback()]),
    )
    metadata = trained.model.metadata
    record: dict[str, Any] = {
        "name": options.name,
        **plan,
        "commit": code,
        "seconds": round(time.perf_counter() - began),
        "cpu_seconds": round(time.process_time() - cpu_began),
        "threads": options.threads,
        "valid": metadata["valid"],
        "epochs": metadata["epochs"],
        "best_epoch": metadata["best_epoch"],
        "held_out": held_out.scores(Predictor(trained.model)),
        "means": held_out.means(parts.train),
        "asked": len(held_out.targets),
    }
    if options.share == 1:
        record["test"] = evaluate(trained.model, parts.test).as_dict()
        record["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        ResultsFile(RESULTS / "netflix_people.jsonl", ("name",)).add(record)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
