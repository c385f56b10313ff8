"""An item without training ratings on ranks: the mean of the trained, as one process has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.distributed.thread_group import on_ranks, small_shards

from cfnade import checkpoint
from cfnade.cli.run_config import RunConfig, load_parts
from cfnade.config import TrainingConfig
from cfnade.distributed.train import train_distributed
from cfnade.inference.scorer import Scorer
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side


@pytest.mark.parametrize("ridge", [0, 3])
def test_validation_of_unseen_items_is_that_of_one_process(tmp_path: Path, ridge: int) -> None:
    thin = small_shards(tmp_path, users=40, items=60, ratings=200)
    parts = load_parts(RunConfig(data=str(thin.folder), recipe="", side="user"))
    seen = np.bincount(parts.train.items, minlength=parts.train.n_items) > 0
    assert not seen[parts.valid.items].all()  # or there is nothing to see here
    found = on_ranks(
        2,
        lambda group: train_distributed(
            group,
            thin,
            tmp_path / "out",
            plan_side("user", {"hidden": (5,), "ridge": ridge}, TrainingConfig(epochs=1)),
            RunOptions(n_threads=1),
        ),
    )
    fitted = replace(checkpoint.load(tmp_path / "out"), context=parts.train, calibration=None)
    chances = Scorer(fitted).probabilities(parts.valid.users, parts.valid.items)
    errors = chances @ parts.valid.scale.array() - parts.valid.values
    rmse = float(np.sqrt(np.mean(np.square(errors))))
    assert found[0]["valid"]["rmse"] == pytest.approx(rmse, rel=1e-4)
