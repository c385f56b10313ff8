"""What a rank of two holds of a wide table, beside one process: peaks of the whole commands.

    python benchmarks/rank_memory.py WORK [--columns 1000000] [--hidden 500] [--factors 50]

Synthetic ratings, four a column, are cut into shards in WORK (once), then `cfnade train` goes over
them for one epoch: as one process, and as two ranks under torchrun. Peaks are those of the largest
process of each command, from its imports to the written folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cfnade.data.readers.tables import write_parquet
from cfnade.data.synthetic import synthetic

CFNADE = [sys.executable, "-m", "cfnade"]


def shards_of(work: Path, columns: int) -> Path:
    """Shards of 20,000 rows, made once."""
    shards, table = work / f"shards-{columns}", work / "ratings.parquet"
    if not (shards / "manifest.json").exists():
        write_parquet(synthetic(20_000, columns, 4 * columns, seed=1).ratings, table)
        command = [*CFNADE, "data", "shard", str(table), "--out", str(shards), "--side", "user"]
        subprocess.run(command, check=True)
    return shards


def peak_of(command: list[str]) -> float:
    """GB of the largest process that a command starts."""
    began = time.perf_counter()
    child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    peak = used.ru_maxrss / 2**20
    print(f"{peak:.2f} GB, {time.perf_counter() - began:.0f} s", flush=True)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of ranks beside one process.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--columns", type=int, default=1_000_000)
    parser.add_argument("--hidden", default="500")
    parser.add_argument("--factors", default="50")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    shards, model = shards_of(given.work, given.columns), given.work / "model"
    train = [
        str(shards),
        "--side",
        "user",
        "--ridge",
        "0",
        "--no-learn-interactions",
        "--epochs",
        "1",
    ]
    train += [
        "--hidden",
        given.hidden,
        "--factors",
        given.factors,
        "--n-threads",
        "1",
        "--overwrite",
    ]
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    peaks = []
    distributed = [*ranks, "-m", "cfnade", "train-distributed"]
    for start in ([*CFNADE, "train"], distributed):
        peaks.append(peak_of([*start, *train, "--out", str(model)]))
        shutil.rmtree(model)
    one, rank = peaks
    print(f"{given.columns:,} columns, J = {given.factors}: {rank / one:.2f} of one process a rank")


if __name__ == "__main__":
    main()
