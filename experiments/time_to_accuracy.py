"""Seconds to a test RMSE: our joint model, our start, Cornac's MF with biases and myFM.

    python -m experiments.time_to_accuracy [--split authors:1234] [--threads 2] [--only ours]

All train on the train and validation parts and are scored on the test part whenever they have done
a pass or drawn a sample. The curve is read for its times alone: nothing is chosen by it, and no
model of it is kept. For choosing settings there is `--part valid`, which trains on the train part,
scores on the validation part and saves nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import machine
from benchmarks.report import describe_machine, markdown_table
from cfnade.data.load import load_split
from cfnade_baselines.compare import ResultsFile
from experiments.runner import FOLDER, RESULTS

TARGETS = (0.8410, 0.8333, 0.8250, 0.8175)
SETTINGS: dict[str, dict[str, Any]] = {
    "ours": {"recipe": "ml-1m-both"},
    "start": {"side": "user-factors", "ridge": 12},
    # The gain is that of --part valid, where it is found and not given.
    "near": {"side": "user-factors+user-neighborhood", "ridge": 16, "gains": [1.44, 0.0, 0.0]},
    "cornac": {"k": 100, "learning_rate": 0.007, "lambda_reg": 0.05},
    "myfm": {"rank": 32},
}
TITLES = {
    "ours": "CF-NADE, both sides",
    "start": "factor analysis",
    "near": "factor analysis with neighborhood",
    "cornac": "Cornac, MF with biases",
    "myfm": "myFM, ids",
}


def write_job(folder: Path, name: str, given: argparse.Namespace) -> None:
    """What an entrant reads: its settings, and when its process was started."""
    job = {
        "folder": str(folder),
        "started": time.time(),
        "targets": TARGETS,
        "settings": given.settings[name],
        **{key: getattr(given, key) for key in ("data", "split", "part", "threads", "seed")},
        "limit": given.limit,
    }
    (folder / f"{name}.json").write_text(json.dumps(job))


def write_ratings(folder: Path, given: argparse.Namespace) -> None:
    """Write the ratings as plain arrays, so that the other systems do not import cfnade."""
    split = load_split(given.data, given.split)
    known, asked = split.train, split.valid
    if given.part == "test":
        known, asked = split.train.concat(split.valid), split.test
    np.savez(
        folder / "ratings.npz",
        users=known.users,
        items=known.items,
        values=known.values,
        asked_users=asked.users,
        asked_items=asked.items,
        truth=asked.values,
        sizes=[known.n_users, known.n_items],
        scale=known.scale.array(),
    )


def run(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Let one entrant race in a process of its own. Returns what it printed, gathered."""
    write_job(folder, name, given)
    command = [sys.executable, str(FOLDER / "time_to_accuracy_systems.py"), name, str(folder)]
    threads = str(given.threads)
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    lines = []
    with (folder / f"{name}.log").open("w+") as log:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(json.loads(line))
            print(f"{name}: {line.strip()}", flush=True)
        if child.wait() != 0:
            log.seek(0)
            raise SystemExit(f"{name} ended with {child.returncode}:\n{log.read()[-2000:]}")
    return gathered(name, given.settings[name], lines)


def gathered(name: str, settings: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One entrant's result: its curve, and when it first stood at or below each target."""
    facts = {key: value for line in lines if "rmse" not in line for key, value in line.items()}
    curve = [(round(x["seconds"], 3), round(x["rmse"], 5)) for x in lines if "rmse" in x]
    first = {
        f"{target:.4f}": next((seconds for seconds, rmse in curve if rmse <= target), None)
        for target in TARGETS
    }
    return {
        "name": name,
        "title": f"{TITLES[name]} ({facts['version']})",
        "settings": settings,
        "load_s": round(facts["load_s"], 2),
        "prepare_s": round(facts["prepare_s"], 2),
        "first_s": first,
        "lowest": min(rmse for _, rmse in curve),
        "curve": curve,
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the section of README.md."""

    def cell(entrant: dict[str, Any], target: str) -> str:
        seconds = entrant["first_s"][target]
        if seconds is None:
            return "not reached"
        return f"{seconds:.1f} s ({seconds + entrant['load_s'] + entrant['prepare_s']:.1f} s)"

    lines = [
        [e["title"], ", ".join(f"{name} {value}" for name, value in e["settings"].items())]
        + [cell(e, target) for target in found["targets"]]
        + [f"{e['lowest']:.4f}, {e['curve'][-1][0]:.0f} s"]
        for e in found["entrants"]
    ]
    head = ["system", "settings", *found["targets"], "lowest read, end"]
    return (
        "## Seconds to a test RMSE\n\n`python -m experiments.time_to_accuracy`\n\n"
        f"{describe_machine(found['machine'])}\n\n{markdown_table(head, lines)}\n"
        f"{found['data']}, split {found['split']}, seed {found['seed']}; one run each, trained on "
        "train and validation, scored on test after every pass (myFM: every sample, as the mean of "
        "the samples so far). The clock starts once data is loaded and kernels are compiled, and "
        "stands still while scoring; in parentheses with loading, imports and compilation. The "
        "curve is read for its times alone.\n"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="ml-1m", help="a name or path that cfnade loads")
    parser.add_argument("--split", default="authors:1234")
    parser.add_argument("--part", choices=["test", "valid"], default="test")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of each entrant")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument(
        "--settings", type=json.loads, default={}, help='JSON in place of ours: {"myfm": {…}}'
    )
    given = parser.parse_args()
    given.settings = SETTINGS | given.settings
    return given


def main() -> None:
    given = arguments()
    with tempfile.TemporaryDirectory() as made:
        write_ratings(Path(made), given)
        found = [run(name, Path(made), given) for name in given.only]
    result = {"machine": machine(given.threads), "data": given.data, "split": given.split}
    result |= {"seed": given.seed, "targets": [f"{target:.4f}" for target in TARGETS]}
    if given.part == "test" and set(given.only) == set(SETTINGS):
        record = {"name": given.data} | result | {"entrants": found}
        ResultsFile(RESULTS / "time_to_accuracy.jsonl", ("name",)).add(record)
    print(markdown(result | {"entrants": found}))
    for entrant in found:
        print(json.dumps({key: value for key, value in entrant.items() if key != "curve"}))


if __name__ == "__main__":
    main()
