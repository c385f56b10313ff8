"""People never seen in training: RMSE and NLL from 1, 5, 10 and 20 ratings given, beside rivals.

    python benchmarks/new_users.py ml-1m --lenskit-python PYTHON --docs docs/new_users.md

The split is "users:SEED:20": a tenth of the users held out whole, 20 ratings of each given in a
fixed random order, the rest asked. What is asked is the same however many of the 20 are given. The
rivals' settings are chosen on a tenth of the training users, held out in the same way.

LensKit needs an older pandas, so it lives in an environment of its own, outside this folder:

    python -m venv lenskit
    lenskit/bin/pip install torch==2.13.0
    lenskit/bin/pip install lenskit==2025.8.1 "pandas<3"
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import machine
from benchmarks.new_users_panel import GIVEN, MOST, Answers, FloatArray, Panel, gaps, panel
from benchmarks.new_users_report import section, write_section
from benchmarks.new_users_rivals import global_mean, lenskit_als, shrunken_means
from cfnade.data.loader import load
from cfnade.data.splits import Split, split
from cfnade.fitting import EpochLines
from cfnade.predictor import Predictor
from cfnade.recipes import Recipe, recipe
from cfnade.training.run import train

_ROOT = Path(__file__).resolve().parents[1]


def ours(parts: Split, test: Panel, chosen: Recipe, threads: int | None) -> Answers:
    """Train once; then one call a person, with what they gave, through the public Predictor."""
    start = time.perf_counter()
    trained = train(
        parts,
        side=chosen.side,
        architecture=chosen.model,
        settings=chosen.training,
        threads=threads,
        reporter=EpochLines(),
    )
    fit = time.perf_counter() - start
    predictor = Predictor(trained.fitted)
    start = time.perf_counter()
    chances = [one_by_one(predictor, test, given) for given in GIVEN]
    each = (time.perf_counter() - start) / len(GIVEN) / len(test.items)
    means = [p @ test.asked.scale.array() for p in chances]  # calibration keeps the mean
    notes = {
        "recipe": chosen.name,
        "model": chosen.model,
        "training": chosen.training.to_dict(),
        "epochs": trained.fitted.facts["epochs"],
        "best_epoch": trained.fitted.facts["best_epoch"],
        "valid": trained.fitted.facts["valid"],
    }
    return Answers(f"cfnade, `{chosen.name}`", means, chances, fit, each, notes)


def one_by_one(predictor: Predictor, people: Panel, given: int) -> FloatArray:
    """Calibrated distributions, from the first `given` ratings of each person. Returns (n, K)."""
    ids, values = people.asked.item_ids, people.values()
    ends = np.cumsum(np.bincount(people.rows, minlength=len(people.items)))[:-1]
    out = []
    for person, wanted in enumerate(np.split(ids[people.asked.items], ends)):
        told = ids[people.items[person, :given]].tolist()
        history = dict(zip(told, values[person, :given].tolist(), strict=True))
        out.append(predictor.predict_proba("new", wanted, histories={"new": history}))
    return np.concatenate(out)


def compare(
    data: str, chosen: Recipe, *, seed: int, lenskit: str | None, threads: int | None
) -> dict[str, Any]:
    """All methods on the same questions."""
    at = started(threads)
    parts = split(load(data), f"users:{seed}:{MOST}")
    test = panel(parts, seed)
    tried = panel(split(test.known, f"users:{seed + 1}:{MOST}"), seed + 1)
    answers = [global_mean(test), shrunken_means(tried, test)]
    if lenskit is not None:
        answers.append(lenskit_als(lenskit, tried, test, seed))
    answers.append(ours(parts, test, chosen, threads))
    return {
        "data": test.known.source or Path(data).name,
        "split": parts.name,
        "fingerprint": parts.fingerprint,
        "held_out": len(np.unique(parts.test.users)),
        "scored": len(test.items),
        "asked": len(test.asked),
        "tried": len(tried.items),
        "recipe": chosen.name,
        "methods": [one.scores(test.asked) for one in answers],
        "gaps": {one.name: gaps(answers[-1], one, test, seed) for one in answers[:-1]},
        "machine": at,
    }


def started(threads: int | None) -> dict[str, Any]:
    """Machine and commit, asked before the run: the source may change while it lasts."""
    asked = ["git", "status", "--porcelain", "--", "src", "benchmarks/*.py"]
    changed = subprocess.run(asked, capture_output=True, text=True, cwd=_ROOT, check=False).stdout
    return machine(threads or torch.get_num_threads()) | {"uncommitted": bool(changed)}


def lenskit_found(python: str | None) -> str | None:
    """The interpreter if it can import LensKit; otherwise a line says what to install."""
    if python is not None:
        asked = subprocess.run([python, "-c", "import lenskit"], capture_output=True, check=False)
        if asked.returncode == 0:
            return python
    print(f"LensKit is left out: {python or '--lenskit-python'} {_INSTALL}")
    return None


_INSTALL = (
    "must be a Python with lenskit==2025.8.1; make one with the three commands at the top of "
    "benchmarks/new_users.py"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="New users: cfnade beside means and LensKit's ALS")
    parser.add_argument("data", nargs="?", default="ml-1m", help="a file or a data set's name")
    parser.add_argument("--recipe", default="ml-1m-user", help="a user-based recipe or TOML file")
    parser.add_argument("--lenskit-python", help="Python of an environment with LensKit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--docs", type=Path, help="renew the table in this page")
    arguments = parser.parse_args()
    chosen = recipe(arguments.recipe)
    if chosen.side == "item":
        parser.error(f"--recipe {chosen.name} is item-based: it cannot answer new users")
    found = compare(
        arguments.data,
        chosen,
        seed=arguments.seed,
        lenskit=lenskit_found(arguments.lenskit_python),
        threads=arguments.threads,
    )
    found["command"] = (
        f"{arguments.data} --recipe {arguments.recipe} --seed {arguments.seed} "
        "--lenskit-python PYTHON --docs docs/new_users.md"
    )
    print(section(found))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.docs is not None:
        write_section(arguments.docs, section(found))


if __name__ == "__main__":
    main()
