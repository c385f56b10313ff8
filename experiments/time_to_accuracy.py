"""Training seconds to a test RMSE: CF-NADE, factor analysis, Cornac's MF with biases, myFM.

    python -m experiments.time_to_accuracy [--split authors:1234] [--threads 2] [--only ours]

Systems train on the training and validation parts and are scored on the test part after each pass
or sample. Only times are read from the curve: no option and no model is selected by it. To choose
options, use `--part valid`, which trains on the training part, scores on the validation part and
saves nothing.
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
    # The gain is the one that --part valid fits.
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


def write_job(folder: Path, name: str, options: argparse.Namespace) -> None:
    """Write the options of a system and the time at which its process is started."""
    job = {
        "folder": str(folder),
        "started": time.time(),
        "targets": TARGETS,
        "settings": options.settings[name],
        **{key: getattr(options, key) for key in ("data", "split", "part", "threads", "seed")},
        "limit": options.limit,
    }
    (folder / f"{name}.json").write_text(json.dumps(job))


def write_ratings(folder: Path, options: argparse.Namespace) -> None:
    """Write the ratings as plain arrays, so that the other systems do not import cfnade."""
    split = load_split(options.data, options.split)
    train, scored = split.train, split.valid
    if options.part == "test":
        train, scored = split.train.concat(split.valid), split.test
    np.savez(
        folder / "ratings.npz",
        users=train.users,
        items=train.items,
        values=train.values,
        scored_users=scored.users,
        scored_items=scored.items,
        scored_values=scored.values,
        sizes=[train.n_users, train.n_items],
        scale=train.scale.array(),
    )


def run(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a system in a process of its own and return its result."""
    write_job(folder, name, options)
    command = [sys.executable, str(FOLDER / "time_to_accuracy_systems.py"), name, str(folder)]
    threads = str(options.threads)
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
            raise SystemExit(f"{name} exited with {child.returncode}:\n{log.read()[-2000:]}")
    return summarize(name, options.settings[name], lines)


def summarize(name: str, settings: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the curve of a system, and the seconds until its RMSE first reached each target."""
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

    def cell(system: dict[str, Any], target: str) -> str:
        seconds = system["first_s"][target]
        if seconds is None:
            return "not reached"
        return f"{seconds:.1f} s ({seconds + system['load_s'] + system['prepare_s']:.1f} s)"

    lines = [
        [e["title"], ", ".join(f"{name} {value}" for name, value in e["settings"].items())]
        + [cell(e, target) for target in found["targets"]]
        + [f"{e['lowest']:.4f}, {e['curve'][-1][0]:.0f} s"]
        for e in found["entrants"]
    ]
    head = ["system", "settings", *found["targets"], "lowest, end"]
    return (
        "## Seconds to a test RMSE\n\n`python -m experiments.time_to_accuracy`\n\n"
        f"{describe_machine(found['machine'])}\n\n{markdown_table(head, lines)}\n"
        f"{found['data']}, split {found['split']}, seed {found['seed']}; one run each, trained on "
        "train and validation, scored on test after every pass (myFM: every sample, by the mean of "
        "all samples). The clock starts when data is loaded and kernels are compiled, and stops "
        "during scoring; times in parentheses include loading, imports and compilation. Nothing is "
        "selected by the curve.\n"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="ml-1m", help="a name or path that cfnade loads")
    parser.add_argument("--split", default="authors:1234")
    parser.add_argument("--part", choices=["test", "valid"], default="test")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of each system")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument(
        "--settings", type=json.loads, default={}, help='JSON that replaces options: {"myfm": {…}}'
    )
    options = parser.parse_args()
    options.settings = SETTINGS | options.settings
    return options


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        write_ratings(Path(folder), options)
        systems = [run(name, Path(folder), options) for name in options.only]
    result = {"machine": machine(options.threads), "data": options.data, "split": options.split}
    result |= {"seed": options.seed, "targets": [f"{target:.4f}" for target in TARGETS]}
    if options.part == "test" and set(options.only) == set(SETTINGS):
        record = {"name": options.data} | result | {"entrants": systems}
        ResultsFile(RESULTS / "time_to_accuracy.jsonl", ("name",)).add(record)
    print(markdown(result | {"entrants": systems}))
    for system in systems:
        print(json.dumps({key: value for key, value in system.items() if key != "curve"}))


if __name__ == "__main__":
    main()
