"""Workers of Ray and of Spark are ranks like any others.

Two ranks give the same bits whoever started them (see test_torchrun.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.distributed.test_torchrun import OPTIONS, environment, trained
from tests.distributed.thread_group import small_shards

from cfnade import checkpoint
from cfnade.distributed.shards import ShardedRatings

pytestmark = pytest.mark.external
ENGINES = {"ray": "ray", "spark": "pyspark"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardedRatings:
    return small_shards(tmp_path_factory.mktemp("data"))


def train_on(
    engine: str, shards: ShardedRatings, out: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    pytest.importorskip(ENGINES[engine])
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    command = [
        "train-distributed",
        str(shards.folder),
        "--out",
        str(out),
        "--engine",
        engine,
        *OPTIONS,
    ]
    return subprocess.run(
        [sys.executable, "-m", "cfnade", *command, "--workers", "2", *more],
        capture_output=True,
        text=True,
        timeout=900,
        env=environment(PYSPARK_PYTHON=sys.executable),
    )


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("engine", ENGINES)
def test_two_workers_give_what_two_ranks_give(
    engine: str, shards: ShardedRatings, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    done = train_on(engine, shards, out)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "validation RMSE" in done.stdout
    trained(shards, tmp_path / "expected", resume=False)
    one, other = (f / "model.safetensors" for f in (out, tmp_path / "expected"))
    assert one.read_bytes() == other.read_bytes()
    assert checkpoint.load(out).metadata["run"]["ranks"] == 2


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_wrong_is_one_message_here(
    engine: str, shards: ShardedRatings, tmp_path: Path
) -> None:
    done = train_on(engine, shards, tmp_path / "model", "--side", "neighborhood")
    assert done.returncode == 1
    assert done.stderr.count("error:") == 1
    assert "needs one process (cfnade train)" in done.stderr
    assert not (tmp_path / "model" / "model.json").exists()
