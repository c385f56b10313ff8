"""What people pick on several ranks: draws, the softmax over everybody's items, lists."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.distributed.thread_group import on_ranks, small_shards

from cfnade import checkpoint
from cfnade.cli.run_config import RunConfig, load_parts
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split
from cfnade.distributed import train as rank_training
from cfnade.distributed.interaction_training import RankingValidation
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.rank_data import load_rank_data
from cfnade.distributed.shards import ShardedRatings
from cfnade.distributed.state import RankStateStore, exists, forget
from cfnade.distributed.train import train_distributed
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.set_nade import SetNade
from cfnade.implicit.set_nade_training import (
    SetNadeSettings,
    initial_network,
    sample_batch,
    training_loop,
)
from cfnade.implicit.validation import Question, RankingMetric
from cfnade.training.callbacks import MessageCallback
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side

SOME = SetNadeSettings(hidden=6, epochs=4, batch=20, learning_rate=0.01, check_every=1, patience=9)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardedRatings:
    return small_shards(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def parts(shards: ShardedRatings) -> Split:
    whole: Split = load_parts(RunConfig(data=str(shards.folder), recipe="", side="user"))
    return whole


def rows_of(ratings: Any) -> InteractionRows:
    own = InteractionRows.from_ratings(ratings)
    return own.with_weights(np.ones(len(own.columns), np.float32))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_union_of_the_ranks_draws_is_the_draw_of_one_process(
    shards: ShardedRatings, parts: Split, ranks: int
) -> None:
    people = np.array([3, 5, 8, 40])
    whole = sample_batch(rows_of(parts.train), people, SOME, 7)

    def own(group: ProcessGroup) -> tuple[set[Any], set[Any]]:
        owned = load_rank_data(group, shards, "user")
        found = sample_batch(rows_of(owned.ratings), people, SOME, 7, owned.part)
        columns = owned.part.columns
        known = zip(found.context.rows, columns[found.context.columns], strict=True)
        weights = found.weights.tolist()
        return set(known), set(zip(found.rows, columns[found.columns], weights, strict=True))

    known, asked = zip(*on_ranks(ranks, own), strict=True)
    assert set().union(*known) == set(zip(whole.context.rows, whole.context.columns, strict=True))
    assert set().union(*asked) == set(
        zip(whole.rows, whole.columns, whole.weights.tolist(), strict=True)
    )


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_what_one_process_trains(
    shards: ShardedRatings, parts: Split, ranks: int
) -> None:
    alone = training_loop(rows_of(parts.train), SOME)
    alone.run(2)
    costs = [record["cost"] for record in alone.state.history]

    def own(group: ProcessGroup) -> tuple[Any, list[float], dict[str, torch.Tensor]]:
        owned = load_rank_data(group, shards, "user")
        loop = training_loop(rows_of(owned.ratings), SOME, owned.part)
        loop.run(2)
        found = [record["cost"] for record in loop.state.history]
        weights = {name: t.detach() for name, t in loop.model.named_parameters()}
        return torch.from_numpy(owned.part.columns).long(), found, weights

    network: Any = alone.model
    for columns, found, weights in on_ranks(ranks, own):
        assert found == pytest.approx(costs, rel=1e-5)
        assert torch.allclose(weights["c"], network.c, atol=1e-4)
        assert torch.allclose(weights["V"], network.V[columns], atol=1e-4)
        assert torch.allclose(weights["W"], network.W[:, columns], atol=1e-4)


@pytest.mark.parametrize("ranks", [2, 3])
def test_lists_of_all_ranks_are_judged_as_those_of_one(
    shards: ShardedRatings, parts: Split, ranks: int
) -> None:
    start = initial_network(rows_of(parts.train), SOME)
    people = np.unique(parts.valid.users).astype(np.int64)
    known, answers = (rows_of(part).select(people) for part in (parts.train, parts.valid))
    scores = SetNade.of_network(start).scores(known)
    expected = float(RankingMetric().evaluate(scores, Question(known, answers)).mean())

    def own(group: ProcessGroup) -> float | None:
        owned = load_rank_data(group, shards, "user")
        rows = rows_of(owned.ratings)
        network = initial_network(rows, SOME, owned.part).requires_grad_(False)
        return RankingValidation(owned, rows, 0).value(network)

    assert on_ranks(ranks, own) == pytest.approx([expected] * ranks)


def test_interactions_are_learnt_and_a_killed_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = small_shards(tmp_path, ratings=400, rated=False)
    assert len(clicks.scale) == 1

    def settings(*_: int, seed: int) -> SetNadeSettings:
        return replace(SOME, seed=seed)

    def run(group: ProcessGroup, out: Path, resume: bool, killed_at: int | None) -> str:
        said = []

        def say(text: str) -> None:
            said.append(text)
            if len(said) == killed_at:
                raise RuntimeError("killed")

        saving = RankStateStore(out, 0.0, resume, group)
        options = RunOptions(n_threads=1, store=saving, callbacks=[MessageCallback(say)])
        plan = plan_side("user", {}, TrainingConfig(epochs=1))
        train_distributed(group, clicks, out, plan, options)
        return "\n".join(said)

    monkeypatch.setattr(rank_training, "settings_for", settings)
    whole, out = tmp_path / "whole", tmp_path / "out"
    on_ranks(2, lambda group: run(group, whole, False, None))
    with pytest.raises(RuntimeError, match="killed"):
        on_ranks(2, lambda group: run(group, out, False, 3 if group.rank else None))
    assert exists(out)
    said = on_ranks(2, lambda group: run(group, out, True, None))
    assert "epoch 1," not in said[0]
    one, other = (folder / "model.safetensors" for folder in (whole, out))
    assert one.read_bytes() == other.read_bytes()
    fitted = checkpoint.load(out)
    assert not fitted.members
    assert fitted.interaction_model is not None
    forget(out)
    assert not exists(out)


def test_a_model_with_lists_is_saved_and_makes_them(
    shards: ShardedRatings, parts: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: int, seed: int) -> SetNadeSettings:
        return replace(SOME, seed=seed, check_every=2)

    monkeypatch.setattr(rank_training, "settings_for", short)
    found = on_ranks(
        2,
        lambda group: train_distributed(
            group,
            shards,
            tmp_path,
            plan_side("item", {"hidden": (4,)}, TrainingConfig(epochs=1)),
            RunOptions(n_threads=1),
            learn_interactions=True,
        ),
    )
    fitted = checkpoint.load(tmp_path)
    assert fitted.interaction_model is not None
    known = rows_of(parts.train).select(np.arange(5))
    chances = np.exp(fitted.interaction_model.log_probabilities(known))
    assert chances.sum(1) == pytest.approx(np.ones(5), rel=1e-4)
    scores = [record["valid_ndcg"] for record in found[0]["lists"]["history"]]
    assert found[0]["lists"]["ndcg"] == max(score for score in scores if score is not None)
