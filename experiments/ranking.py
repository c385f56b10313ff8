"""Top-n recommendation: the figures of docs/results/lists.md, each from a command of its own.

    python -m experiments.ranking people   held-out users of MovieLens 1M, five seeds, paired
    python -m experiments.ranking rated    lists of rating data: MovieLens 1M, authors:1234
    python -m experiments.ranking tastes   new users with opposite tastes
    python -m experiments.ranking netflix  Liang's protocol on Netflix
    python -m experiments.ranking search   iALS tuned on a sample of the users of Netflix
    python -m experiments.ranking rivals   EASE, iALS and their blend on the same users
    python -m experiments.ranking compared every preset of top-n models on MovieLens 1M
    python -m experiments.ranking report   docs/results/lists.md from the records

Options are chosen on validation; each test part is scored once per run. Records are in
results/ranking.jsonl, those of `compared` in results/comparison.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import cfnade
from benchmarks.common import machine
from cfnade.fitted_model import FittedModel
from cfnade.implicit import ImplicitComponent, InteractionModel
from cfnade.inference.query import Entities
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.results import TopN
from cfnade.training.callbacks import MessageCallback
from cfnade.training.implicit import implicit_plan
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.train import train
from cfnade_baselines.cfnade import interaction_rows
from cfnade_baselines.compare import Comparison, ResultsFile, compare
from cfnade_baselines.irspack import blend
from cfnade_baselines.ranking_protocol import (
    RankingQuery,
    UserScores,
    ranking_task,
    score_rankings,
)
from cfnade_baselines.registry import create_recommender
from experiments.ranking_report import write_page
from experiments.runner import RESULTS

RECORDS = ResultsFile(RESULTS / "ranking.jsonl", ("name",))
SEEDS = (98765, 1, 2, 3, 4)
N_HELD_OUT = 600
THRESHOLD = 4
"""Least rating that is an interaction."""
METRICS = ("ndcg@100", "capped_recall@20", "capped_recall@50")
BASELINES: dict[str, dict[str, Any]] = {
    "ease": {"regularization": 700.0},
    "ials": {"factors": 512, "unobserved_weight": 0.1, "regularization": 0.01, "epochs": 16},
    "ease+ials": {
        "ease_regularization": 700.0,
        "factors": 512,
        "unobserved_weight": 0.1,
        "regularization": 0.01,
        "epochs": 16,
        "weight": 0.7,
    },
}
"""Options that validation chose on the first seed (results/comparison.jsonl)."""
IALS_TRAIN_USERS, IALS_VALID_USERS = 30_000, 1_000
"""Users of Netflix in the search of iALS."""
IALS_GRID = [
    (64, 0.02, 0.01, 5),
    (64, 0.02, 0.003, 5),
    (64, 0.02, 0.003, 16),
    (64, 0.1, 0.01, 16),
    (64, 0.1, 0.003, 16),
    (64, 0.1, 0.001, 10),
    (64, 0.3, 0.003, 10),
    (64, 0.3, 0.001, 10),
    (64, 0.3, 0.0003, 10),
    (64, 1.0, 0.001, 10),
    (64, 1.0, 0.0003, 10),
    (256, 0.1, 0.003, 8),
    (256, 0.3, 0.003, 8),
    (256, 0.1, 0.001, 8),
    (256, 0.05, 0.003, 8),
]
"""Factors, weight of unobserved pairs, penalty, epochs."""
IALS_FINAL = {"factors": 256, "epochs": 8}
"""Options of the final fit, where an epoch takes minutes."""
BLEND_USERS = 2_000
"""Validation users that choose the weight of iALS in the blend."""
GENRES = ("Sci-Fi", "Romance", "Horror", "Children's")


def held_out_users(threads: int) -> dict[str, Any]:
    """Score cfnade and the best baselines on the same users, for each seed."""
    rows = []
    for seed in SEEDS:
        split = cfnade.load_split("ml-1m", f"liang:{N_HELD_OUT}:{seed}", min_rating=THRESHOLD)
        parts = ranking_task(split)
        began = time.monotonic()
        fitted = train(
            split,
            TrainingPlan(implicit=implicit_plan(split.train, seed=0)),
            RunOptions(n_threads=threads),
        ).model
        seconds = {"cfnade": time.monotonic() - began}
        scores = {"cfnade": score_rankings(_score_function(fitted), parts.test)}
        scores |= _score_components(fitted, parts.test)
        for name, options in BASELINES.items():
            began = time.monotonic()
            model = create_recommender(name, **options).fit(
                parts.final_train, seed=0, n_threads=threads
            )
            seconds[name] = time.monotonic() - began
            scores[name] = score_rankings(model.score, parts.test)
        rows.append({"seed": seed, "seconds": seconds, **_row(scores)})
        print(json.dumps(rows[-1]), flush=True)
    return {"held": N_HELD_OUT, "rows": rows}


def _interaction_model(fitted: FittedModel) -> InteractionModel:
    model = fitted.interaction_model
    assert model is not None
    return model


def _score_function(fitted: FittedModel) -> Any:
    """Return the score function for score_rankings."""
    return partial(_scores, _interaction_model(fitted))


def _score_components(fitted: FittedModel, query: RankingQuery) -> dict[str, UserScores]:
    """Score each component of an interaction model by itself."""
    return {
        f"cfnade: {name}": score_rankings(partial(_scores, component), query)
        for name, component in _interaction_model(fitted).components.items()
    }


def _scores(model: ImplicitComponent | InteractionModel, histories: Any) -> Any:
    return model.scores(interaction_rows(histories))


def _row(user_scores: dict[str, UserScores]) -> dict[str, Any]:
    """Return means with their errors, and paired differences of NDCG@100 from cfnade."""
    cfnade_ndcg = user_scores["cfnade"].values["ndcg@100"]
    scores, gaps = {}, {}
    for name, model_scores in user_scores.items():
        estimates = model_scores.estimates()
        scores[name] = {key: [estimates[key].mean, estimates[key].error] for key in METRICS}
        if name != "cfnade":
            gap = cfnade_ndcg - model_scores.values["ndcg@100"]
            gaps[name] = [float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))]
    return {"people": len(cfnade_ndcg), "scores": scores, "ahead_of": gaps}


def rated(threads: int) -> dict[str, Any]:
    """Score lists of a rating model with interactions, of popularity and of EASE."""
    split = cfnade.load_split("ml-1m", "authors:1234")
    began = time.monotonic()
    model = cfnade.CFNADE(side="user", learn_interactions=True, n_threads=threads).fit(split)
    seconds = time.monotonic() - began
    metadata = model.fitted_.metadata
    rows: dict[str, Any] = {}
    for name, changes in (
        ("picked and liked", {}),
        ("picked", {"balance": 0.0}),
        ("nearer to ratings, taste 0.75", {"balance": 0.75}),
        ("expected rating", {"rank_by": "prediction"}),
    ):
        rows[name] = _score_lists(model, split.test, changes)
        print(name, rows[name], flush=True)
    parts = ranking_task(split, THRESHOLD)
    for name in ("popularity", "ease"):
        options = {} if name == "popularity" else {"regularization": 500.0}
        recommender = create_recommender(name, **options).fit(
            parts.final_train, seed=0, n_threads=threads
        )
        estimates = score_rankings(recommender.score, parts.test, cutoffs=(10, 20)).estimates()
        rows[name] = {
            key: [estimates[key].mean, estimates[key].error]
            for key in ("ndcg@10", "recall@20", "precision@10")
        }
    return {
        "rows": rows,
        "rmse": model.evaluate(split.test).rmse,
        "seconds": seconds,
        "seconds_of_lists": metadata["lists"]["total_seconds"],
    }


def _score_lists(model: cfnade.CFNADE, test: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of lists with some ranking options changed."""
    predictor = model.predictor_
    original = predictor.recommend

    def changed(users: Entities, options: RankingOptions) -> TopN:
        return original(users, replace(options, **changes))

    try:
        predictor.recommend = changed  # type: ignore[assignment]
        by_k = model.evaluate_ranking(test, k=(10, 20), threshold=THRESHOLD).by_k
    finally:
        predictor.recommend = original  # type: ignore[method-assign]
    scores = {"ndcg@10": by_k[10]["ndcg"], "recall@20": by_k[20]["recall"]}
    scores["precision@10"] = by_k[10]["precision"]
    return {name: [estimate.mean, estimate.error] for name, estimate in scores.items()}


def tastes(threads: int) -> dict[str, Any]:
    """Give 5 to the ten most popular films of a genre; return its fraction of the top 20."""
    model = cfnade.CFNADE(side="user", learn_interactions=True, n_threads=threads).fit("ml-1m")
    context = model.fitted_.context
    assert context.genres is not None
    popularity = np.bincount(context.items[context.values >= THRESHOLD], minlength=context.n_items)
    record: dict[str, Any] = {}
    for name, changes in (("picked and liked", {}), ("picked", {"balance": 0.0})):
        lists, shares = [], {}
        for genre in GENRES:
            has = np.array([genre in text.split("|") for text in context.genres.tolist()])
            top = np.argsort(-popularity * has, kind="stable")[:10]
            history = {context.item_ids[item]: 5 for item in top.tolist()}
            frame = model.recommend(history=history, n=20, **changes)  # type: ignore[arg-type]
            items = model.predictor_.items.indices(frame["item"].to_numpy())
            lists.append(set(items.tolist()))
            shares[genre] = float(has[items].mean())
        pairs = [(a, b) for n, a in enumerate(lists) for b in lists[n + 1 :]]
        record[name] = {"shares": shares, "shared": [len(a & b) for a, b in pairs]}
    return record


def netflix(threads: int) -> dict[str, Any]:
    """Train on Netflix and score 40,000 held-out users."""
    began = time.monotonic()
    split = cfnade.load_split("netflix", "liang:40000", min_rating=THRESHOLD)
    reading = time.monotonic() - began
    fitted = train(
        split,
        TrainingPlan(implicit=implicit_plan(split.train, seed=0)),
        RunOptions(n_threads=threads, callbacks=[MessageCallback(print)]),
    ).model
    training = time.monotonic() - began
    parts = ranking_task(split)
    scores = {"cfnade": score_rankings(_score_function(fitted), parts.test)}
    scores |= _score_components(fitted, parts.test)
    lists = fitted.metadata["lists"]
    return {
        **_row(scores),
        "seconds": {"reading": reading, "reading and training": training},
        "weights": dict(_interaction_model(fitted).weights),
        "validation": lists["score"],
        "plan": lists["plan"],
    }


def search(threads: int) -> dict[str, Any]:
    """Tune iALS on a sample of the users of Netflix; recorded options are not fitted again."""
    parts = ranking_task(cfnade.load_split("netflix", "liang:40000", min_rating=THRESHOLD))
    sample = np.random.default_rng(0).permutation(parts.train.shape[0])[:IALS_TRAIN_USERS]
    matrix = parts.train[np.sort(sample)]
    valid = _first(parts.valid, IALS_VALID_USERS)
    tried = (RECORDS.find({"name": "search"}) or {"tried": []})["tried"]
    for factors, weight, penalty, epochs in IALS_GRID:
        options: dict[str, Any] = {"factors": factors, "epochs": epochs}
        options |= {"unobserved_weight": weight, "regularization": penalty}
        if options in (trial["options"] for trial in tried):
            continue
        model = create_recommender("ials", **options).fit(matrix, seed=0, n_threads=threads)
        value = score_rankings(model.score, valid).estimates()["ndcg@100"].mean
        tried.append({"options": options, "valid": value})
        print(tried[-1], flush=True)
    return {"people": IALS_TRAIN_USERS, "asked": IALS_VALID_USERS, "tried": tried}


def netflix_baselines(threads: int) -> dict[str, Any]:
    """Score EASE with the published penalty, the tuned iALS and their blend on Netflix."""
    record = RECORDS.find({"name": "search"})
    assert record is not None, "run the task search first"
    best = max(record["tried"], key=lambda trial: trial["valid"])["options"] | IALS_FINAL
    parts = ranking_task(cfnade.load_split("netflix", "liang:40000", min_rating=THRESHOLD))
    seconds, models = {}, {}
    for name, options in (("ials", best), ("ease", {"regularization": 1000.0})):
        began = time.process_time()
        models[name] = create_recommender(name, **options).fit(
            parts.train, seed=0, n_threads=threads
        )
        seconds[name] = time.process_time() - began
        print(name, f"{seconds[name]:.0f} CPU s", flush=True)
    ease, ials = models["ease"], models["ials"]

    def blended(weight: float) -> Any:
        return lambda histories: blend(ease.score(histories), ials.score(histories), weight)

    valid_query = _first(parts.valid, BLEND_USERS)
    valid = {
        w / 10: score_rankings(blended(w / 10), valid_query).estimates()["ndcg@100"].mean
        for w in range(1, 10)
    }
    print(valid, flush=True)
    weight = max(valid, key=lambda w: valid[w])
    functions = {"EASE": ease.score, "iALS": ials.score, "EASE + iALS": blended(weight)}
    scores = {}
    for name, function in functions.items():
        estimates = score_rankings(function, parts.test).estimates()
        scores[name] = {key: [estimates[key].mean, estimates[key].error] for key in METRICS}
        print(name, scores[name], flush=True)
    return {"scores": scores, "ials": best, "weight": weight, "cpu_seconds": seconds}


def _first(query: RankingQuery, count: int) -> RankingQuery:
    return query.select(np.arange(min(count, len(query))))


def compared(threads: int) -> None:
    """Fit every preset of top-n models on MovieLens 1M."""
    comparison = Comparison("ml-1m", {}, 0, threads, "ranking")
    file = RESULTS / "comparison.jsonl"
    compare(comparison, None, ["liang:600"], results=file, report=print)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = {"people": held_out_users, "rated": rated, "tastes": tastes, "netflix": netflix}
    tasks |= {"search": search, "rivals": netflix_baselines}
    parser.add_argument("task", choices=[*tasks, "compared", "report"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.task == "compared":
        compared(arguments.threads)
    elif arguments.task != "report":
        record = {"name": arguments.task, "machine": machine(arguments.threads)}
        RECORDS.add(record | tasks[arguments.task](arguments.threads))
    write_page()


if __name__ == "__main__":
    main()
