"""The ridge part on several ranks: its start, its gradient and what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.distributed.thread_group import on_ranks, small_shards

from cfnade.cli.run_config import RunConfig, load_parts
from cfnade.components.optimizers import member_network
from cfnade.components.registry import member_spec, new_member
from cfnade.components.variational_bayes import Factors, fit_factor_analysis
from cfnade.config import TrainingConfig
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.rank_data import load_rank_data
from cfnade.distributed.shards import ShardedRatings
from cfnade.training.steps import TorchStepper, make_stepper

FEW = TrainingConfig(epochs=2, batch_rows=16)
FIELDS: dict[str, Any] = {"hidden": (6,), "ridge": 3}
NAMES = ("user-ridge", "user")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardedRatings:
    return small_shards(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("ranks", [2, 3])
def test_factor_analysis_by_ranks_says_what_one_process_says(
    shards: ShardedRatings, ranks: int
) -> None:
    rows = load_parts(RunConfig(data=str(shards.folder), recipe="", side="user")).train.rows("user")
    whole = fit_factor_analysis(rows, 3, seed=0, threads=1, sweeps=5)

    def own(group: ProcessGroup) -> tuple[Any, Factors]:
        owned = load_rank_data(group, shards, "user")
        found = owned.ratings.rows("user")
        return owned.part.columns, fit_factor_analysis(
            found, 3, seed=0, threads=1, sweeps=5, part=owned.part
        )

    a, mean = np.zeros_like(whole.a), np.zeros_like(whole.mean)
    for columns, factors in on_ranks(ranks, own):
        a[columns], mean[columns] = factors.a[: len(columns)], factors.mean[: len(columns)]
        assert factors.noise == pytest.approx(whole.noise, rel=1e-4)
        assert factors.importance == pytest.approx(whole.importance, rel=1e-3)
    assert mean == pytest.approx(whole.mean, abs=1e-3)
    # Dimensions may be turned round, which their products do not feel.
    assert a @ a.T == pytest.approx(whole.a @ whole.a.T, abs=2e-3)


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_gradient_of_a_step_is_that_of_one_process(shards: ShardedRatings, ranks: int) -> None:
    train = load_parts(RunConfig(data=str(shards.folder), recipe="", side="user")).train
    member = new_member(NAMES, train, FIELDS, FEW)
    start = {name: array.copy() for name, array in member.arrays().items()}
    draws = make_stepper(member, train, FIELDS, FEW, device="cpu", threads=1).sampler
    plain, rows = TorchStepper(member, train, draws, 1.0, member_network(member)), np.arange(5, 35)
    cost = plain.step(plain.sampler.sample(rows, 0), rate=1.0)
    expected = plain.state()

    def own(group: ProcessGroup) -> tuple[Any, float, dict[str, torch.Tensor]]:
        owned = load_rank_data(group, shards, "user")
        spread = member.components["user-ridge"].config.spread
        fields = FIELDS | {"spread": spread}
        part = new_member(NAMES, owned.ratings, fields, FEW, {"user": owned.part})
        columns = torch.from_numpy(owned.part.columns).long()
        specs = member_spec(part.to_dict())
        for name, array in part.arrays().items():
            by_column = specs[name].column_axis == 0
            array[...] = start[name][columns.numpy()] if by_column else start[name]
        stepper = make_stepper(part, owned.ratings, fields, FEW, device="cpu", threads=1)
        return columns, stepper.step(stepper.sampler.sample(rows, 0), rate=1.0), stepper.state()

    names = [name for name, _ in member.components["user-ridge"].network.named_parameters()]
    by_torch = [name for name in names if name not in ("V", "b")]
    for columns, own_cost, found in on_ranks(ranks, own):
        assert own_cost == pytest.approx(cost, rel=1e-5)
        for number, name in enumerate(names):
            whole = expected[f"user-ridge/{number}.moment"]
            by_kernels = name in ("V", "b")
            key = f"{name}.0" if by_kernels else f"{by_torch.index(name)}.moment"
            mine = found[f"user-ridge/{key}"]
            wanted = whole if name == "log_prior" else whole[columns]
            gap = float((mine - wanted).norm()) / float(whole.norm())
            assert gap < 1e-5, name
