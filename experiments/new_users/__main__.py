"""Users who were not in training: RMSE and NLL by the number of ratings given, beside baselines.

    python -m experiments.new_users ml-1m ml-100k ml-latest-small --seeds 3 5 7 --threads 1 --save

The split is "users:SEED:20": a tenth of the users are held out whole, 20 ratings of each are given
in a fixed random order and the others predicted. These are the same for 0 to 20 ratings given. For
50 given, and for nine tenths of all, more of them are given and the rest predicted. The options of
the baselines are chosen on a tenth of the training users, held out in the same way.

--predictions FOLDER keeps the baselines' predictions and reuses them, so that a run with another
model of ours does not wait for LensKit; a change of the baselines' code or of the split computes
them again. --recorded takes the scores of the baselines, and of recipes that are not run, from the
record of the same split instead; differences from them then have no standard errors.

--save adds a record per data set to results/new_users.jsonl and renews docs/results/new-users.md;
without it, scores are only printed, as is right for a development seed.
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
    GIVEN,
    MOST,
    Answers,
    FloatArray,
    Panel,
    Questions,
    Seconds,
    gaps,
    panel,
)
from experiments.new_users.report import recorded_runs, save, section, write_docs

_ROOT = Path(__file__).resolve().parents[2]
_Made = TypeVar("_Made")


def ours(parts: Split, test: Panel, chosen: Recipe, threads: int) -> Answers:
    """Train once; then one call a person, with what they gave, through the public Predictor.

    Nothing of the people held out is in the model, neither what they gave: rivals lack it too.
    """
    alone = replace(parts, fold_in=parts.fold_in.select(np.zeros(len(parts.fold_in), bool)))
    start = Seconds.now()
    plan = plan_side(chosen.side, chosen.model, chosen.training)
    trained = train(alone, plan, RunOptions(n_threads=threads, callbacks=[ProgressCallback()]))
    fit = Seconds.now().since(start)
    predictor = Predictor(trained.model)
    start = Seconds.now()
    chances = [one_by_one(predictor, questions) for questions in test.questions]
    each = Seconds.now().since(start, sum(questions.people for questions in test.questions))
    means = [p @ test.scale.array() for p in chances]  # calibration keeps the mean
    notes = {
        "recipe": chosen.name,
        "model": chosen.model,
        "training": chosen.training.to_dict(),
        **{name: trained.model.metadata[name] for name in ("epochs", "best_epoch", "valid")},
    }
    return Answers(f"cfnade, `{chosen.name}`", means, chances, fit, each, notes)


def one_by_one(predictor: Predictor, questions: Questions) -> FloatArray:
    """Calibrated distributions of what is asked, from what each person gave. Returns (n, K)."""
    ids, values = questions.asked.item_ids, questions.values()
    told, wanted = ids[questions.items], ids[questions.asked.items]
    out = []
    for given, asked in questions.by_person():
        history = dict(zip(told[given].tolist(), values[given].tolist(), strict=True))
        out.append(
            predictor.predict("new", wanted[asked], histories={"new": history}).probabilities
        )
    return np.concatenate(out)


def compare(
    data: str, recipes: list[Recipe], *, seed: int, threads: int, rivals: Rivals
) -> dict[str, Any]:
    """All methods on the same questions of one seed."""
    at = started(threads)
    parts = split(load(data), f"users:{seed}:{MOST}")
    test = panel(parts, seed)
    theirs = rivals(parts, test, at)
    others = [one for one in theirs.scores if one.get("recipe") not in {r.name for r in recipes}]
    mine = [ours(parts, test, chosen, threads) for chosen in recipes]
    return {
        "seed": seed,
        "split": parts.name,
        "fingerprint": parts.fingerprint,
        "held_out": len(np.unique(parts.test.users)),
        "tried": theirs.tried,
        "people": [questions.people for questions in test.questions],
        "asked": [len(questions.asked) for questions in test.questions],
        "methods": [*others, *(one.scores(test) for one in mine)],
        "gaps": theirs.gaps
        | {
            one.name: {other.name: gaps(one, other, test, seed) for other in theirs.answers}
            for one in mine
        },
        "machine": at,
        "rivals_machine": theirs.machine,
    }


class Theirs(NamedTuple):
    """What the rivals, and maybe other recipes of ours, reached on a split, and where."""

    scores: list[dict[str, Any]]
    answers: list[Answers]  # of rivals; none if only figures are known
    gaps: dict[str, Any]  # of other recipes
    tried: int
    machine: dict[str, Any]


Rivals = Callable[[Split, Panel, dict[str, Any]], Theirs]


def from_record(
    parts: Split, test: Panel, at: dict[str, Any], *, runs: list[dict[str, Any]]
) -> Theirs:
    """The figures of that of the earlier runs which was on the same split."""
    del test, at
    run = next((one for one in runs if one["fingerprint"] == parts.fingerprint), None)
    if run is None:
        raise SystemExit(f"--recorded: results/ has no figures of the split {parts.name}")
    made = {"machine": run["machine"]}  # unless it was kept then, too
    scores = [made | one if "recipe" in one else one for one in run["methods"]]
    return Theirs(scores, [], run["gaps"], run["tried"], run["rivals_machine"])


def asked_now(
    parts: Split,
    test: Panel,
    at: dict[str, Any],
    *,
    lenskit: bool,
    folder: Path | None,
    threads: int,
) -> Theirs:
    """Their answers, made now or kept in the folder from an earlier run."""
    seed = int(parts.name.split(":")[1])
    tried = panel(split(test.known, f"users:{seed + 1}:{MOST}"), seed + 1)

    def asked() -> tuple[list[Answers], dict[str, Any]]:
        found = [global_mean(test), shrunken_means(tried, test)]
        if lenskit:
            found.append(lenskit_als(tried, test, seed, threads))
        return found, at

    own = f"{parts.fingerprint}-{threads}-{lenskit}"
    answers, made_at = asked() if folder is None else kept(folder, own, asked)
    return Theirs([one.scores(test) for one in answers], answers, {}, tried.people, made_at)


def kept(folder: Path, name: str, make: Callable[[], _Made]) -> _Made:
    """What was made before by the same code, or is made and kept now."""
    sources = [Path(__file__).with_name(source).read_bytes() for source in _RIVALS_CODE]
    path = folder / f"{name}-{hashlib.sha256(b''.join(sources)).hexdigest()[:16]}.pickle"
    if path.exists():
        made: _Made = pickle.loads(path.read_bytes())
        return made
    made = make()
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(made))
    return made


_RIVALS_CODE = ("panel.py", "baselines.py")


def started(threads: int) -> dict[str, Any]:
    """Machine and commit, asked before the run: the source may change while it lasts."""
    asked = ["git", "status", "--porcelain", "--", "src", "experiments/new_users/*.py"]
    changed = subprocess.run(asked, capture_output=True, text=True, cwd=_ROOT, check=False).stdout
    return machine(threads) | {"uncommitted": bool(changed)}


def recipes_for(data: str, named: list[str]) -> list[Recipe]:
    """Those named; otherwise the data set's own for users, or the default one."""
    own = f"{Path(data).stem}-user"
    chosen = [load_recipe(name) for name in named or [own] * (own in recipe_names())]
    for one in chosen:
        if one.side == "item":
            raise SystemExit(f"--recipes {one.name} is item-based: it cannot answer new users")
    return chosen or [default_recipe("user")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="New users: cfnade beside means and LensKit's ALS")
    parser.add_argument("data", nargs="*", default=["ml-1m"], help="names of data sets, or files")
    parser.add_argument(
        "--recipes", nargs="+", default=[], help="recipes or TOML files, in place of the usual one"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[11], help="a split for each")
    parser.add_argument("--predictions", type=Path, help="folder of the baselines' predictions")
    parser.add_argument(
        "--recorded", action="store_true", help="take what is not run now from results/"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--save", action="store_true", help="keep records and renew the page")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    try:
        chosen = {data: recipes_for(data, given.recipes) for data in given.data}
    except CfnadeError as error:
        raise SystemExit(f"--recipes: {error}") from error
    rivals: Rivals = partial(from_record, runs=recorded_runs())  # before any of them is replaced
    if not given.recorded:
        folder, lenskit = given.predictions, has_lenskit()
        rivals = partial(asked_now, lenskit=lenskit, folder=folder, threads=given.threads)
    torch.set_num_threads(given.threads)
    compile_kernels()
    for data, recipes in chosen.items():
        runs: list[dict[str, Any]] = []
        for seed in given.seeds:
            runs.append(compare(data, recipes, seed=seed, threads=given.threads, rivals=rivals))
            record = {"data": Path(data).stem, "given": GIVEN, "runs": runs}
            print(section(record), flush=True)
            if given.save:  # after every seed: a run may be stopped
                save(record)
                write_docs()


if __name__ == "__main__":
    main()
