"""Top-n recommendation: the figures of docs/results/lists.md, each from a command of its own.

    python -m experiments.ranking people   held-out users of MovieLens 1M, five seeds, paired
    python -m experiments.ranking rated    lists of rating data: MovieLens 1M, authors:1234
    python -m experiments.ranking tastes   four opposite tastes
    python -m experiments.ranking netflix  Liang's protocol on Netflix
    python -m experiments.ranking search   iALS tuned on some of the users of Netflix
    python -m experiments.ranking rivals   EASE, iALS and both together on the same users
    python -m experiments.ranking compared every preset of top-n models on MovieLens 1M
    python -m experiments.ranking report   docs/results/lists.md from the records

Every choice is made on validation; each test part is scored once a run. Records are in
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
HELD = 600
LEAST = 4
METRICS = ("ndcg@100", "capped_recall@20", "capped_recall@50")
RIVALS: dict[str, dict[str, Any]] = {
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
"""What validation chose on the first seed (results/comparison.jsonl)."""
IALS_PEOPLE, IALS_ASKED = 30_000, 1_000
"""So many people of Netflix are learnt from, and asked about, while iALS is tuned."""
IALS_TRIED = [
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
"""Factors, weight of what is not liked, penalty, epochs."""
IALS_FINAL = {"factors": 256, "epochs": 8}
"""What the chosen one gets at full size, where an epoch takes minutes."""
BLENDED = 2_000
"""Validation people who choose iALS's share in the blend."""
GENRES = ("Sci-Fi", "Romance", "Horror", "Children's")


def people(threads: int) -> dict[str, Any]:
    """Ours and the best rivals on the same people, seed by seed."""
    rows = []
    for seed in SEEDS:
        split = cfnade.load_split("ml-1m", f"liang:{HELD}:{seed}", min_rating=LEAST)
        parts = ranking_task(split)
        began = time.monotonic()
        fitted = train(
            split,
            TrainingPlan(implicit=implicit_plan(split.train, seed=0)),
            RunOptions(n_threads=threads),
        ).model
        seconds = {"cfnade": time.monotonic() - began}
        found = {"cfnade": score_rankings(_scores_of(fitted), parts.test)}
        found |= _components_alone(fitted, parts.test)
        for name, options in RIVALS.items():
            began = time.monotonic()
            model = create_recommender(name, **options).fit(
                parts.final_train, seed=0, n_threads=threads
            )
            seconds[name] = time.monotonic() - began
            found[name] = score_rankings(model.score, parts.test)
        rows.append({"seed": seed, "seconds": seconds, **_row(found)})
        print(json.dumps(rows[-1]), flush=True)
    return {"held": HELD, "rows": rows}


def _interaction_model(fitted: FittedModel) -> InteractionModel:
    model = fitted.interaction_model
    assert model is not None
    return model


def _scores_of(fitted: FittedModel) -> Any:
    """Return the score function for score_rankings."""
    return partial(_scores, _interaction_model(fitted))


def _components_alone(fitted: FittedModel, question: Any) -> dict[str, UserScores]:
    """Score each component of an interaction model by itself."""
    return {
        f"cfnade: {name}": score_rankings(partial(_scores, component), question)
        for name, component in _interaction_model(fitted).components.items()
    }


def _scores(model: ImplicitComponent | InteractionModel, histories: Any) -> Any:
    return model.scores(interaction_rows(histories))


def _row(found: dict[str, UserScores]) -> dict[str, Any]:
    """Means with their errors, and paired differences of NDCG@100 from ours."""
    ours = found["cfnade"].values["ndcg@100"]
    scores, behind = {}, {}
    for name, one in found.items():
        estimates = one.estimates()
        scores[name] = {key: [estimates[key].mean, estimates[key].error] for key in METRICS}
        if name != "cfnade":
            gap = ours - one.values["ndcg@100"]
            behind[name] = [float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))]
    return {"people": len(ours), "scores": scores, "ahead_of": behind}


def rated(threads: int) -> dict[str, Any]:
    """Lists of a model of ratings with and without interactions, and of EASE on likes."""
    split = cfnade.load_split("ml-1m", "authors:1234")
    began = time.monotonic()
    model = cfnade.CFNADE(side="user", learn_interactions=True, n_threads=threads).fit(split)
    took = time.monotonic() - began
    facts = model.fitted_.metadata
    rows: dict[str, Any] = {}
    for name, how in (
        ("picked and liked", {}),
        ("picked", {"balance": 0.0}),
        ("nearer to ratings, taste 0.75", {"balance": 0.75}),
        ("expected rating", {"rank_by": "prediction"}),
    ):
        rows[name] = _listed(model, split.test, how)
        print(name, rows[name], flush=True)
    parts = ranking_task(split, LEAST)
    for name in ("popularity", "ease"):
        options = {} if name == "popularity" else {"regularization": 500.0}
        lister = create_recommender(name, **options).fit(
            parts.final_train, seed=0, n_threads=threads
        )
        estimates = score_rankings(lister.score, parts.test, cutoffs=(10, 20)).estimates()
        rows[name] = {
            key: [estimates[key].mean, estimates[key].error]
            for key in ("ndcg@10", "recall@20", "precision@10")
        }
    return {
        "rows": rows,
        "rmse": model.evaluate(split.test).rmse,
        "seconds": took,
        "seconds_of_lists": facts["lists"]["total_seconds"],
    }


def _listed(model: cfnade.CFNADE, test: Any, how: dict[str, Any]) -> dict[str, Any]:
    """What recommend lists, asked in another way than by default if so."""
    predictor = model.predictor_
    usual = predictor.recommend

    def changed(users: Entities, options: RankingOptions) -> TopN:
        return usual(users, replace(options, **how))

    try:
        predictor.recommend = changed  # type: ignore[assignment]
        at = model.evaluate_ranking(test, k=(10, 20), threshold=LEAST).by_k
    finally:
        predictor.recommend = usual  # type: ignore[method-assign]
    chosen = {"ndcg@10": at[10]["ndcg"], "recall@20": at[20]["recall"]}
    chosen["precision@10"] = at[10]["precision"]
    return {name: [one.mean, one.error] for name, one in chosen.items()}


def tastes(threads: int) -> dict[str, Any]:
    """The ten most liked films of a genre as fives: how much of the top 20 has that genre."""
    model = cfnade.CFNADE(side="user", learn_interactions=True, n_threads=threads).fit("ml-1m")
    context = model.fitted_.context
    assert context.genres is not None
    liked = np.bincount(context.items[context.values >= LEAST], minlength=context.n_items)
    found: dict[str, Any] = {}
    for name, how in (("picked and liked", {}), ("picked", {"balance": 0.0})):
        lists, shares = [], {}
        for genre in GENRES:
            has = np.array([genre in text.split("|") for text in context.genres.tolist()])
            top = np.argsort(-liked * has, kind="stable")[:10]
            history = {context.item_ids[item]: 5 for item in top.tolist()}
            frame = model.recommend(history=history, n=20, **how)  # type: ignore[arg-type]
            items = model.predictor_.items.indices(frame["item"].to_numpy())
            lists.append(set(items.tolist()))
            shares[genre] = float(has[items].mean())
        pairs = [(a, b) for n, a in enumerate(lists) for b in lists[n + 1 :]]
        found[name] = {"shares": shares, "shared": [len(a & b) for a, b in pairs]}
    return found


def netflix(threads: int) -> dict[str, Any]:
    """Everything from the parsed file to scores of all 40,000 people."""
    began = time.monotonic()
    split = cfnade.load_split("netflix", "liang:40000", min_rating=LEAST)
    read = time.monotonic() - began
    fitted = train(
        split,
        TrainingPlan(implicit=implicit_plan(split.train, seed=0)),
        RunOptions(n_threads=threads, callbacks=[MessageCallback(print)]),
    ).model
    trained = time.monotonic() - began
    parts = ranking_task(split)
    found = {"cfnade": score_rankings(_scores_of(fitted), parts.test)}
    found |= _components_alone(fitted, parts.test)
    lists = fitted.metadata["lists"]
    return {
        **_row(found),
        "seconds": {"reading": read, "reading and training": trained},
        "weights": dict(_interaction_model(fitted).weights),
        "validation": lists["score"],
        "plan": lists["plan"],
    }


def search(threads: int) -> dict[str, Any]:
    """iALS on some of the people of Netflix, by validation; what the record has stays in it."""
    parts = ranking_task(cfnade.load_split("netflix", "liang:40000", min_rating=LEAST))
    sample = np.random.default_rng(0).permutation(parts.train.shape[0])[:IALS_PEOPLE]
    matrix = parts.train[np.sort(sample)]
    some = _first(parts.valid, IALS_ASKED)
    tried = (RECORDS.find({"name": "search"}) or {"tried": []})["tried"]
    for factors, weight, penalty, epochs in IALS_TRIED:
        options: dict[str, Any] = {"factors": factors, "epochs": epochs}
        options |= {"unobserved_weight": weight, "regularization": penalty}
        if options in (one["options"] for one in tried):
            continue
        model = create_recommender("ials", **options).fit(matrix, seed=0, n_threads=threads)
        value = score_rankings(model.score, some).estimates()["ndcg@100"].mean
        tried.append({"options": options, "valid": value})
        print(tried[-1], flush=True)
    return {"people": IALS_PEOPLE, "asked": IALS_ASKED, "tried": tried}


def rivals(threads: int) -> dict[str, Any]:
    """EASE with the published penalty, iALS as the search found it, and their blend, on Netflix."""
    found = RECORDS.find({"name": "search"})
    assert found is not None, "run the task search first"
    tried = found["tried"]
    best = max(tried, key=lambda one: one["valid"])["options"] | IALS_FINAL
    parts = ranking_task(cfnade.load_split("netflix", "liang:40000", min_rating=LEAST))
    seconds, models = {}, {}
    for name, options in (("ials", best), ("ease", {"regularization": 1000.0})):
        began = time.process_time()
        models[name] = create_recommender(name, **options).fit(
            parts.train, seed=0, n_threads=threads
        )
        seconds[name] = time.process_time() - began
        print(name, f"{seconds[name]:.0f} CPU s", flush=True)
    both = models["ease"], models["ials"]

    def blended(weight: float) -> Any:
        return lambda histories: blend(both[0].score(histories), both[1].score(histories), weight)

    some = _first(parts.valid, BLENDED)
    valid = {
        w / 10: score_rankings(blended(w / 10), some).estimates()["ndcg@100"].mean
        for w in range(1, 10)
    }
    print(valid, flush=True)
    weight = max(valid, key=lambda w: valid[w])
    named = {"EASE": both[0].score, "iALS": both[1].score, "EASE + iALS": blended(weight)}
    scores = {}
    for name, one in named.items():
        estimates = score_rankings(one, parts.test).estimates()
        scores[name] = {key: [estimates[key].mean, estimates[key].error] for key in METRICS}
        print(name, scores[name], flush=True)
    return {"scores": scores, "ials": best, "weight": weight, "cpu_seconds": seconds}


def _first(query: RankingQuery, count: int) -> RankingQuery:
    return query.select(np.arange(min(count, len(query))))


def compared(threads: int) -> None:
    """Fit every preset of top-n models on MovieLens 1M."""
    about = Comparison("ml-1m", {}, 0, threads, "ranking")
    file = RESULTS / "comparison.jsonl"
    compare(about, None, ["liang:600"], results=file, report=print)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = {"people": people, "rated": rated, "tastes": tastes, "netflix": netflix}
    tasks |= {"search": search, "rivals": rivals}
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
