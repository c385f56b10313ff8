"""The service under load from another process: requests per second, latencies, memory.

    python benchmarks/server.py [--model FOLDER] [--seconds 10]

Lists of 20 for new users with 5, 50 and 500 ratings: on a user-based model of ML-1M (--model, or
random weights in that shape, H = 500) and on one with random weights over the 17,770 titles of
Netflix (J = 50, H = 500). The time does not depend on the weights. Then the seconds from the
command to the first answer, and the memory that several workers share. --quick is a short run that
writes nothing.

The client is a bare one over asyncio: one that costs as much as the service would measure itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import SEED, machine, model_without_users, save
from cfnade import checkpoint
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import CFNADEConfig

HISTORY_SIZES, TOP, LEVELS = (5, 50, 500), 20, 5
RATE, CLIENTS, WORKERS = 200, 4, 4
USERS, REPEATED_USERS = 2_000, 20
"""Different users, more than the service caches, and those whose requests are repeated."""
SHAPES: dict[str, dict[str, Any]] = {
    "ML-1M": {"columns": 3_706, "hidden": (500,)},
    "Netflix": {"columns": 17_770, "hidden": (500,), "factors": 50},
}


def random_model(folder: Path, shape: dict[str, Any]) -> Path:
    """Save a user-based model with random weights, and without users."""
    network = CFNADENetwork(CFNADEConfig(levels=LEVELS, **shape))
    network.initialise(torch.Generator().manual_seed(SEED))
    checkpoint.save(model_without_users(network, 100), folder, with_context=False)
    return folder


@contextmanager
def served(folder: Path, workers: int = 1) -> Iterator[tuple[int, psutil.Process]]:
    """Start the service with its command; yield its port and process."""
    command = [sys.executable, "-m", "cfnade", "serve", str(folder), "--port", "0"]
    command += ["--workers", str(workers)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                if match := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                raise SystemExit("the service did not start")
            port = int(match[1])
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


def measure_start(folder: Path, workers: int) -> dict[str, Any]:
    """Return the seconds to the first answer, and the workers' megabytes of the model's file."""
    begin = time.perf_counter()
    with served(folder, workers) as (_, process):
        elapsed = time.perf_counter() - begin
        maps: list[Any] = []
        while len(maps) < workers:
            time.sleep(0.5)  # some workers are still loading
            processes = [process] if workers == 1 else process.children(recursive=True)
            maps = [
                m for p in processes for m in p.memory_maps() if m.path.endswith(".safetensors")
            ]
        size = sum((folder / name).stat().st_size for name in {Path(m.path).name for m in maps})
        shared, unshared = (sum(getattr(m, kind) for m in maps) for kind in ("pss", "rss"))
    figures = {"workers": workers, "first_answer_s": round(elapsed, 2)}
    figures |= {"file_mb": size / 1e6, "together_mb": shared / 1e6, "apart_mb": unshared / 1e6}
    print(json.dumps(figures), flush=True)
    return figures


def user_requests(items: list[Any], n_ratings: int) -> list[bytes]:
    """Return requests of different users with histories of this size."""
    rng = np.random.default_rng((SEED, n_ratings))
    requests = []
    for _ in range(USERS):
        indices = rng.choice(len(items), n_ratings, replace=False).tolist()
        values = rng.integers(1, LEVELS + 1, n_ratings).tolist()
        history = [{"item": items[i], "rating": v} for i, v in zip(indices, values, strict=True)]
        requests.append(request(json.dumps({"ratings": history, "n": TOP}).encode()))
    return requests


def measure(name: str, folder: Path, seconds: float, count: int) -> tuple[list[Any], Any]:
    """Return the figures of one model by history size, and its memory over many requests."""
    items = checkpoint.load(folder).context.item_ids.tolist()
    cases = []
    with served(folder) as (port, process):
        asyncio.run(closed_loop(port, user_requests(items, 50), clients=CLIENTS, seconds=1.0))
        for n_ratings in HISTORY_SIZES:
            sent = user_requests(items, n_ratings)
            cases.append(
                {
                    **{"model": name, "items": len(items), "ratings": n_ratings},
                    "closed": asyncio.run(
                        closed_loop(port, sent, clients=CLIENTS, seconds=seconds)
                    ),
                    "open": asyncio.run(open_loop(port, sent, rate=RATE, seconds=seconds)),
                    "again": asyncio.run(
                        open_loop(port, sent[:REPEATED_USERS], rate=RATE, seconds=seconds / 2)
                    ),
                    "wrk": wrk(port, sent, clients=CLIENTS, seconds=seconds / 2),
                }
            )
            print(json.dumps(cases[-1]), flush=True)
        return cases, memory(port, process, user_requests(items, 50), count)


def memory(port: int, process: psutil.Process, sent: list[bytes], count: int) -> dict[str, Any]:
    """Return the memory of the service before, during and after many requests."""
    sizes, errors = [process.memory_info().rss], 0
    for _ in range(10):
        part = asyncio.run(closed_loop(port, sent, clients=CLIENTS, count=count // 10))
        errors += part["errors"]
        sizes.append(process.memory_info().rss)
    figures = {"requests": count, "errors": errors, "mb": [round(n / 1e6, 1) for n in sizes]}
    print(json.dumps(figures), flush=True)
    return figures


# -- load ------------------------------------------------------------------------------------------


def request(body: bytes) -> bytes:
    """Return an HTTP request for a list."""
    head = "POST /recommendations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


_LUA = """
local bodies, number = {}, 0
for line in io.lines("%s") do bodies[#bodies + 1] = line end
request = function()
  number = number %% #bodies + 1
  local headers = {["Content-Type"] = "application/json"}
  return wrk.format("POST", "/recommendations", headers, bodies[number])
end
"""
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def wrk(port: int, sent: Sequence[bytes], *, clients: int, seconds: float) -> dict[str, Any] | None:
    """Run the closed loop by wrk, a cheaper client; None if it is not installed."""
    if shutil.which("wrk") is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        bodies, script = Path(scratch) / "bodies", Path(scratch) / "request.lua"
        bodies.write_bytes(b"\n".join(whole.split(b"\r\n\r\n", 1)[1] for whole in sent) + b"\n")
        script.write_text(_LUA % bodies)
        load = ["-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--latency"]
        command = ["wrk", *load, "-s", str(script), f"http://127.0.0.1:{port}/recommendations"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return parse_wrk(output)


def parse_wrk(output: str) -> dict[str, Any]:
    """Return the figures that wrk printed."""
    latencies = {
        int(percent): float(value) * _UNITS[unit]
        for percent, value, unit in re.findall(r"^ +(\d+)% +([\d.]+)(us|ms|s)$", output, re.M)
    }
    rate = re.search(r"Requests/sec: +([\d.]+)", output)
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    broken = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    return {
        "per_second": float(rate[1]) if rate else 0.0,
        "p50_ms": round(latencies[50], 2),
        "p99_ms": round(latencies[99], 2),
        "errors": int(failed[1] if failed else 0)
        + sum(map(int, broken.groups() if broken else ())),
    }


class Client:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> int:
        """Send a request, read the whole answer and return its status."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(fields[b"content-length"]))
        return int(head.split(b" ", 2)[1])

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):  # reset by the other side
                await self._streams[1].wait_closed()


class Latencies:
    """Latencies and failures of a run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0

    async def measure(self, client: Client, request: bytes, since: float) -> None:
        try:
            status = await client.send(request)
        except (OSError, asyncio.IncompleteReadError):
            status = 0
            await client.close()
            client._streams = None
        if status == 200:
            self.seconds.append(time.perf_counter() - since)
        else:
            self.failed += 1

    def figures(self, seconds: float) -> dict[str, Any]:
        times = 1e3 * np.array(self.seconds or [np.nan])
        return {
            "requests": len(self.seconds) + self.failed,
            "errors": self.failed,
            "per_second": round(len(self.seconds) / seconds, 1),
            "p50_ms": round(float(np.percentile(times, 50)), 2),
            "p99_ms": round(float(np.percentile(times, 99)), 2),
            "max_ms": round(float(times.max()), 2),
        }


async def closed_loop(
    port: int, sent: Sequence[bytes], *, clients: int, seconds: float = np.inf, count: int = 1 << 60
) -> dict[str, Any]:
    """Let each client send the next request as soon as the last is answered."""
    latencies, numbers = Latencies(), iter(range(count))
    begin = time.perf_counter()

    async def run(client: Client) -> None:
        while time.perf_counter() - begin < seconds and (number := next(numbers, None)) is not None:
            await latencies.measure(client, sent[number % len(sent)], time.perf_counter())
        await client.close()

    await asyncio.gather(*(run(Client(port)) for _ in range(clients)))
    return latencies.figures(time.perf_counter() - begin)


async def open_loop(
    port: int, sent: Sequence[bytes], *, rate: float, seconds: float
) -> dict[str, Any]:
    """Send requests at fixed times; latency counts from when a request was due."""
    latencies, idle, tasks = Latencies(), [Client(port) for _ in range(64)], set()
    begin = time.perf_counter()

    async def run(number: int, due: float) -> None:
        client = idle.pop() if idle else Client(port)
        await latencies.measure(client, sent[number % len(sent)], due)
        idle.append(client)

    for number in range(int(rate * seconds)):
        due = begin + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(run(number, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - begin
    await asyncio.gather(*(client.close() for client in idle))
    return latencies.figures(elapsed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a user-based model of ML-1M")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument(
        "--requests", type=int, default=20_000, help="number of requests for memory"
    )
    parser.add_argument("--quick", action="store_true", help="a second each; nothing is written")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else arguments.seconds
    count = 500 if arguments.quick else arguments.requests
    cases, memory_figures, starts = [], {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, shape in SHAPES.items():
            trained = arguments.model if name == "ML-1M" else None
            folder = trained or random_model(Path(scratch) / name, shape)
            label = name if trained else f"{name}, random weights"
            model_cases, memory_figures[label] = measure(label, folder, seconds, count)
            cases += model_cases
            starts[label] = [measure_start(folder, workers) for workers in (1, WORKERS)]
    if not arguments.quick:
        setting = {"rate": RATE, "clients": CLIENTS, "best": TOP, "workers": 1}
        about = machine(psutil.cpu_count() or 1)
        figures = {"cases": cases, "memory": memory_figures, "beginning": starts}
        save("serve", {"machine": about, **setting, **figures})


if __name__ == "__main__":
    main()
