"""Users who were not in training: RMSE and NLL by size of the history, beside baselines.

    python -m experiments.new_users ml-1m ml-100k ml-latest-small --seeds 3 5 7 --threads 1 --save

The split is "users:SEED:20": a tenth of the users are held out. Up to 20 ratings of each, in a
fixed random order, are the history; the other ratings are predicted, the same for 0 to 20 ratings.
For histories of 50 ratings, and of nine tenths of all, fewer ratings remain to be predicted. The
options of the baselines are chosen on a tenth of the training users, held out in the same way.

--predictions FOLDER caches the baselines' predictions, so that a run with another recipe does not
wait for LensKit; they are computed again when the baselines' code or the split changes. --recorded
takes the scores of the baselines, and of recipes that are not run, from the record of the same
split instead; differences from them then have no standard errors.

--save adds a record per data set to results/new_users.jsonl and renews docs/results/new-users.md.
Without it, scores are only printed; use that for development seeds.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from benchmarks.common import machine
from cfnade.data.load import load
from cfnade.data.splits import Split, split
from cfnade.exceptions import CfnadeError
from cfnade.inference.predictor import Predictor
from cfnade.kernels.warmup import compile_kernels
from cfnade.recipes import (
    Recipe,
    default_recipe,
    load_recipe,
    recipe_names,
)
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.progress import ProgressCallback
from cfnade.training.train import train
from experiments.new_users.baselines import global_mean, has_lenskit, lenskit_als, shrunken_means
from experiments.new_users.panel import (
    HISTORY_SIZES,
    MOST,
    FloatArray,
    Panel,
    Predictions,
    Queries,
    Seconds,
    gaps,
    make_panel,
)
from experiments.new_users.report import recorded_runs, save, section, write_docs

_ROOT = Path(__file__).resolve().parents[2]
_Value = TypeVar("_Value")


def measure_cfnade(parts: Split, test: Panel, recipe: Recipe, threads: int) -> Predictions:
    """Train once, then predict for one user at a time through the public Predictor.

    The model has no ratings of held-out users, neither their histories: nor have the baselines.
    """
    no_fold_in = replace(parts, fold_in=parts.fold_in.select(np.zeros(len(parts.fold_in), bool)))
    start = Seconds.now()
    plan = plan_side(recipe.side, recipe.model, recipe.training)
    trained = train(no_fold_in, plan, RunOptions(n_threads=threads, callbacks=[ProgressCallback()]))
    fit = Seconds.now().since(start)
    predictor = Predictor(trained.model)
    start = Seconds.now()
    probabilities = [predict_by_user(predictor, queries) for queries in test.queries]
    per_user = Seconds.now().since(start, sum(queries.n_users for queries in test.queries))
    means = [p @ test.scale.array() for p in probabilities]  # calibration keeps the mean
    notes = {
        "recipe": recipe.name,
        "model": recipe.model,
        "training": recipe.training.to_dict(),
        **{name: trained.model.metadata[name] for name in ("epochs", "best_epoch", "valid")},
    }
    return Predictions(f"cfnade, `{recipe.name}`", means, probabilities, fit, per_user, notes)


def predict_by_user(predictor: Predictor, queries: Queries) -> FloatArray:
    """Return calibrated distributions of the targets given each user's history, (n, K)."""
    ids, values = queries.targets.item_ids, queries.history_values()
    history_ids, target_ids = ids[queries.items], ids[queries.targets.items]
    out = []
    for places, targets in queries.by_user():
        history = dict(zip(history_ids[places].tolist(), values[places].tolist(), strict=True))
        predicted = predictor.predict("new", target_ids[targets], histories={"new": history})
        out.append(predicted.probabilities)
    return np.concatenate(out)


def compare(
    data: str, recipes: list[Recipe], *, seed: int, threads: int, baselines: BaselineSource
) -> dict[str, Any]:
    """Return the figures of all methods for one seed."""
    run_machine = describe_run(threads)
    parts = split(load(data), f"users:{seed}:{MOST}")
    test = make_panel(parts, seed)
    found = baselines(parts, test, run_machine)
    names = {recipe.name for recipe in recipes}
    previous = [scores for scores in found.scores if scores.get("recipe") not in names]
    measured = [measure_cfnade(parts, test, recipe, threads) for recipe in recipes]
    return {
        "seed": seed,
        "split": parts.name,
        "fingerprint": parts.fingerprint,
        "held_out": len(np.unique(parts.test.users)),
        "tried": found.n_valid_users,
        "people": [queries.n_users for queries in test.queries],
        "asked": [len(queries.targets) for queries in test.queries],
        "methods": [*previous, *(predictions.scores(test) for predictions in measured)],
        "gaps": found.gaps
        | {
            model.name: {
                baseline.name: gaps(model, baseline, test, seed) for baseline in found.predictions
            }
            for model in measured
        },
        "machine": run_machine,
        "rivals_machine": found.machine,
    }


# -- baselines: measured or recorded ---------------------------------------------------------------


class BaselineResults(NamedTuple):
    """Figures of the baselines, and of recorded recipes, on a split."""

    scores: list[dict[str, Any]]
    predictions: list[Predictions]  # of baselines; none if only figures are recorded
    gaps: dict[str, Any]  # of recorded recipes
    n_valid_users: int
    machine: dict[str, Any]


BaselineSource = Callable[[Split, Panel, dict[str, Any]], BaselineResults]


def recorded_baselines(
    parts: Split, test: Panel, run_machine: dict[str, Any], *, runs: list[dict[str, Any]]
) -> BaselineResults:
    """Return the figures of the recorded run on the same split."""
    del test, run_machine
    run = next((run for run in runs if run["fingerprint"] == parts.fingerprint), None)
    if run is None:
        raise SystemExit(f"--recorded: results/ has no figures of the split {parts.name}")
    measured_on = {"machine": run["machine"]}  # unless the figures were recorded earlier
    scores = [measured_on | method if "recipe" in method else method for method in run["methods"]]
    return BaselineResults(scores, [], run["gaps"], run["tried"], run["rivals_machine"])


def measure_baselines(
    parts: Split,
    test: Panel,
    run_machine: dict[str, Any],
    *,
    lenskit: bool,
    folder: Path | None,
    threads: int,
) -> BaselineResults:
    """Return the baselines' predictions, computed now or cached in the folder."""
    seed = int(parts.name.split(":")[1])
    valid = make_panel(split(test.train, f"users:{seed + 1}:{MOST}"), seed + 1)

    def predict() -> tuple[list[Predictions], dict[str, Any]]:
        predictions = [global_mean(test), shrunken_means(valid, test)]
        if lenskit:
            predictions.append(lenskit_als(valid, test, seed, threads))
        return predictions, run_machine

    name = f"{parts.fingerprint}-{threads}-{lenskit}"
    predictions, measured_on = predict() if folder is None else cached(folder, name, predict)
    scores = [baseline.scores(test) for baseline in predictions]
    return BaselineResults(scores, predictions, {}, valid.n_users, measured_on)


def cached(folder: Path, name: str, compute: Callable[[], _Value]) -> _Value:
    """Return what an earlier run of the same code computed, or compute and store it."""
    sources = [Path(__file__).with_name(source).read_bytes() for source in _BASELINE_SOURCES]
    path = folder / f"{name}-{hashlib.sha256(b''.join(sources)).hexdigest()[:16]}.pickle"
    if path.exists():
        stored: _Value = pickle.loads(path.read_bytes())
        return stored
    value = compute()
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value))
    return value


_BASELINE_SOURCES = ("panel.py", "baselines.py")


def describe_run(threads: int) -> dict[str, Any]:
    """Return machine and commit, before the run: the source may change while it lasts."""
    command = ["git", "status", "--porcelain", "--", "src", "experiments/new_users/*.py"]
    changed = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False).stdout
    return machine(threads) | {"uncommitted": bool(changed)}


# -- command line ----------------------------------------------------------------------------------


def recipes_for(data: str, names: list[str]) -> list[Recipe]:
    """Return recipes by name, else the user-based one of the data set, else the default."""
    specific = f"{Path(data).stem}-user"
    recipes = [load_recipe(name) for name in names or [specific] * (specific in recipe_names())]
    for recipe in recipes:
        if recipe.side == "item":
            raise SystemExit(f"--recipes {recipe.name} is item-based: it cannot answer new users")
    return recipes or [default_recipe("user")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="New users: cfnade beside means and LensKit's ALS")
    parser.add_argument("data", nargs="*", default=["ml-1m"], help="names of data sets, or files")
    parser.add_argument(
        "--recipes", nargs="+", default=[], help="recipes or TOML files instead of the data set's"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[11], help="one split per seed")
    parser.add_argument(
        "--predictions", type=Path, help="folder that caches the baselines' predictions"
    )
    parser.add_argument("--recorded", action="store_true", help="take other scores from results/")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--save", action="store_true", help="write records and the page")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    try:
        recipes_of = {data: recipes_for(data, options.recipes) for data in options.data}
    except CfnadeError as error:
        raise SystemExit(f"--recipes: {error}") from error
    threads = options.threads
    # Read before any record is replaced.
    baselines: BaselineSource = partial(recorded_baselines, runs=recorded_runs())
    if not options.recorded:
        folder, lenskit = options.predictions, has_lenskit()
        baselines = partial(measure_baselines, lenskit=lenskit, folder=folder, threads=threads)
    torch.set_num_threads(threads)
    compile_kernels()
    for data, recipes in recipes_of.items():
        runs: list[dict[str, Any]] = []
        for seed in options.seeds:
            runs.append(compare(data, recipes, seed=seed, threads=threads, baselines=baselines))
            record = {"data": Path(data).stem, "given": HISTORY_SIZES, "runs": runs}
            print(section(record), flush=True)
            if options.save:  # after every seed: a run may be stopped
                save(record)
                write_docs()


if __name__ == "__main__":
    main()
