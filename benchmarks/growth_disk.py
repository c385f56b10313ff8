"""Ratings that are made up on disk, and an epoch that reads them from there, some rows at a time.

    python benchmarks/growth_disk.py FOLDER [--most 300_000_000] [--threads 2]

Users grow with the ratings (about 200 each) over the 17,770 titles of Netflix. What is read is
dropped from the system's cache, so that every byte of every epoch comes from disk, as if the file
were larger than memory; the next chunk is read while one is trained on (CF-NADE of users, J = 50,
H = 500). FOLDER needs five bytes a rating; a file that is there is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import SEED, Case, machine, save
from cfnade.data.csr import CsrRows

COLUMNS, LEVELS, MEAN, USERS = 17_770, 5, 200, 50_000
"""USERS are in a chunk: ten million ratings, fifty megabytes."""
SIZES = (10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000)


def made_chunk(number: int) -> CsrRows:
    """Users with as many ratings as people have, of titles as popular as titles are."""
    rng = np.random.default_rng((SEED, number))
    counts = np.clip(rng.lognormal(np.log(MEAN) - 0.5, 1.0, USERS), 2, 5_000).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)  # within its row
    many = np.repeat(counts, counts)
    rising = ((place + rng.random(len(place), np.float32)) / many) ** 3
    columns = ((COLUMNS - many) * rising).astype(np.int32) + place  # so that nobody rates one twice
    levels = rng.integers(0, LEVELS, len(columns), np.uint8)
    return CsrRows(offsets, columns.astype(np.int32), levels, COLUMNS, LEVELS)


def write(path: Path, ratings: int) -> None:
    """Chunks of offsets, columns and levels, one after the other, and where each begins."""
    starts = [0]
    with path.open("wb") as file:
        while ratings > 0:
            rows = made_chunk(len(starts) - 1)
            for part in (rows.offsets, rows.columns, rows.levels):
                file.write(part.tobytes())
            starts.append(file.tell())
            ratings -= len(rows.columns)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".json").write_text(json.dumps(starts))


def read(path: Path, start: int, end: int) -> CsrRows:
    """One chunk from disk; the system's copy of it is dropped."""
    with path.open("rb") as file:
        file.seek(start)
        content = file.read(end - start)
        os.posix_fadvise(file.fileno(), start, end - start, os.POSIX_FADV_DONTNEED)
    offsets = np.frombuffer(content, np.int64, USERS + 1)
    n, first = int(offsets[-1]), offsets.nbytes
    columns = np.frombuffer(content, np.int32, n, first)
    return CsrRows(
        offsets, columns, np.frombuffer(content, np.uint8, n, first + 4 * n), COLUMNS, LEVELS
    )


def chunks(path: Path, ratings: int) -> Iterator[CsrRows]:
    """The first so many ratings, whole chunks, each read while the one before is used."""
    starts = json.loads(path.with_suffix(".json").read_text())
    with ThreadPoolExecutor(1) as reader:
        coming = [reader.submit(read, path, *starts[:2])]
        for place in range(1, len(starts)):
            rows = coming.pop().result()
            ratings -= len(rows.columns)
            if ratings > 0 and place + 1 < len(starts):
                coming.append(reader.submit(read, path, *starts[place : place + 2]))
            yield rows
            if not coming:
                return


def epoch(path: Path, ratings: int, threads: int) -> dict[str, Any]:
    """Seconds of an epoch, reading included, and the peak memory of the process so far."""
    os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    engine, seen, step, begin = None, 0, 0, time.perf_counter()
    used = time.process_time()
    for rows in chunks(path, ratings):
        case = Case("", rows, "synthetic", factors=50)
        engine, sampler = engine or case.engine(threads), case.sampler(threads)
        for batch in case.batches(step):
            engine.step(sampler.sample(batch, seed=SEED, step=step))
            step += 1
        seen += len(rows.columns)
    return {
        "ratings": seen,
        "seconds": time.perf_counter() - begin,
        "processor": time.process_time() - used,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=300_000_000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--write", action="store_true", help="make the file and stop")
    arguments = parser.parse_args()
    path = arguments.folder / f"ratings-{arguments.most}.bin"
    if not path.with_suffix(".json").exists():
        begin = time.perf_counter()
        write(path, arguments.most)
        print(f"{path.stat().st_size / 1e6:,.0f} MB in {time.perf_counter() - begin:.0f} s")
    if arguments.write:
        return
    torch.set_num_threads(arguments.threads)
    epoch(path, 1, arguments.threads)  # what is compiled or made once
    points = []
    for ratings in (size for size in SIZES if size <= arguments.most):
        points.append(epoch(path, ratings, arguments.threads))
        print(json.dumps(points[-1]), flush=True)
    about = machine(arguments.threads)
    save("growth_disk", {"machine": about, "points": points, "bytes": path.stat().st_size})


if __name__ == "__main__":
    main()
