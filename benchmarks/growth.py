"""How the time of an epoch grows: with ratings, H, K, J, layers and threads, and from disk.

    python benchmarks/growth.py [--threads 2]
    python benchmarks/growth.py --disk FOLDER [--most 300_000_000] [--threads 2]

In memory one quantity changes at a time, on synthetic ratings; the others stay at 4,000 × 3,000,
400,000 ratings, K = 5, H = 200, one layer, all columns updated.

From disk, users grow with the ratings (about 200 each) over the 17,770 titles of Netflix. What is
read is dropped from the system's cache, so that every byte of every epoch comes from disk, as if
the file were larger than memory; the next chunk is read while one is trained on (CF-NADE of users,
J = 50, H = 500). FOLDER needs five bytes a rating; a file that exists is used again.
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

from benchmarks.common import (
    SEED,
    Case,
    alternate,
    fastest,
    fused_epoch,
    machine,
    measure_speed,
    save,
)
from cfnade.data.csr import CsrRows
from cfnade.data.synthetic import synthetic

COLUMNS, LEVELS, MEAN, USERS = 17_770, 5, 200, 50_000
"""Of a chunk on disk: ten million ratings, fifty megabytes."""
SIZES = (10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000)


# -- in memory ------------------------------------------------------------------------------------


def synthetic_rows(ratings: int = 400_000, levels: int = 5) -> CsrRows:
    return synthetic(4_000, 3_000, ratings, seed=SEED, levels=levels).ratings.rows("user")


def cases() -> Iterator[tuple[str, float, Case]]:
    """Yield what changes, its value, and the case."""
    source, base = "synthetic", synthetic_rows()
    for ratings in (200_000, 400_000, 800_000, 1_600_000):
        # Only touched columns and factors, so that time is the ratings' alone.
        case = Case("", synthetic_rows(ratings), source, factors=50, sparse=True)
        yield "ratings", ratings, case
    for hidden in (100, 200, 400, 800):
        yield "H", hidden, Case("", base, source, hidden=(hidden,))
    for levels in (2, 5, 10, 20):
        yield "K", levels, Case("", synthetic_rows(levels=levels), source, hidden=(200,))
    for factors in (25, 50, 100, 200):
        yield "J", factors, Case("", base, source, factors=factors)
    for layers in (1, 2, 3, 4):
        yield "layers", layers, Case("", base, source, hidden=(200,) * layers)


def thread_ratios(threads: int) -> dict[str, Any]:
    """Time one thread and several in turn: bound by computing, by memory, and the machine."""
    rows = synthetic_rows(1_600_000)
    bound_by_compute = Case("", rows, "synthetic", factors=100, sparse=True, batch=2000)
    bound_by_memory = Case("", synthetic_rows(100_000), "synthetic", hidden=(500,), batch=256)
    ratios: dict[str, Any] = {}
    for name, case in (("compute", bound_by_compute), ("memory", bound_by_memory)):
        works = {"one_s": fused_epoch(case, 1), "all_s": fused_epoch(case, threads)}
        times = {key: min(taken) for key, taken in alternate(works, 3).items()}
        ratios[name] = times | {"ratio": times["one_s"] / times["all_s"]}
    single, several = measure_speed(1), measure_speed(threads)
    ratios["machine"] = {
        "memory_ratio": several.bytes_per_second / single.bytes_per_second,
        "matmul_ratio": several.operations_per_second / single.operations_per_second,
    }
    return ratios


def measure_growth(threads: int) -> None:
    points = []
    for name, value, case in cases():
        seconds = min(fastest(fused_epoch(case, threads), 3))
        points.append({"what": name, "value": value, "ours_s": seconds})
        print(json.dumps(points[-1]), flush=True)
    ratios = thread_ratios(threads)
    print(json.dumps(ratios))
    save("growth", {"machine": machine(threads), "points": points, "threads": ratios})


# -- from disk ------------------------------------------------------------------------------------


def synthetic_chunk(number: int) -> CsrRows:
    """Return users with as many ratings, and items as popular, as in real data."""
    rng = np.random.default_rng((SEED, number))
    counts = np.clip(rng.lognormal(np.log(MEAN) - 0.5, 1.0, USERS), 2, 5_000).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)  # within its row
    many = np.repeat(counts, counts)
    rising = ((place + rng.random(len(place), np.float32)) / many) ** 3
    columns = ((COLUMNS - many) * rising).astype(np.int32) + place  # so no title comes twice
    levels = rng.integers(0, LEVELS, len(columns), np.uint8)
    return CsrRows(offsets, columns.astype(np.int32), levels, COLUMNS, LEVELS)


def write(path: Path, ratings: int) -> None:
    """Write chunks of offsets, columns and levels, and where each begins."""
    starts = [0]
    with path.open("wb") as file:
        while ratings > 0:
            rows = synthetic_chunk(len(starts) - 1)
            for part in (rows.offsets, rows.columns, rows.levels):
                file.write(part.tobytes())
            starts.append(file.tell())
            ratings -= len(rows.columns)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".json").write_text(json.dumps(starts))


def read(path: Path, start: int, end: int) -> CsrRows:
    """Read one chunk from disk; the system's copy of it is dropped."""
    with path.open("rb") as file:
        file.seek(start)
        content = file.read(end - start)
        os.posix_fadvise(file.fileno(), start, end - start, os.POSIX_FADV_DONTNEED)
    offsets = np.frombuffer(content, np.int64, USERS + 1)
    n, first = int(offsets[-1]), offsets.nbytes
    columns = np.frombuffer(content, np.int32, n, first)
    levels = np.frombuffer(content, np.uint8, n, first + 4 * n)
    return CsrRows(offsets, columns, levels, COLUMNS, LEVELS)


def chunks(path: Path, ratings: int) -> Iterator[CsrRows]:
    """Yield chunks of so many ratings, each read while the preceding one is used."""
    starts = json.loads(path.with_suffix(".json").read_text())
    with ThreadPoolExecutor(1) as reader:
        pending = [reader.submit(read, path, *starts[:2])]
        for place in range(1, len(starts)):
            rows = pending.pop().result()
            ratings -= len(rows.columns)
            if ratings > 0 and place + 1 < len(starts):
                pending.append(reader.submit(read, path, *starts[place : place + 2]))
            yield rows
            if not pending:
                return


def disk_epoch(path: Path, ratings: int, threads: int) -> dict[str, Any]:
    """Return the seconds of an epoch, reading included, and the peak memory of the process."""
    os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    engine, count, step, begin = None, 0, 0, time.perf_counter()
    used = time.process_time()
    for rows in chunks(path, ratings):
        case = Case("", rows, "synthetic", factors=50)
        engine, sampler = engine or case.engine(threads), case.sampler(threads)
        for batch in case.batches(step):
            engine.step(sampler.sample(batch, seed=SEED, step=step))
            step += 1
        count += len(rows.columns)
    return {
        "ratings": count,
        "seconds": time.perf_counter() - begin,
        "processor": time.process_time() - used,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def measure_disk(folder: Path, most: int, threads: int) -> None:
    path = folder / f"ratings-{most}.bin"
    if not path.with_suffix(".json").exists():
        begin = time.perf_counter()
        write(path, most)
        print(f"{path.stat().st_size / 1e6:,.0f} MB in {time.perf_counter() - begin:.0f} s")
    torch.set_num_threads(threads)
    disk_epoch(path, 1, threads)  # what is compiled or made once
    points = []
    for ratings in (size for size in SIZES if size <= most):
        points.append(disk_epoch(path, ratings, threads))
        print(json.dumps(points[-1]), flush=True)
    about = machine(threads)
    save("growth_disk", {"machine": about, "points": points, "bytes": path.stat().st_size})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--disk", type=Path, metavar="FOLDER")
    parser.add_argument("--most", type=int, default=300_000_000)
    options = parser.parse_args()
    if options.disk:
        measure_disk(options.disk, options.most, options.threads)
    else:
        measure_growth(options.threads)


if __name__ == "__main__":
    main()
