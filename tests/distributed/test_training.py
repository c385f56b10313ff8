"""Ranks train what one process trains: gradients, validation, the folder, and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.distributed.thread_group import on_ranks, small_shards
from typer.testing import CliRunner

from cfnade import checkpoint
from cfnade.cli import app
from cfnade.cli.run_config import RunConfig, load_parts
from cfnade.components import Member
from cfnade.components.optimizers import member_network
from cfnade.components.registry import component_names, new_member
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split
from cfnade.distributed import state as rank_state
from cfnade.distributed.process_group import Array, ProcessGroup
from cfnade.distributed.rank_data import RankSplit, load_rank_data
from cfnade.distributed.shards import ShardedRatings
from cfnade.distributed.state import RankStateStore
from cfnade.distributed.train import train_distributed
from cfnade.distributed.validation import DistributedValidation
from cfnade.exceptions import TrainingError
from cfnade.inference.scorer import Scorer
from cfnade.training.callbacks import Callback
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan, plan_side
from cfnade.training.state import write_state
from cfnade.training.steps import KernelStepper, TorchStepper, make_stepper
from cfnade.training.train import train

FEW = TrainingConfig(epochs=2, batch_rows=16)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "user": ("user", {"hidden": (8,)}),
    "item": ("item", {"hidden": (8,), "shared": False, "context_scale": "sqrt"}),
    "factored": ("user", {"hidden": (8,), "factors": 3, "context_scale": "sqrt"}),
    "deep": ("item", {"hidden": (8, 6), "factors": 4, "target_weight": "unit"}),
    "both": ("both", {"hidden": (8,), "context_scale": "sqrt"}),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardedRatings:
    return small_shards(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def parts(shards: ShardedRatings) -> Split:
    whole: Split = load_parts(RunConfig(data=str(shards.folder), recipe="", side="user"))
    return whole


class Stepped(NamedTuple):
    """A rank's columns after some steps."""

    columns: dict[str, torch.Tensor]  # by side
    member: Member
    moments: dict[str, torch.Tensor]
    cost: float


def stepped(
    group: ProcessGroup,
    shards: ShardedRatings,
    name: str,
    settings: TrainingConfig,
    steps: int,
    rows: int = 16,
) -> Stepped:
    side, fields = MODELS[name]
    names = component_names(side)
    axes: list[Any] = [*names]
    split = RankSplit.load(group, shards, axes)
    member = new_member(names, split.train, fields, settings, split.parts)
    stepper = make_stepper(member, split.train, fields, settings, device="cpu", threads=1)
    cost = 0.0
    for step in range(steps):
        cost = stepper.step(stepper.sampler.sample(rows_of(stepper, rows), step), rate=1.0)
    columns = {
        str(axis): torch.from_numpy(part.columns).long() for axis, part in split.parts.items()
    }
    return Stepped(columns, member, stepper.state(), cost)


def rows_of(stepper: KernelStepper | TorchStepper, count: int = 16) -> Array:
    return np.random.default_rng(0).permutation(stepper.sampler.n_rows)[:count]


def whole_gradient(
    parts: Split, name: str, settings: TrainingConfig, rows: int
) -> tuple[dict[Any, Any], float]:
    """The gradient of the first step by autograd, in one process, by side and parameter."""
    side, fields = MODELS[name]
    member = new_member(component_names(side), parts.train, fields, settings)
    stepper = make_stepper(member, parts.train, fields, settings, device="cpu", threads=1)
    plain = TorchStepper(member, parts.train, stepper.sampler, 1.0, member_network(member))
    cost = plain.step(plain.sampler.sample(rows_of(stepper, rows), 0), rate=1.0)
    moments = plain.state()
    firsts = {
        (axis, key): 10 * moments[f"{axis}/{i}.moment"]
        for axis, one in member.components.items()
        for i, (key, _) in enumerate(one.network.named_parameters())
    }
    return firsts, cost


ENGINE_NAMES = {"W": "input_table", "A": "input_table", "V": "output_table", "P": "output_table"}
ENGINE_NAMES |= {"b": "bias"}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("ranks", "rows"), [(2, 16), (3, 16), (3, 2)])
def test_the_gradient_of_a_step_is_that_of_one_process(
    shards: ShardedRatings, parts: Split, name: str, ranks: int, rows: int
) -> None:
    expected, cost = whole_gradient(parts, name, FEW, rows)
    for found in on_ranks(ranks, lambda group: stepped(group, shards, name, FEW, 1, rows)):
        assert found.cost == pytest.approx(cost, rel=1e-5)
        for (axis, key), gradient in expected.items():
            own = 10 * found.moments[f"{axis}/{ENGINE_NAMES.get(key, key)}.0"]
            whole = gradient[found.columns[axis]] if key in ENGINE_NAMES else gradient
            error = float((own[: len(whole)] - whole).norm())
            assert error < 1e-5 * max(1e-12, float(gradient.norm())), (axis, key)


@pytest.mark.parametrize("name", MODELS)
def test_one_rank_has_the_bits_of_one_process(
    shards: ShardedRatings, parts: Split, name: str
) -> None:
    side, fields = MODELS[name]
    member = new_member(component_names(side), parts.train, fields, FEW)
    stepper = make_stepper(member, parts.train, fields, FEW, device="cpu", threads=1)
    for step in range(3):
        stepper.step(stepper.sampler.sample(rows_of(stepper), step), rate=1.0)
    (found,) = on_ranks(1, lambda group: stepped(group, shards, name, FEW, 3))
    weights = found.member.arrays()
    for key, array in member.arrays().items():
        np.testing.assert_array_equal(weights[key], array, err_msg=key)


@pytest.mark.parametrize(("ranks", "name"), [(2, "deep"), (3, "deep"), (2, "both"), (3, "both")])
def test_validation_by_ranks_is_that_of_one_process(
    shards: ShardedRatings, parts: Split, ranks: int, name: str, tmp_path: Path
) -> None:
    outcome = on_ranks(ranks, lambda group: trained(group, shards, tmp_path, name))[0]
    assert outcome["valid"]["rmse"] == pytest.approx(rmse_of(tmp_path, parts), rel=1e-5)
    train, valid, stars = parts.train, parts.valid, parts.valid.scale.array()
    mean = float(np.mean(train.values))
    items, users = (np.zeros(n) for n in (train.n_items, train.n_users))
    for offsets, index in ((items, train.items), (users, train.users)):
        left = train.values - mean - items[train.items]
        for number in range(len(offsets)):
            own = index == number
            offsets[number] = left[own].sum() / (own.sum() + 5)
    means = np.clip(mean + items[valid.items] + users[valid.users], stars[0], stars[-1])
    baseline = float(np.sqrt(np.mean(np.square(means - valid.values))))
    assert outcome["valid"]["means_rmse"] == pytest.approx(baseline)


@pytest.mark.parametrize("ridge", [0, 3])
def test_validation_of_untrained_items_is_that_of_one_process(tmp_path: Path, ridge: int) -> None:
    thin = small_shards(tmp_path, users=40, items=60, ratings=200)
    parts = load_parts(RunConfig(data=str(thin.folder), recipe="", side="user"))
    is_trained = np.bincount(parts.train.items, minlength=parts.train.n_items) > 0
    assert not is_trained[parts.valid.items].all()
    plan = plan_side("user", {"hidden": (5,), "ridge": ridge}, TrainingConfig(epochs=1))
    out, options = tmp_path / "out", RunOptions(n_threads=1)
    outcomes = on_ranks(2, lambda group: train_distributed(group, thin, out, plan, options))
    assert outcomes[0]["valid"]["rmse"] == pytest.approx(rmse_of(out, parts), rel=1e-4)


def rmse_of(folder: Path, parts: Split) -> float:
    """The validation RMSE of a saved model in one process."""
    model = replace(checkpoint.load(folder), context=parts.train, calibration=None)
    probabilities = Scorer(model).probabilities(parts.valid.users, parts.valid.items)
    errors = probabilities @ parts.valid.scale.array() - parts.valid.values
    return float(np.sqrt(np.mean(np.square(errors))))


def trained(
    group: ProcessGroup,
    shards: ShardedRatings,
    out: Path,
    name: str,
    config: TrainingConfig = FEW,
    n_seeds: int = 1,
    **options: Any,
) -> dict[str, Any]:
    side, fields = MODELS[name]
    plan = plan_side(side, fields, config, n_seeds=n_seeds)
    return train_distributed(group, shards, out, plan, RunOptions(n_threads=1, **options))


@pytest.mark.parametrize("name", ["deep", "both"])
def test_the_same_ranks_give_the_same_bits_and_others_the_same_model(
    shards: ShardedRatings, tmp_path: Path, name: str
) -> None:
    folders = {
        (ranks, again): tmp_path / f"{ranks}-{again}" for ranks in (1, 2, 3) for again in (0, 1)
    }
    for (ranks, _), out in folders.items():
        on_ranks(ranks, lambda group, out=out: trained(group, shards, out, name))  # type: ignore[misc]
    bits = {key: (out / "model.safetensors").read_bytes() for key, out in folders.items()}
    weights = {key: vector(out) for key, out in folders.items()}
    for ranks in (1, 2, 3):
        assert bits[ranks, 0] == bits[ranks, 1]
        gap = (weights[ranks, 0] - weights[1, 0]).norm() / weights[1, 0].norm()
        assert float(gap) < 2e-3


def vector(folder: Path) -> torch.Tensor:
    member = checkpoint.load(folder).members[0]
    return torch.cat([p.detach().flatten() for p in member_network(member).parameters()])


def test_the_folder_holds_every_rating_and_id_once(
    shards: ShardedRatings, parts: Split, tmp_path: Path
) -> None:
    on_ranks(3, lambda group: trained(group, shards, tmp_path, "user"))
    fitted = checkpoint.load(tmp_path)
    context, both = fitted.context, parts.train.concat(parts.valid)
    assert np.array_equal(context.user_ids, both.user_ids)
    assert np.array_equal(context.item_ids, both.item_ids)

    def rated(ratings: Any) -> set[tuple[int, int, int]]:
        columns = (ratings.users.tolist(), ratings.items.tolist(), ratings.levels.tolist())
        return set(zip(*columns, strict=True))

    assert rated(context) == rated(both)
    assert len(context) == len(both)
    assert np.array_equal(fitted.training_counts["item"], parts.train.level_counts("item"))
    assert fitted.calibration is not None


def test_more_ranks_than_columns_leave_some_with_nothing_to_do(tmp_path: Path) -> None:
    few = small_shards(tmp_path, users=30, items=3, ratings=60)
    found = on_ranks(5, lambda group: load_rank_data(group, few, "user").part.columns)
    assert sorted(np.concatenate(found).tolist()) == [0, 1, 2]
    assert any(len(columns) == 0 for columns in found)
    on_ranks(5, lambda group: trained(group, few, tmp_path / "out", "user"))
    assert checkpoint.load(tmp_path / "out").members[0].to_dict()["user"]["columns"] == 3


@pytest.mark.parametrize(
    "plan",
    [
        plan_side("user-ridge+item"),
        plan_side("user+time"),
        plan_side("user", {"time": True}),
        plan_side("neighborhood"),
        plan_side("user,item"),
    ],
)
def test_what_ranks_cannot_train_is_refused(
    shards: ShardedRatings, tmp_path: Path, plan: TrainingPlan
) -> None:
    with pytest.raises(TrainingError, match=r"needs one process \(cfnade train\)"):
        on_ranks(2, lambda group: train_distributed(group, shards, tmp_path, plan))
    assert not list(tmp_path.iterdir())


# -- several seeds and the refit ------------------------------------------------------------------


def test_members_of_several_seeds_are_those_trained_alone(
    shards: ShardedRatings, parts: Split, tmp_path: Path
) -> None:
    out = tmp_path / "seeds"
    found = on_ranks(2, lambda group: trained(group, shards, out, "user", n_seeds=2))
    fitted = checkpoint.load(out)
    assert [one["seed"] for one in fitted.metadata["members"]] == [0, 1]
    for number, member in enumerate(fitted.members):
        alone = tmp_path / str(number)
        config = replace(FEW, seed=number)
        on_ranks(2, lambda group: trained(group, shards, alone, "user", config))  # noqa: B023
        for key, array in checkpoint.load(alone).members[0].arrays().items():
            np.testing.assert_array_equal(member.arrays()[key], array, err_msg=key)
    assert found[0]["valid"]["rmse"] == pytest.approx(rmse_of(out, parts), rel=1e-5)


@pytest.mark.parametrize("name", ["item", "both"])
def test_a_refit_trains_on_all_ratings_for_the_selected_epochs(
    shards: ShardedRatings, parts: Split, tmp_path: Path, name: str
) -> None:
    config = replace(FEW, refit=True)
    for ranks in (1, 2):
        out = tmp_path / str(ranks)
        found = on_ranks(ranks, lambda group: trained(group, shards, out, name, config))  # noqa: B023
        assert found[0]["refit"]
    whole = parts.train.concat(parts.valid)
    fitted = [checkpoint.load(tmp_path / ranks) for ranks in ("1", "2")]
    for axis, counts in fitted[1].training_counts.items():
        np.testing.assert_array_equal(counts, whole.level_counts(axis))
    one, two = (vector(tmp_path / ranks) for ranks in ("1", "2"))
    side, fields = MODELS[name]
    alone = train(parts, plan_side(side, fields, config), RunOptions(n_threads=1)).model.members[0]
    for key, array in fitted[0].members[0].arrays().items():
        np.testing.assert_array_equal(array, alone.arrays()[key], err_msg=key)
    assert float((two - one).norm() / one.norm()) < 2e-3
    on_ranks(2, lambda group: trained(group, shards, tmp_path / "none", name, FEW))
    selected = vector(tmp_path / "none")
    assert float((two - selected).norm() / selected.norm()) > 2e-3


# -- interrupted ----------------------------------------------------------------------------------


def test_a_state_that_not_every_rank_wrote_does_not_count(
    shards: ShardedRatings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = TrainingConfig(epochs=8, batch_rows=16)
    whole = tmp_path / "whole"
    on_ranks(2, lambda group: trained(group, shards, whole, "user", long))
    write, calls = write_state, [0]

    def dies(folder: Path, *rest: Any) -> None:
        write(folder, *rest)
        mine = folder.parent.name == "rank-001"
        calls[0] += mine
        if mine and calls[0] == 2:
            raise RuntimeError("killed")

    def run(group: ProcessGroup, resume: bool) -> dict[str, Any]:
        saving = RankStateStore(tmp_path / "out", 0.0, resume, group)
        return trained(group, shards, tmp_path / "out", "user", long, store=saving)

    monkeypatch.setattr(rank_state, "write_state", dies)
    with pytest.raises(RuntimeError, match="killed"):
        on_ranks(2, lambda group: run(group, False))
    monkeypatch.setattr(rank_state, "write_state", write)
    assert rank_state.exists(tmp_path / "out")
    with pytest.raises(TrainingError, match="begun by 2 ranks, and these are 3"):
        on_ranks(3, lambda group: run(group, True))
    on_ranks(2, lambda group: run(group, True))
    one, other = ((f / "model.safetensors").read_bytes() for f in (whole, tmp_path / "out"))
    assert one == other


def test_a_run_of_several_seeds_is_resumed_within_its_second_member(
    shards: ShardedRatings, tmp_path: Path
) -> None:
    class Killed(Callback):
        """Ends a rank in the second epoch of the second member."""

        def on_epoch_end(self, record: Mapping[str, Any]) -> None:
            if record["member"] == 1 and record["epoch"] == 2:
                raise RuntimeError("killed")

    def run(group: ProcessGroup, out: Path, resume: bool, callbacks: list[Callback]) -> None:
        store = RankStateStore(out, 0.0, resume, group)
        config = TrainingConfig(epochs=4, batch_rows=16)
        trained(group, shards, out, "user", config, 2, store=store, callbacks=callbacks)

    whole, out = tmp_path / "whole", tmp_path / "out"
    on_ranks(2, lambda group: run(group, whole, False, []))
    with pytest.raises(RuntimeError, match="killed"):
        on_ranks(2, lambda group: run(group, out, False, [Killed()] if group.rank else []))
    assert (out / "seed-1" / "ranks" / "commit.json").exists()
    epochs: list[tuple[int, int]] = []

    class Recorded(Callback):
        def on_epoch_end(self, record: Mapping[str, Any]) -> None:
            epochs.append((record["member"], record["epoch"]))

    on_ranks(2, lambda group: run(group, out, True, [] if group.rank else [Recorded()]))
    assert set(epochs) <= {(1, 2), (1, 3), (1, 4)}
    one, other = ((folder / "model.safetensors").read_bytes() for folder in (whole, out))
    assert one == other
    rank_state.forget(out)
    assert not rank_state.exists(out)
    assert not (out / "seed-1").exists()


def test_judges_look_at_the_same_rows_of_many(
    shards: ShardedRatings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cfnade.distributed import validation as judging

    monkeypatch.setattr(judging, "MAX_RATINGS", 30)
    counts = {
        ranks: sum(
            on_ranks(
                ranks,
                lambda g: len(DistributedValidation(load_rank_data(g, shards, "user")).levels),
            )
        )
        for ranks in (1, 2, 3)
    }
    assert len(set(counts.values())) == 1
    assert 0 < counts[1] < shards.sizes["valid"]


def test_one_process_trains_on_shards_as_ever_and_leaves_a_run_of_ranks_alone(
    shards: ShardedRatings, tmp_path: Path
) -> None:
    def run(group: ProcessGroup, epochs: int) -> None:
        saving = RankStateStore(tmp_path, 0.0, False, group)
        trained(group, shards, tmp_path, "user", replace(FEW, epochs=epochs), store=saving)

    on_ranks(2, lambda group: run(group, 8))
    command = ["train", str(shards.folder), "--side", "item", "--ridge", "0", "--epochs", "1"]
    for more, code in (([], 1), (["--overwrite"], 0)):
        done = CliRunner().invoke(app, [*command, "--out", str(tmp_path), *more])
        assert done.exit_code == code, done.output
        if code:
            assert "unfinished run of several ranks" in str(done.exception)
    assert checkpoint.load(tmp_path).side == "item"
    assert not (tmp_path / "ranks").exists()


# -- from an earlier model ------------------------------------------------------------------------


def test_ranks_go_on_from_a_model_with_some_of_the_items(
    shards: ShardedRatings, tmp_path: Path
) -> None:
    """After no step the weights of known columns are the earlier ones, and new ones their mean."""
    fewer = small_shards(tmp_path, users=40, items=30, ratings=500)
    on_ranks(2, lambda group: trained(group, fewer, tmp_path / "earlier", "deep"))
    still = TrainingConfig(epochs=1, batch_rows=16, learning_rate=1e-12)
    earlier = checkpoint.load(tmp_path / "earlier")
    on_ranks(
        3,
        lambda group: trained(group, shards, tmp_path / "later", "deep", still, init_model=earlier),
    )
    first, later = (checkpoint.load(tmp_path / name) for name in ("earlier", "later"))
    _, old, new = np.intersect1d(
        first.context.user_ids, later.context.user_ids, return_indices=True
    )
    assert len(old) > 0
    before, after = (
        one.members[0].components["item"].network.state_dict() for one in (first, later)
    )
    unknown = np.setdiff1d(np.arange(len(later.context.user_ids)), new)
    assert len(unknown) > 0
    for key in ("A", "P", "b"):
        torch.testing.assert_close(after[key][new], before[key][old], atol=1e-6, rtol=1e-5)
        mean = before[key][old].mean(0).expand(len(unknown), *before[key].shape[1:])
        torch.testing.assert_close(after[key][unknown], mean, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(after["Q"], before["Q"], atol=1e-6, rtol=1e-5)
