"""Collectives of real processes over gloo, compared with the same sums in one process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.cli.forks import Server

PROGRAM = """
import numpy as np, torch
from cfnade.distributed.gloo import process_group
def sample(rank, shape): return np.random.default_rng(rank).normal(size=shape).astype(np.float32)
with process_group(60) as group:
    for shape in ((7, 3), (2, 5), (1, 4)):
        every = [sample(rank, shape) for rank in range(group.size)]
        lo, hi = group.row_range(shape[0])
        own = torch.from_numpy(every[group.rank].copy())
        group.reduce_scatter_rows(own)
        np.testing.assert_allclose(own[lo:hi].numpy(), sum(every)[lo:hi], rtol=1e-6)
        group.all_gather_rows(own)
        np.testing.assert_allclose(own.numpy(), sum(every), rtol=1e-6)
        total = group.all_reduce(every[group.rank].copy())
        np.testing.assert_allclose(total, sum(every), rtol=1e-6)
    assert group.total(group.rank + 0.5) == sum(range(group.size)) + group.size / 2
    group.all_reduce(np.zeros(0, np.float32))
    parts = group.gather(np.full((group.rank, 2), group.rank))
    assert [part.tolist() for part in parts] == (
        [] if group.rank else [[[rank, rank]] * rank for rank in range(group.size)]
    )
    rows = np.repeat(np.arange(group.size), 2)[:, None] + 10 * group.rank
    send = [2] * group.size
    received = group.all_to_all_rows(rows, send, send)[:, 0].tolist()
    assert received == [10 * rank + group.rank for rank in range(group.size) for _ in range(2)]
    assert group.broadcast({"rank": group.rank}) == {"rank": 0}
    assert group.bytes_sent > 0
    group.barrier()
    print("first" if group.first_to_report() else "later")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_of_processes(processes: Server, tmp_path: Path, ranks: int) -> None:
    program = tmp_path / "collectives.py"
    program.write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        processes.start(program=program, env=known | {"RANK": str(rank)}) for rank in range(ranks)
    ]
    printed = [process.end() for process in running]
    assert [process.code for process in running] == [0] * ranks, printed
    assert sorted(out.strip() for out, _ in printed) == ["first"] + ["later"] * (ranks - 1)
