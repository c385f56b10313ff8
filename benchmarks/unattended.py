"""From raw parts to everybody's lists, unattended: shards, one epoch on some ranks, lists.

    python benchmarks/unattended.py WORK [--ratings 100000000] [--ranks 2]

Makes synthetic ratings of the shape of Netflix, runs the three commands one after the other as a
person would, each on so many processes of one thread, and prints the minutes and the peak memory
of each. What WORK holds is gone on with: a second run after a stopped one completes it.
docs/how-to/scale.md has what was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cfnade.data.synthetic import PRESETS, synthetic_like

PARTS = 48


def make_ratings(folder: Path, ratings: int) -> None:
    """Parquet parts of ratings; done once."""
    if (folder / "_SUCCESS").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    drawn = synthetic_like("netflix", 1, max(1.0, PRESETS["netflix"][2] / ratings)).ratings
    cuts = np.linspace(0, len(drawn), PARTS + 1).astype(int)
    for part, (first, last) in enumerate(pairwise(cuts)):
        columns = {
            "user": drawn.user_ids[drawn.users[first:last]],
            "item": drawn.item_ids[drawn.items[first:last]],
            "rating": drawn.values[first:last].astype(np.int8),
        }
        pl.DataFrame(columns).write_parquet(folder / f"part-{part:02d}.parquet")
    (folder / "_SUCCESS").write_text(f"{drawn!r}\n")


def run(name: str, command: list[str], notes: Path) -> None:
    """Run a command and note what it took; skip one that was done before."""
    told: dict[str, Any] = json.loads(notes.read_text()) if notes.exists() else {}
    if name in told:
        return
    started = time.perf_counter()
    child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    _, status, used = os.wait4(child.pid, 0)  # of it and of all processes that it started
    if status:
        sys.exit(f"{name} failed")
    told[name] = {
        "minutes": round((time.perf_counter() - started) / 60, 2),
        "processor_minutes": round((used.ru_utime + used.ru_stime) / 60, 2),
        "peak_gb_of_its_largest_process": round(used.ru_maxrss / 2**20, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    notes.write_text(json.dumps(told, indent=1) + "\n")
    print(name, told[name], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--ratings", type=int, default=100_480_507)
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args()
    work: Path = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    make_ratings(work / "ratings", given.ratings)
    notes, cfnade = work / "notes.json", [sys.executable, "-m", "cfnade"]
    shards, model, lists = (str(work / name) for name in ("shards", "model", "lists"))
    workers = ["--workers", str(given.ranks)]  # of one thread each, as the ranks are
    run(
        "shard", [*cfnade, "data", "shard", str(work / "ratings"), "--out", shards, *workers], notes
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(given.ranks), "-m", "cfnade", "train-distributed", shards]
    size = ["--side", "user", "--ridge", "0", "--hidden", "500", "--factors", "50", "--epochs", "1"]
    run("train", [*torchrun, *size, "--n-threads", "1", "--out", model], notes)
    everybody = ["batch", "recommend", model, "--out", lists, *workers]
    run("lists", [*cfnade, *everybody], notes)
    print((Path(lists) / "_SUCCESS").read_text())


if __name__ == "__main__":
    main()
