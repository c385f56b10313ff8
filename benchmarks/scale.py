"""What more machines would bring: steps measured on 1, 2 and 3 ranks, fitted, and extrapolated.

    python benchmarks/scale.py               seconds and bytes a step, the fit, 4 to 64 machines
    python benchmarks/scale.py --network     also through networks of limited rate (as root)

A rank's processor seconds a step are fitted by a + c / R: a is what every rank does itself, c what
they share. Its bytes follow the formula of docs/how-to/scale.md. A step of R machines takes then
(a + c / R) / cores + bytes / rate + 5 · log2(2R) · delay. With --network each rank lives in a
network namespace of its own behind a token bucket (tc tbf: the kernel at hand has no netem, so no
delay could be tried), and the seconds that a lower rate costs are set beside the model's. Processor
seconds are used because they can be measured on a busy machine; docs/how-to/scale.md has figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranks import SHAPES, stepper_on, steps

NAME = "ml-1m item, H = 500"
RATE, DELAY, CORES = 1.25e9, 100e-6, 16
"""Of the machines that are extrapolated to: 10 GbE, and what a message takes on its way."""


def work(file: str, count: int) -> None:
    """One rank: some steps; rank 0 says what they took."""
    import torch

    from cfnade.data.dataset import Dataset
    from cfnade.distributed.gloo import process_group

    torch.set_num_threads(1)
    with process_group() as group:
        stepper, rows = stepper_on(group, Dataset.open(Path(file)), NAME)
        steps(stepper, rows, 0, 3)
        group.barrier()
        sent = getattr(group, "bytes_sent", 0)
        times = np.array(steps(stepper, rows, 10, count))
        used = group.total(float(np.median(times[:, 1]))) / group.size
        if group.rank == 0:
            told = {"ranks": group.size, "bytes": (getattr(group, "bytes_sent", 0) - sent) / count}
            told |= {"processor": used, "wall": float(np.median(times[:, 0]))}
            print(json.dumps(told | {"least_wall": float(times[:, 0].min())}))


def run(ranks: int, file: str, count: int, names: list[str] | None = None) -> dict[str, Any]:
    """What rank 0 of so many prints; each in a namespace of its own if there are names of them."""
    port, command = 29_000 + os.getpid() % 900 + ranks, [sys.executable, __file__, "--work", file]
    running = []
    for rank in range(ranks):
        known = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        if ranks > 1:
            address = "10.99.0.1" if names else "127.0.0.1"
            known |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": address}
            known |= {"MASTER_PORT": str(port)}
        prefix = []
        if names:
            known |= {"GLOO_SOCKET_IFNAME": f"v{rank}"}
            prefix = ["ip", "netns", "exec", names[rank]]
        arguments = [*prefix, *command, "--steps", str(count)]
        running.append(subprocess.Popen(arguments, env=known, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=900)[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"{ranks} ranks failed")
    told: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    return told


# -- the model ------------------------------------------------------------------------------------


def fit(measured: list[dict[str, Any]]) -> tuple[float, float]:
    """a and c of a + c / R, by least squares."""
    ranks = np.array([one["ranks"] for one in measured])
    table = np.stack([np.ones(len(ranks)), 1 / ranks], axis=1)
    (a, c), *_ = np.linalg.lstsq(
        table, np.array([one["processor"] for one in measured]), rcond=None
    )
    return float(a), float(c)


def formula(ranks: int) -> float:
    """Bytes that a rank sends in a step, of the tables' sides: 2·B·(D + D')·4·(R-1)/R."""
    _, fields, settings = SHAPES[NAME]
    width = fields.get("factors") or fields["hidden"][0]
    return float(2 * settings["batch_rows"] * 2 * width * 4 * (ranks - 1) / ranks)


def seconds(a: float, c: float, sent: float, ranks: int) -> tuple[float, float]:
    """Of a step on so many machines: work, and network."""
    network = sent / RATE + 5 * log2(2 * ranks) * DELAY if ranks > 1 else 0.0
    return (a + c / ranks) / CORES, network


# -- networks -------------------------------------------------------------------------------------


def _ip(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def network(ranks: int, megabits: int) -> Iterator[list[str]]:
    """Namespaces on one bridge, each sending at most so many megabits a second."""
    bridge, names = f"cfn{os.getpid()}"[:14], [f"cfn-{os.getpid()}-{rank}" for rank in range(ranks)]
    try:
        _ip("ip", "link", "add", bridge, "type", "bridge")
        _ip("ip", "link", "set", bridge, "up")
        for rank, name in enumerate(names):
            outer = f"o{rank}-{os.getpid()}"[:14]
            _ip("ip", "netns", "add", name)
            _ip(
                "ip",
                "link",
                "add",
                outer,
                "type",
                "veth",
                "peer",
                "name",
                f"v{rank}",
                "netns",
                name,
            )
            _ip("ip", "link", "set", outer, "master", bridge, "up")
            _ip("ip", "-n", name, "addr", "add", f"10.99.0.{rank + 1}/24", "dev", f"v{rank}")
            for link in (f"v{rank}", "lo"):
                _ip("ip", "-n", name, "link", "set", link, "up")
            limit = ["tc", "qdisc", "add", "dev", f"v{rank}", "root"]
            rate = ["tbf", "rate", f"{megabits}mbit", "burst", "64k", "latency", "400ms"]
            _ip("ip", "netns", "exec", name, *limit, *rate)
        yield names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                _ip("ip", "netns", "del", name)
        with suppress(subprocess.CalledProcessError):
            _ip("ip", "link", "del", bridge)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--network", action="store_true")
    given = parser.parse_args()
    if given.work:
        work(given.work, given.steps)
        return
    from cfnade.data.synthetic import synthetic_like

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings"
        synthetic_like("ml-1m", 1).ratings.save(file)
        measured = [run(ranks, str(file), given.steps) for ranks in (1, 2, 3)]
        print("ranks  processor ms  wall ms (median, least)  bytes a step  tables' formula")
        for one in measured:
            times = [1e3 * one[name] for name in ("processor", "wall", "least_wall")]
            words = "{:5d} {:13.1f} {:12.1f} {:9.1f} {:13,.0f} {:16,.0f}"
            print(words.format(one["ranks"], *times, one["bytes"], formula(one["ranks"])))
        a, c = fit(measured)
        print(f"a rank's processor seconds a step: {1e3 * a:.1f} + {1e3 * c:.1f} / R ms")
        dense = measured[-1]["bytes"] / (2 / 3) - formula(3) / (2 / 3)  # grows as (R-1)/R too
        print(f"machines of {CORES} cores, {8 * RATE / 1e9:.0f} Gbit/s, {1e6 * DELAY:.0f} µs:")
        for ranks in (1, 4, 16, 64):
            sent = formula(ranks) + dense * (ranks - 1) / ranks
            busy, wire = seconds(a, c, sent, ranks)
            gain = sum(seconds(a, c, 0.0, 1)) / (busy + wire)
            words = "{:5d}: work {:.2f} + network {:.2f} ms a step, {:.1f}x one machine"
            print(words.format(ranks, 1e3 * busy, 1e3 * wire, gain))
        if given.network:
            _show_networks(str(file), given.steps)


def _show_networks(file: str, count: int) -> None:
    found = []
    for megabits in (1000, 200, 100):
        with network(2, megabits) as names:
            found.append((megabits, run(2, file, count, names)))
    fast = found[0]
    print("two ranks through a network of so many megabits: wall ms; more than the first, by model")
    for megabits, one in found:
        more = 1e3 * (one["wall"] - fast[1]["wall"])
        model = 1e3 * 8 * one["bytes"] * (1 / megabits - 1 / fast[0]) / 1e6
        print(f"{megabits:5d} {1e3 * one['wall']:8.1f} {more:8.1f} {model:8.1f}")


if __name__ == "__main__":
    main()
