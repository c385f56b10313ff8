"""Training of both sides together: rules, resuming, blocks, and several seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.cells import Cells
from cfnade.data.splits import Split
from cfnade.errors import TrainingError
from cfnade.models.ensemble import Ensemble
from cfnade.settings import Settings
from cfnade.training.joint import JointStepper
from cfnade.training.loop import Saving
from cfnade.training.run import Trained, train
from cfnade.training.start import new_model

FIELDS: dict[str, Any] = {"hidden": (6,), "context_scale": "sqrt"}
QUICK = Settings(
    epochs=4,
    passes=2,
    batch_rows=20,
    batch_columns=15,
    learning_rate=5e-3,
    schedule="constant",
    weight_decay=0.02,
    output_decay=3.0,
    rowwise=True,
    touched_only=True,
    context_rate=(0.8, 1.0),
    average=0.9,
    average_every=2,
)


def fit(parts: Split, settings: Settings = QUICK, **more: Any) -> Trained:
    options: dict[str, Any] = {
        "side": "both",
        "architecture": FIELDS,
        "settings": settings,
        "threads": 1,
    } | more
    return train(parts, **options)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_training_beats_the_mean(parts: Split) -> None:
    trained = fit(parts, replace(QUICK, epochs=30))
    best = trained.bundle.facts["valid"]["rmse"]
    assert best < 0.95 * float(np.std(parts.valid.values))
    assert best == pytest.approx(min(r["valid_rmse"] for r in trained.history))


def test_an_epoch_is_so_many_passes_over_the_users(parts: Split) -> None:
    """60 users in blocks of 20: three steps a pass."""
    seen: list[float] = []

    class Watch:
        def step(self, done: float, cost: float) -> None:
            del cost
            seen.append(done)

        def epoch(self, record: dict[str, Any]) -> None:
            seen.append(float(record["epoch"]))

    fit(parts, replace(QUICK, epochs=2), reporter=Watch())
    a_pass = pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1.0])
    assert len(seen) == 14
    assert seen[:6] == a_pass == seen[7:13]


def test_what_training_never_sees_says_nothing(parts: Split) -> None:
    ratings = parts.train.select((parts.train.users != 3) & (parts.train.items != 5))
    bundle = train(
        replace(parts, train=ratings), side="both", architecture=FIELDS, settings=QUICK
    ).bundle
    model = bundle.model
    for name in ("user.W", "user.V", "item.W", "item.V"):
        absent = 5 if name.startswith("user") else 3
        sizes = model.get_parameter(name).detach().abs().sum((1, 2))
        assert sizes[absent] == 0.0
        assert sizes[absent - 1] > 0.0


def test_rules_divide_the_decay_as_documented(parts: Split) -> None:
    ratings = parts.train
    model = new_model(ratings, "both", FIELDS, QUICK)
    joint = JointStepper(model, ratings, QUICK, 1)._joint
    for engine, rows, share in (
        (joint.user, ratings.rows("user"), 15 / 40),
        (joint.item, ratings.rows("item"), 20 / 60),
    ):
        base = 2 * 0.02 * (rows.counts() > 0).sum() / len(ratings)
        assert engine.rules["input_table"].decay == pytest.approx(base)
        assert engine.rules["output_table"].decay == pytest.approx(3 * base / share)
        assert engine.rules["bias"].decay == engine.rules["c"].decay == 0.0
        assert {rule.rate for rule in engine.rules.values()} == {5e-3}


def test_a_restored_stepper_goes_on_as_if_nothing_had_happened(parts: Split) -> None:
    ends = []
    for interrupted in (False, True):
        model = new_model(parts.train, "both", FIELDS, QUICK)
        stepper = JointStepper(model, parts.train, QUICK, 1)
        for step in range(6):
            if interrupted and step == 3:
                state = {name: tensor.clone() for name, tensor in stepper.state().items()}
                stepper = JointStepper(model, parts.train, QUICK, 1)
                stepper.restore(state, 3)
            stepper.step(np.arange(20), step=step, rate=1.0)
        ends.append(weights(model))
    assert torch.equal(*ends)


def stopper(after: int) -> Any:
    asked = [0]

    def stop() -> bool:
        asked[0] += 1
        return asked[0] > after

    return stop


@pytest.mark.parametrize(("seeds", "after"), [(1, 1), (2, 1), (2, 6)])
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    parts: Split, tmp_path: Path, seeds: int, after: int
) -> None:
    whole = fit(parts, seeds=seeds)
    stopped = fit(parts, seeds=seeds, saving=Saving(tmp_path), stop=stopper(after))
    assert stopped.stopped
    resumed = fit(parts, seeds=seeds, saving=Saving(tmp_path, resume=True))
    assert torch.equal(weights(whole.bundle.model), weights(resumed.bundle.model))
    assert whole.bundle.calibration == resumed.bundle.calibration
    assert len(resumed.history) == seeds * QUICK.epochs


def test_seeds_are_the_models_of_their_seeds_with_one_calibration(parts: Split) -> None:
    whole = fit(parts, seeds=3).bundle
    single = [fit(parts, replace(QUICK, seed=seed)).bundle for seed in range(3)]
    assert isinstance(whole.model, Ensemble)
    assert whole.n_members == 3
    for member, alone in zip(whole.members(), single, strict=True):
        assert torch.equal(weights(member.model), weights(alone.model))
    cells = parts.test.users, parts.test.items
    wanted = np.mean([Cells(alone).probabilities(*cells) for alone in single], axis=0)
    np.testing.assert_allclose(Cells(whole).probabilities(*cells), wanted, rtol=1e-12)
    assert [member["seed"] for member in whole.facts["members"]] == [0, 1, 2]
    assert whole.facts["valid"]["rmse"] < max(one.facts["valid"]["rmse"] for one in single)
    assert whole.calibration not in [one.calibration for one in single]


def test_seeds_work_for_one_side_too(parts: Split) -> None:
    settings = Settings(epochs=3, learning_rate=5e-3)
    fields = {"hidden": (6,)}
    whole = train(parts, side="item", architecture=fields, settings=settings, seeds=2).bundle
    assert whole.n_members == 2
    assert [record["member"] for record in whole.facts["history"]] == [0, 0, 0, 1, 1, 1]


def test_a_refit_trains_on_validation_too(parts: Split) -> None:
    bundle = fit(parts, replace(QUICK, refit=True)).bundle
    total = len(parts.train) + len(parts.valid)
    assert bundle.row_counts is not None
    assert bundle.column_counts.sum() == bundle.row_counts.sum() == total


def test_weights_are_taken_over_where_ids_are_the_same(parts: Split) -> None:
    first = fit(parts)
    model = new_model(parts.train, "both", FIELDS, QUICK, first.bundle)
    assert torch.equal(weights(model), weights(first.bundle.model))
    with pytest.raises(TrainingError, match="its hidden differs"):
        new_model(parts.train, "both", FIELDS | {"hidden": (7,)}, QUICK, first.bundle)
    with pytest.raises(TrainingError, match="its side differs"):
        new_model(parts.train, "user", FIELDS, QUICK, first.bundle)
    with pytest.raises(TrainingError, match="it is the mean of 2 models"):
        new_model(parts.train, "both", FIELDS, QUICK, fit(parts, seeds=2).bundle)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"side": "all"}, r'side \(=\'all\'\) must be "user", "item" or "both"'),
        ({"seeds": 0}, r"seeds \(=0\) must be a whole number"),
        ({"device": "meta"}, "trained on the device cpu only"),
        ({"settings": replace(QUICK, context_rate="paper")}, 'context_rate "paper" splits rows'),
    ],
)
def test_what_cannot_be_trained_is_refused(
    parts: Split, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        fit(parts, **wrong)


def test_blocks_suit_the_table_if_not_given() -> None:
    assert Settings().block(6040, 3706) == (1006, 926)
    assert Settings().block(480_189, 17_770) == (1024, 1024)
    assert Settings().block(60, 20) == (32, 20)
    assert Settings(batch_rows=100, batch_columns=30).block(60, 20) == (60, 20)
