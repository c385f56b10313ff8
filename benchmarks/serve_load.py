"""Load for the service from another process: requests at a fixed rate, or as fast as they go.

A bare client over asyncio: one that costs as much as the service would measure itself.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def request(body: bytes) -> bytes:
    """A whole request for a list."""
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
    """The closed loop by wrk, a client that costs next to nothing; None if it is not installed."""
    if shutil.which("wrk") is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        bodies, script = Path(scratch) / "bodies", Path(scratch) / "ask.lua"
        bodies.write_bytes(b"\n".join(one.split(b"\r\n\r\n", 1)[1] for one in sent) + b"\n")
        script.write_text(_LUA % bodies)
        load = ["-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--latency"]
        command = ["wrk", *load, "-s", str(script), f"http://127.0.0.1:{port}/recommendations"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return wrk_figures(said)


def wrk_figures(said: str) -> dict[str, Any]:
    """What wrk printed."""
    shares = {
        int(share): float(value) * _UNITS[unit]
        for share, value, unit in re.findall(r"^ +(\d+)% +([\d.]+)(us|ms|s)$", said, re.M)
    }
    rate = re.search(r"Requests/sec: +([\d.]+)", said)
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    broken = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    return {
        "per_second": float(rate[1]) if rate else 0.0,
        "p50_ms": round(shares[50], 2),
        "p99_ms": round(shares[99], 2),
        "errors": int(failed[1] if failed else 0)
        + sum(map(int, broken.groups() if broken else ())),
    }


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, sent: bytes) -> int:
        """Send a request, read the whole answer and return its status."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(fields[b"content-length"]))
        return int(head.split(b" ", 2)[1])

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):  # reset by the other side
                await self._streams[1].wait_closed()


class Timed:
    """Latencies and failures of a run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0

    async def ask(self, client: Client, sent: bytes, since: float) -> None:
        try:
            status = await client.ask(sent)
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
    """Each client asks again as soon as it is answered, for some time or some number of times."""
    timed, left = Timed(), iter(range(count))
    begin = time.perf_counter()

    async def one(client: Client) -> None:
        while time.perf_counter() - begin < seconds and (number := next(left, None)) is not None:
            await timed.ask(client, sent[number % len(sent)], time.perf_counter())
        await client.close()

    await asyncio.gather(*(one(Client(port)) for _ in range(clients)))
    return timed.figures(time.perf_counter() - begin)


async def open_loop(
    port: int, sent: Sequence[bytes], *, rate: float, seconds: float
) -> dict[str, Any]:
    """Requests at fixed times, whether or not others are answered: waiting counts as latency."""
    timed, idle, tasks = Timed(), [Client(port) for _ in range(64)], set()
    begin = time.perf_counter()

    async def one(number: int, due: float) -> None:
        client = idle.pop() if idle else Client(port)
        await timed.ask(client, sent[number % len(sent)], due)
        idle.append(client)

    for number in range(int(rate * seconds)):
        due = begin + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(number, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    passed = time.perf_counter() - begin
    await asyncio.gather(*(client.close() for client in idle))
    return timed.figures(passed)
