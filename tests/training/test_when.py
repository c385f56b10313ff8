"""Models that know time: they learn by the right gradient, and a prediction must say when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cfnade import checkpoint
from cfnade.cells import Cells
from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.data.time_features import FEATURES, TimeFeatures
from cfnade.errors import CheckpointError, ModelError, PredictionError, TrainingError
from cfnade.evaluation import evaluate
from cfnade.kernels.block_sampling import BlockSampler
from cfnade.models.joint import JointCFNADE
from cfnade.models.when import TimePart
from cfnade.predictor import Predictor
from cfnade.settings import Settings
from cfnade.training.loop import Saving
from cfnade.training.run import train
from cfnade.training.when import DECAY, TimeStepper

FIELDS: dict[str, Any] = {"hidden": (6,), "context_scale": "sqrt", "time": True}
QUICK = Settings(
    epochs=4,
    passes=2,
    batch_rows=20,
    batch_columns=15,
    learning_rate=5e-3,
    schedule="constant",
    rowwise=True,
    touched_only=True,
    context_rate=(0.8, 1.0),
    average=0.9,
    average_every=2,
)


def timed() -> Ratings:
    """A person who rates low early in the day: the level follows the minute within an hour."""
    made = synthetic(60, 40, 1200, seed=3).ratings
    rng = np.random.default_rng(1)
    return replace(made, times=np.sort(rng.integers(0, 10**6, len(made))))


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(timed(), "paper:0")


@pytest.fixture(scope="module")
def bundle(parts: Split) -> Any:
    return train(parts, side="both", architecture=FIELDS, settings=QUICK, threads=1).bundle


def test_what_time_adds_is_the_formula() -> None:
    part = TimePart(7, 3, shared=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.normal_(generator=generator)
    x = torch.randn(5, 7, generator=generator)
    found = part(x)
    part.requires_grad_(False)
    for t in range(5):
        step = [
            sum(float(x[t, f] * part.A[f, k]) for f in range(7))
            + sum(
                float(torch.tanh(x[t] @ part.M1[:, u] + part.m1[u]) * part.M2[u, k])
                for u in range(32)
            )
            for k in range(3)
        ]
        assert found[t].tolist() == pytest.approx(np.cumsum(step).tolist(), rel=1e-4)
    with pytest.raises(ModelError, match=r"shape \(5, 6\); it must be \(cells, 7\)"):
        part(x[:, :6])


def test_targets_get_their_own_features_and_the_part_moves_down_their_gradient(
    parts: Split,
) -> None:
    ratings = parts.train
    when = TimeFeatures.of(ratings)
    rows = {side: ratings.rows(side) for side in ("user", "item")}
    sampler = BlockSampler(
        *((r.offsets, r.columns, r.levels) for r in rows.values()),
        columns=15,
        n_levels=len(ratings.scale),
        rate=(0.8, 1.0),
    )
    block = sampler.draw(np.arange(10, 30), seed=0, step=0)
    part, twin = (TimePart(len(FEATURES), len(ratings.scale), shared=True) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.normal_(0.0, 0.1, generator=generator)
    twin.load_state_dict(part.state_dict())
    stepper = TimeStepper(part, when, QUICK)
    scores = np.zeros((block.n_targets, len(ratings.scale)), np.float32)
    stepper.add_scores(block, scores)

    targets = block.user.targets
    items = np.repeat(np.arange(ratings.n_items), np.diff(targets.starts))
    users = block.users[targets.rows]
    times = {
        (u, i): t
        for u, i, t in zip(ratings.users, ratings.items, ratings.times, strict=True)  # type: ignore[arg-type]
    }
    at = np.array([times[u, i] for u, i in zip(users, items, strict=True)])
    wanted = twin(torch.from_numpy(when.features(users, items, at)))
    np.testing.assert_allclose(scores, wanted.detach(), rtol=1e-4, atol=1e-5)

    slopes = np.random.default_rng(0).normal(size=scores.shape).astype(np.float32)
    stepper.fit(slopes, rate=0.5)
    (wanted * torch.from_numpy(slopes)).sum().backward()
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad + (0.0 if name == "m1" else DECAY) * parameter.detach()
        step = 0.5 * 5e-3 * gradient / (gradient.abs() + 1e-8)  # Adam's first
        moved = dict(part.named_parameters())[name].detach()
        torch.testing.assert_close(moved, parameter.detach() - step, rtol=1e-4, atol=1e-6)


def test_a_model_learns_from_time_where_it_matters() -> None:
    """Levels that depend on the moment alone, and on nothing that ratings tell."""
    made = timed()
    assert made.times is not None
    mood = (made.times // 5000) % 2  # hours of good and bad mood, of everyone
    levels = np.where(mood == 1, len(made.scale) - 1, 0).astype(np.uint8)
    parts = split(replace(made, levels=levels), "paper:0")
    settings = replace(QUICK, epochs=12, passes=4)
    found = [
        train(parts, side="both", architecture=FIELDS | {"time": time}, settings=settings)
        for time in (False, True)
    ]
    blind, knowing = (one.bundle.facts["valid"]["rmse"] for one in found)
    assert knowing < 0.7 * blind


def test_predictions_need_times_and_change_with_them(parts: Split, bundle: Any) -> None:
    test = parts.test
    assert bundle.knows_time
    assert evaluate(bundle, test).rmse > 0.0
    cells = Cells(bundle)
    with pytest.raises(PredictionError, match="needs to know when; give times"):
        cells.probabilities(test.users, test.items)
    now = cells.probabilities(test.users, test.items, test.times)
    later = cells.probabilities(test.users, test.items, np.asarray(test.times) + 10**5)
    assert np.abs(now - later).max() > 1e-6
    without = replace(bundle, model=_timeless(bundle.model), when=None)
    added = bundle.model.when(
        torch.from_numpy(bundle.when.features(test.users, test.items, test.times))
    )
    logs = np.log(Cells(without).probabilities(test.users, test.items))
    wanted = (torch.from_numpy(logs) + added.double()).softmax(1).detach().numpy()
    np.testing.assert_allclose(now, wanted, rtol=1e-6)


def _timeless(model: JointCFNADE) -> JointCFNADE:
    return JointCFNADE(model.user, model.item)


def test_a_predictor_takes_times_and_says_what_it_cannot_do(parts: Split, bundle: Any) -> None:
    predictor, test = Predictor(bundle), parts.test
    users, items = test.user_ids[test.users], test.item_ids[test.items]
    found = predictor.predict(users, items, times=test.times)
    wanted = Cells(bundle).probabilities(test.users, test.items, test.times)
    np.testing.assert_allclose(found, wanted @ test.scale.array(), rtol=1e-9)
    one = predictor.predict(users[0], items[:5].tolist(), times=7)
    assert one.shape == (5,)
    with pytest.raises(PredictionError, match="give times"):
        predictor.predict(users, items)
    with pytest.raises(PredictionError, match="takes no histories"):
        predictor.predict("x", items[:1].tolist(), histories={"x": {}}, times=7)
    with pytest.raises(PredictionError, match="makes no lists or explanations"):
        predictor.recommend(users[:1])
    timeless = train(parts, side="both", architecture={"hidden": (6,)}, settings=QUICK).bundle
    with pytest.raises(PredictionError, match="does not know time; leave times out"):
        Predictor(timeless).predict(users, items, times=7)


def test_it_is_saved_with_its_time_features(parts: Split, bundle: Any, tmp_path: Path) -> None:
    checkpoint.save(bundle, tmp_path)
    found, test = checkpoint.load(tmp_path), parts.test
    before, after = (
        Cells(one).probabilities(test.users, test.items, test.times) for one in (bundle, found)
    )
    np.testing.assert_array_equal(before, after)
    with pytest.raises(CheckpointError, match="must come together"):
        checkpoint.save(replace(bundle, when=None), tmp_path)
    (tmp_path / "when.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"when\.safetensors: is missing"):
        checkpoint.load(tmp_path)


def test_a_resumed_run_ends_with_the_same_bits(parts: Split, tmp_path: Path) -> None:
    def fit(**more: Any) -> torch.Tensor:
        options: dict[str, Any] = {"architecture": FIELDS, "settings": QUICK, "threads": 1}
        model = train(parts, side="both", **options, **more).bundle.model
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    fit(saving=Saving(tmp_path), stop=lambda: True)
    assert torch.equal(fit(saving=Saving(tmp_path, resume=True)), fit())


def test_time_needs_both_sides_and_timestamps(parts: Split) -> None:
    with pytest.raises(TrainingError, match='time features go with side "both"'):
        train(parts, side="user", architecture={"time": True}, settings=QUICK)
    bare = split(synthetic(60, 40, 900, seed=3).ratings, "paper:0")
    bare = replace(bare, train=replace(bare.train, times=None))
    with pytest.raises(TrainingError, match="need ratings with timestamps"):
        train(bare, side="both", architecture=FIELDS, settings=QUICK)
