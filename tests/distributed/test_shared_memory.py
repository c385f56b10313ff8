"""What ranks of one machine show each other, and that it is what they would send."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.cli.forks import Server

from cfnade.distributed.process_group import Array
from cfnade.distributed.shared_memory import (
    FOLDER,
    ORDERED,
    RankGoneError,
    SharedMemory,
    own_room,
    rooms_of,
)

pytestmark = pytest.mark.skipif(
    not Path(FOLDER).is_dir() or platform.machine() not in ORDERED,
    reason="no memory that processes share here",
)


def hosts(count: int, patience: float = 20.0) -> list[SharedMemory]:
    """As many ranks, all in this process."""
    rooms = [own_room() for _ in range(count)]
    paths = [path for _, path in rooms]
    files = [rooms_of(paths, rank, own) for rank, (own, _) in enumerate(rooms)]
    for path in paths:
        Path(path).unlink()
    return [SharedMemory(rank, opened, patience) for rank, opened in enumerate(files)]


def said(rank: int, turn: int) -> Array:
    return np.random.default_rng((rank, turn)).normal(size=(1 + turn % 7, 5)).astype(np.float32)


def test_everybody_sees_what_everybody_showed_at_any_pace() -> None:
    ranks, turns, wrong = hosts(3), 300, []

    def go(rank: int) -> None:
        pace = np.random.default_rng(rank)
        for turn in range(turns):
            if pace.random() < 0.05:
                time.sleep(float(pace.random()) / 200)
            own = said(rank, turn)
            shown = ranks[rank].show(own, (0, len(own)))
            for other, seen in enumerate(shown):
                if not np.array_equal(seen, said(other, turn)):
                    wrong.append((rank, other, turn))

    threads = [threading.Thread(target=go, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_who_ended_is_gone_and_who_sleeps_does_not_answer() -> None:
    first, second = hosts(2, patience=0.1)
    with pytest.raises(RankGoneError, match="does not answer"):
        first.show(np.ones((1, 1)), (0, 1))
    first, second = hosts(2, patience=60.0)
    second.close()
    began = time.monotonic()
    with pytest.raises(RankGoneError, match="is gone"):
        first.show(np.ones((1, 1)), (0, 1))
    assert time.monotonic() - began < 30


def test_who_does_not_see_a_file_has_none() -> None:
    file, path = own_room()
    Path(path).unlink()
    assert rooms_of([path, path], 0, file) == []
    os.close(file)


BOTH_WAYS = """
import numpy as np, torch
from cfnade.distributed import gloo, shared_memory
def drawn(rank, shape): return np.random.default_rng(rank).normal(size=shape).astype(np.float32)
with gloo.process_group(60) as group:
    folder = shared_memory.FOLDER
    for place in (folder, folder + "/nowhere"):
        shared_memory.FOLDER = place
        group = gloo.join_group(60)
        assert isinstance(group, gloo.SharedMemoryGroup) == (place == folder)
        for shape in ((7, 3), (2, 5), (1, 4)):
            every = [drawn(rank, shape) for rank in range(group.size)]
            lo, hi = group.row_range(shape[0])
            own = torch.from_numpy(every[group.rank].copy())
            before = group.bytes_sent
            group.reduce_scatter_rows(own)
            np.testing.assert_allclose(own[lo:hi].numpy(), sum(every)[lo:hi], rtol=1e-6)
            group.all_gather_rows(own)
            np.testing.assert_allclose(own.numpy(), sum(every), rtol=1e-6)
            total = group.all_reduce(every[group.rank].copy())
            np.testing.assert_allclose(total, sum(every), rtol=1e-6)
            print(place == folder, shape, group.bytes_sent - before)
        assert group.total(group.rank + 0.5) == sum(range(group.size)) + group.size / 2
        group.all_reduce(np.zeros(0, np.float32))
"""


def test_sums_are_the_same_by_memory_and_by_sockets_and_so_are_their_bytes(
    processes: Server, tmp_path: Path
) -> None:
    program = tmp_path / "both_ways.py"
    program.write_text(BOTH_WAYS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        processes.start(program=program, env=known | {"RANK": str(rank)}) for rank in range(3)
    ]
    told = [process.end()[0].splitlines() for process in running]
    assert [process.code for process in running] == [0, 0, 0]
    for lines in told:
        sent = [line.partition(" ")[2] for line in lines]
        assert sent[:3] == sent[3:]
        assert len(sent) == 6
