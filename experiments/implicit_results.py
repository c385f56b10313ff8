"""Top-n recommendation without options, beside tuned baselines: docs/results/implicit.md.

    python experiments/implicit_results.py                        # all rows, seed 0
    python experiments/implicit_results.py --only steam --seed 0  # one row
    python experiments/implicit_results.py --report               # only the page

A row is a data set. Baselines take the options with the best NDCG@20 on 20 % of the training part,
and are then fitted to all of it; cfnade is trained as by `cfnade train FILE`. The test part is
scored once. The page describes the protocol. Of several measurements the last counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import machine
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.training.implicit import implicit_plan
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.train import train
from cfnade_baselines.ranking_protocol import rated_items, score_rankings
from cfnade_baselines.registry import create_recommender
from experiments.implicit_data import FILES, RATINGS, SHAPES, hide, load_row
from experiments.implicit_page import write_page

RECORD = Path(__file__).resolve().parent / "results" / "implicit.jsonl"
METRICS = ("ndcg@10", "ndcg@20", "recall@20")
MODELS = ("popularity", "item-knn", "ease", "ials", "bpr", "mult-vae", "cfnade")
Options = dict[str, Any]
ROWS = [*FILES, *RATINGS, *SHAPES]
IntArray = npt.NDArray[np.int64]


# -- models ----------------------------------------------------------------------------------------


def grid(name: str, likes: Any) -> Iterator[Options]:
    """Yield the options to try on validation."""
    if name == "ease":
        yield from ({"regularization": x} for x in (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0))
    elif name == "item-knn":
        for neighbors in (20, 50, 100, 300):
            yield from ({"neighbors": neighbors, "shrinkage": s} for s in (0.0, 10.0, 100.0))
    elif name == "ials":
        mean = likes.nnz / likes.shape[0]
        for weight in (0.03, 0.1, 0.3):
            for ridge in (1.5, 3.0, 6.0, 12.0, 24.0):
                yield {
                    "factors": 64,
                    "epochs": 10,
                    "unobserved_weight": weight,
                    "regularization": ridge / (weight * likes.shape[1] + mean),
                }
    elif name == "bpr":
        for rate in (0.01, 0.05):
            for ridge in (0.001, 0.01, 0.05):
                yield {"factors": 64, "learning_rate": rate, "regularization": ridge}
    elif name == "mult-vae":
        epochs = int(np.clip(150_000 // likes.shape[0], 20, 150))
        yield from ({"epochs": epochs, "divergence_weight": x} for x in (0.2, 0.5, 1.0))
    else:
        yield {}


def tuned(
    name: str, train: Dataset, users: IntArray, seed: int, threads: int
) -> tuple[Any, Options]:
    """Return scores of a baseline with the best options on validation, and these options."""
    inner = hide(train, seed + 1)
    likes, query = rated_items(inner.train), inner.query()

    def value(options: Options) -> float:
        scores = fitted(name, likes, query.users, options, seed, threads)
        return score_rankings(scores, query, cutoffs=(20,)).estimates()["ndcg@20"].mean

    candidates = list(grid(name, likes))
    values = [value(options) if len(candidates) > 1 else 0.0 for options in candidates]
    if name in {"ials", "bpr"}:
        best = candidates[int(np.argmax(values))]
        larger = [best | {"factors": factors} for factors in (128, 256)]
        candidates, values = candidates + larger, values + [value(options) for options in larger]
    options = candidates[int(np.argmax(values))]
    return fitted(name, rated_items(train), users, options, seed, threads), options


def fitted(
    name: str, likes: Any, users: IntArray, options: Options, seed: int, threads: int
) -> Any:
    """Return the score function of a baseline, for queries of these users in this order."""
    if name == "bpr":
        return BPR(likes, users, options, seed, threads)
    return create_recommender(name, **options).fit(likes, seed=seed, n_threads=threads).score


class BPR:
    """Bayesian personalized ranking by implicit, with the factors learned for each user."""

    def __init__(
        self, likes: Any, users: IntArray, options: Options, seed: int, threads: int
    ) -> None:
        from implicit.cpu.bpr import BayesianPersonalizedRanking

        self._model = BayesianPersonalizedRanking(
            iterations=100, num_threads=threads, random_state=seed, **options
        )
        self._model.fit(likes, show_progress=False)
        self._users, self._next = users, 0

    def __call__(self, histories: Any) -> Any:
        """Return the scores of the next users of the query."""
        users = self._users[self._next : self._next + histories.shape[0]]
        self._next += histories.shape[0]
        return self._model.user_factors[users] @ self._model.item_factors.T


class WeightedScores:
    """Scores of an interaction model given the weights of users' interactions."""

    def __init__(self, model: InteractionModel, rows: InteractionRows) -> None:
        self._model, self._rows, self._next = model, rows, 0

    def __call__(self, histories: Any) -> Any:
        """Return the scores of the next users of the query."""
        users = np.arange(self._next, self._next + histories.shape[0])
        self._next += histories.shape[0]
        return self._model.scores(self._rows.select(users))


def measure(name: str, model: str, seed: int, threads: int) -> dict[str, Any]:
    """Fit a model to a row and score it once."""
    row = load_row(name, seed)
    query, began, facts = row.query(), time.monotonic(), dict[str, Any]()
    cpu = time.process_time()
    if model == "cfnade":
        parts = split(row.train, "all")
        plan = implicit_plan(parts.train, seed=seed)
        fitted = train(parts, TrainingPlan(implicit=plan), RunOptions(n_threads=threads)).model
        assert fitted.interaction_model is not None
        rows = InteractionRows.from_ratings(row.train).select(query.users)
        scores: Any = WeightedScores(fitted.interaction_model, rows)
        facts["weights"] = dict(fitted.interaction_model.weights)
    else:
        scores, facts["options"] = tuned(model, row.train, query.users, seed, threads)
    facts |= {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
    estimates = score_rankings(scores, query, cutoffs=(10, 20)).estimates()
    shape = [row.train.n_users, row.train.n_items, len(row.train)]
    figures = {key: [estimates[key].mean, estimates[key].error] for key in METRICS}
    return {"row": name, "model": model, "seed": seed, "shape": shape, **figures, **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows, models = ROWS, list(MODELS)
    parser.add_argument("--only", choices=rows, nargs="+", default=rows)
    parser.add_argument("--models", choices=models, nargs="+", default=models)
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="write the page and measure nothing")
    arguments = parser.parse_args()
    runs = [(r, m, s) for r in arguments.only for m in arguments.models for s in arguments.seed]
    for name, model, seed in [] if arguments.report else runs:
        figures = measure(name, model, seed, arguments.threads)
        print(json.dumps(figures), flush=True)
        with RECORD.open("a") as record:  # one line per run: an interrupted call keeps its results
            record.write(json.dumps(figures | {"machine": machine(arguments.threads)}) + "\n")
    write_page(RECORD, rows, models)


if __name__ == "__main__":
    main()
