"""The service under load from another process: requests per second, latencies, memory.

    python benchmarks/serve.py [--model FOLDER] [--seconds 10]

Lists of 20 for people with 5, 50 and 500 ratings: on a user-based model of ML-1M (--model, or
random weights in that shape, H = 500) and on one with random weights over the 17,770 titles of
Netflix (J = 50, H = 500). The time does not depend on the weights. Then how long it takes from the
command to the first answer, and what several workers share. --quick shows that it works.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import SEED, machine, save, unvisited
from benchmarks.serve_load import closed_loop, open_loop, request, wrk
from cfnade import checkpoint
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import CFNADEConfig

GIVEN, BEST, LEVELS = (5, 50, 500), 20, 5
RATE, CLIENTS, DIFFERENT, AGAIN, WORKERS = 200, 4, 2_000, 20, 4
"""So many different people ask: a service keeps what it said to the last few hundred, and everybody
is new here. AGAIN of them ask once more, and again."""
SHAPES: dict[str, dict[str, Any]] = {
    "ML-1M": {"columns": 3_706, "hidden": (500,)},
    "Netflix": {"columns": 17_770, "hidden": (500,), "factors": 50},
}


def random_model(folder: Path, shape: dict[str, Any]) -> Path:
    """A user-based model with random weights, every title rated often, and nobody's ratings."""
    network = CFNADENetwork(CFNADEConfig(levels=LEVELS, **shape))
    network.initialise(torch.Generator().manual_seed(SEED))
    checkpoint.save(unvisited(network, 100), folder, with_context=False)
    return folder


@contextmanager
def served(folder: Path, workers: int = 1) -> Iterator[tuple[int, psutil.Process]]:
    """The service as people start it, in a process of its own: its port and the process."""
    command = [sys.executable, "-m", "cfnade", "serve", str(folder), "--port", "0"]
    command += ["--workers", str(workers)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                raise SystemExit("the service did not start")
            port = int(found[1])
            asyncio.run(_first_answer(port))
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()


async def _first_answer(port: int) -> None:
    for _ in range(600):
        if not (await closed_loop(port, [request(b'{"ratings":[]}')], clients=1, count=1))[
            "errors"
        ]:
            return
        await asyncio.sleep(0.05)


def beginning(folder: Path, workers: int) -> dict[str, Any]:
    """Seconds to the first answer, and megabytes of the model's file that workers hold."""
    begin = time.perf_counter()
    with served(folder, workers) as (_, process):
        passed = time.perf_counter() - begin
        held: list[Any] = []
        while len(held) < workers:
            time.sleep(0.5)  # the others are still loading
            each = [process] if workers == 1 else process.children(recursive=True)
            held = [m for one in each for m in one.memory_maps() if m.path.endswith(".safetensors")]
        whole = sum((folder / name).stat().st_size for name in {Path(m.path).name for m in held})
        together, apart = (sum(getattr(m, kind) for m in held) for kind in ("pss", "rss"))
    found = {"workers": workers, "first_answer_s": round(passed, 2)}
    found |= {"file_mb": whole / 1e6, "together_mb": together / 1e6, "apart_mb": apart / 1e6}
    print(json.dumps(found), flush=True)
    return found


def requests_of(items: list[Any], given: int) -> list[bytes]:
    """Requests of different people with so many ratings each."""
    rng = np.random.default_rng((SEED, given))
    made = []
    for _ in range(DIFFERENT):
        chosen = rng.choice(len(items), given, replace=False).tolist()
        stars = rng.integers(1, LEVELS + 1, given).tolist()
        rated = [{"item": items[i], "rating": s} for i, s in zip(chosen, stars, strict=True)]
        made.append(request(json.dumps({"ratings": rated, "n": BEST}).encode()))
    return made


def measure(name: str, folder: Path, seconds: float, count: int) -> tuple[list[Any], Any]:
    """Figures of one model: by the number of ratings, and memory over many requests."""
    items = checkpoint.load(folder).context.item_ids.tolist()
    cases = []
    with served(folder) as (port, process):
        asyncio.run(closed_loop(port, requests_of(items, 50), clients=CLIENTS, seconds=1.0))
        for given in GIVEN:
            sent = requests_of(items, given)
            cases.append(
                {
                    **{"model": name, "items": len(items), "ratings": given},
                    "closed": asyncio.run(
                        closed_loop(port, sent, clients=CLIENTS, seconds=seconds)
                    ),
                    "open": asyncio.run(open_loop(port, sent, rate=RATE, seconds=seconds)),
                    "again": asyncio.run(
                        open_loop(port, sent[:AGAIN], rate=RATE, seconds=seconds / 2)
                    ),
                    "wrk": wrk(port, sent, clients=CLIENTS, seconds=seconds / 2),
                }
            )
            print(json.dumps(cases[-1]), flush=True)
        return cases, memory(port, process, requests_of(items, 50), count)


def memory(port: int, process: psutil.Process, sent: list[bytes], count: int) -> dict[str, Any]:
    """What the service holds before, during and after so many requests."""
    held, errors = [process.memory_info().rss], 0
    for _ in range(10):
        part = asyncio.run(closed_loop(port, sent, clients=CLIENTS, count=count // 10))
        errors += part["errors"]
        held.append(process.memory_info().rss)
    found = {"requests": count, "errors": errors, "mb": [round(one / 1e6, 1) for one in held]}
    print(json.dumps(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a user-based model of ML-1M")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--requests", type=int, default=20_000, help="over which memory is watched")
    parser.add_argument("--quick", action="store_true", help="a second each; nothing is written")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else arguments.seconds
    count = 500 if arguments.quick else arguments.requests
    cases, held, begun = [], {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, shape in SHAPES.items():
            given = arguments.model if name == "ML-1M" else None
            folder = given or random_model(Path(scratch) / name, shape)
            label = name if given else f"{name}, random weights"
            found, held[label] = measure(label, folder, seconds, count)
            cases += found
            begun[label] = [beginning(folder, workers) for workers in (1, WORKERS)]
    if not arguments.quick:
        setting = {"rate": RATE, "clients": CLIENTS, "best": BEST, "workers": 1}
        about = machine(psutil.cpu_count() or 1)
        figures = {"cases": cases, "memory": held, "beginning": begun}
        save("serve", {"machine": about, **setting, **figures})


if __name__ == "__main__":
    main()
