"""Real processes: 2 and 3 ranks, one of them killed or hanging; torchrun starts them once.

Two ranks add two numbers, in whatever order: so threads that stand for them give the same bits.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.cli.forks import Server
from tests.distributed.thread_group import on_ranks, small_shards

from cfnade import checkpoint
from cfnade.components.optimizers import member_network
from cfnade.config import TrainingConfig
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.shards import ShardedRatings
from cfnade.distributed.state import RankStateStore, exists
from cfnade.distributed.train import train_distributed
from cfnade.recipes import default_recipe
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side

FAULTY = Path(__file__).parent / "faulty.py"
OPTIONS = ["--side", "user", "--ridge", "0", "--hidden", "8", "--epochs", "6", "--n-threads", "1"]
OPTIONS += ["--batch-rows", "16", "--save-every", "0"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardedRatings:
    return small_shards(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def expected(shards: ShardedRatings, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights that two ranks give which nothing happens to."""
    out = tmp_path_factory.mktemp("expected")
    trained(shards, out, resume=False)
    return (out / "model.safetensors").read_bytes()


def trained(
    shards: ShardedRatings, out: Path, *, resume: bool, ranks: int = 2, n_seeds: int = 1
) -> None:
    recipe = default_recipe("user", 0)
    config = TrainingConfig.from_dict(recipe.training.to_dict() | {"epochs": 6, "batch_rows": 16})
    fields = recipe.model | {"hidden": (8,), "ridge": 0}
    plan = plan_side("user", fields, config, n_seeds=n_seeds)

    def train(group: ProcessGroup) -> None:
        store = RankStateStore(out, 0.0, resume, group)
        train_distributed(group, shards, out, plan, RunOptions(n_threads=1, store=store))

    on_ranks(ranks, train)


def environment(**more: str) -> dict[str, str]:
    source = str(Path(checkpoint.__file__).parents[2])
    known = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return known | {"PYTHONPATH": source} | more


def torchrun(ranks: int, *command: str, restarts: int = 0, **more: str) -> str:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    done = subprocess.run(
        [*launcher, *command], capture_output=True, text=True, env=environment(**more), timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def meeting(ranks: int) -> dict[str, str]:
    """What torchrun would tell each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return known | {"GLOO_SOCKET_IFNAME": "lo"}


def by_hand(
    processes: Server, ranks: int, *command: str | Path, **more: str
) -> tuple[list[int | None], str]:
    """The same without a launcher that ends the others: codes, and all that ranks say."""
    known = meeting(ranks) | {"FAULT": "none:step:0", "FAILED": "-"} | more
    running = [
        processes.start(*command, program=FAULTY, env=known | {"RANK": str(rank)})
        for rank in range(ranks)
    ]
    said = [*running[0].end()]
    for process in running[1:]:
        if "hang" in known["FAULT"]:
            process.signal(signal.SIGKILL)  # it ends no other way
        said += process.end()
    return [process.code for process in running], "".join(said)


def test_three_ranks_train_and_save_a_model(
    processes: Server, shards: ShardedRatings, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    codes, said = by_hand(processes, 3, "train-distributed", shards.folder, "--out", out, *OPTIONS)
    assert codes == [0, 0, 0]
    assert "on 3 ranks" in said
    assert said.count("next: cfnade ") == 1
    fitted = checkpoint.load(out)
    assert fitted.metadata["run"]["ranks"] == 3
    assert len(fitted.context) == shards.sizes["train"] + shards.sizes["valid"]
    assert not exists(out)
    trained(shards, tmp_path / "threads", resume=False, ranks=3)
    processes_vector, threads_vector = (
        torch.cat([weight.detach().flatten() for weight in member_network(member).parameters()])
        for member in (fitted.members[0], checkpoint.load(tmp_path / "threads").members[0])
    )
    gap = (processes_vector - threads_vector).norm() / threads_vector.norm()
    assert float(gap) < 2e-3


def test_a_rank_killed_during_a_save_comes_back_and_nothing_is_different(
    shards: ShardedRatings, expected: bytes, tmp_path: Path
) -> None:
    out, failed = tmp_path / "model", tmp_path / "failed"
    fault = {"FAULT": "1:save:2", "FAILED": str(failed)}
    command = [str(FAULTY), "train-distributed", str(shards.folder), "--out", str(out), *OPTIONS]
    said = torchrun(2, *command, restarts=1, **fault)
    assert said.count("next: cfnade ") == 1
    assert failed.exists()
    assert (out / "model.safetensors").read_bytes() == expected


def test_a_rank_killed_between_saves_is_one_message_and_the_run_can_be_gone_on_with(
    processes: Server, shards: ShardedRatings, expected: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    fault = {"FAULT": "1:step:13", "FAILED": str(tmp_path / "failed")}
    codes, said = by_hand(
        processes, 2, "train-distributed", shards.folder, "--out", out, *OPTIONS, **fault
    )
    assert codes == [1, -9]
    assert said.count("error:") == 1
    assert "rank 0 of 2: another rank is gone" in said
    assert "continue with the same command and --resume" in said
    assert exists(out)
    trained(shards, out, resume=True)
    assert (out / "model.safetensors").read_bytes() == expected


def test_a_rank_that_hangs_is_one_message(
    processes: Server, shards: ShardedRatings, tmp_path: Path
) -> None:
    fault = {"FAULT": "1:hang:3", "FAILED": str(tmp_path / "failed")}
    command: list[str | Path] = [
        "train-distributed",
        shards.folder,
        "--out",
        tmp_path / "model",
        *OPTIONS,
    ]
    codes, said = by_hand(processes, 2, *command, "--timeout", "15", **fault)
    assert codes == [1, -9]
    assert said.count("error:") == 1
    assert "another rank does not answer" in said


def test_a_rank_whose_others_never_come_is_one_message(
    processes: Server, shards: ShardedRatings, tmp_path: Path
) -> None:
    command: list[str | Path] = [
        "train-distributed",
        shards.folder,
        "--out",
        tmp_path / "model",
        "--timeout",
        "3",
    ]
    alone = processes.start(*command, env=meeting(2) | {"RANK": "0"})
    _, said = alone.end()
    assert alone.code == 1
    assert "error: rank 0 of 2: cannot reach the others" in said
    assert "Traceback" not in said


def test_ranks_are_told_once_that_they_need_shards(processes: Server, tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\n1,1,5\n2,1,3\n")
    codes, said = by_hand(processes, 2, "train-distributed", file, "--out", tmp_path / "model")
    assert codes == [1, 1]
    assert said.count("error:") == 1
    assert "make one with: cfnade data shard" in said
    assert not (tmp_path / "model").exists()
