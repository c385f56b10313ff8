"""train(): it learns, keeps what validation chose, and ends with the same bits however it went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from tests.listed import lines

from cfnade.components.optimizers import member_network
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split, split
from cfnade.evaluation.evaluate import evaluate
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.inference.explain import leave_each_out
from cfnade.inference.scorer import Scorer
from cfnade.training.callbacks import Callback, Stage
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.state import StateStore
from cfnade.training.steps import KernelStepper
from cfnade.training.train import TrainingResult, train

FIELDS: dict[str, Any] = {"hidden": (8,)}
QUICK = TrainingConfig(epochs=6, batch_rows=16, learning_rate=5e-3, weight_decay=1e-3, average=0.9)
BLOCKS = TrainingConfig(
    epochs=4,
    passes=2,
    batch_rows=20,
    batch_columns=15,
    learning_rate=5e-3,
    schedule="constant",
    weight_decay=0.02,
    optimizer="sparse_adam",
    context_rate=(0.8, 1.0),
    average=0.9,
    average_every=2,
)
SETTINGS = {"user": QUICK, "item": QUICK, "both": BLOCKS}


def fit(
    parts: Split,
    side: str = "item",
    training: TrainingConfig | None = None,
    *,
    model: dict[str, Any] = FIELDS,
    n_seeds: int = 1,
    **options: Any,
) -> TrainingResult:
    plan = plan_side(side, model, training or SETTINGS[side], n_seeds=n_seeds)
    return train(parts, plan, RunOptions(**{"n_threads": 1, **options}))


def weights(fitted: FittedModel) -> torch.Tensor:
    return torch.cat(
        [p.detach().flatten() for m in fitted.members for p in member_network(m).parameters()]
    )


@pytest.fixture
def torch_threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's number of threads, which is what it was again after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# -- it learns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["item", "both"])
def test_training_beats_the_mean(parts: Split, side: str) -> None:
    trained = fit(parts, side, replace(SETTINGS[side], epochs=30))
    best = trained.model.metadata["valid"]["rmse"]
    assert best < 0.95 * float(np.std(parts.valid.values))
    assert best == pytest.approx(min(r["valid_rmse"] for r in trained.history), rel=1e-6)


def test_an_epoch_is_so_many_passes_over_the_users(parts: Split) -> None:
    """60 users in blocks of 20: three steps a pass."""
    seen: list[float] = []

    class Watch(Callback):
        def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
            assert (stage.name, stage.epochs) == ("both", 2)
            assert cost is not None
            seen.append(progress)

        def on_epoch_end(self, record: Mapping[str, Any]) -> None:
            seen.append(float(record["epoch"]))

    fit(parts, "both", replace(BLOCKS, epochs=2), callbacks=[Watch()])
    sixths = np.arange(1, 7) / 6
    assert seen == pytest.approx([*sixths, 1.0, *(1 + sixths), 2.0])


def test_blocks_suit_the_table_if_not_given() -> None:
    assert TrainingConfig().block_shape(6040, 3706) == (1006, 926)
    assert TrainingConfig().block_shape(480_189, 17_770) == (1024, 1024)
    assert TrainingConfig().block_shape(60, 20) == (32, 20)
    assert TrainingConfig(batch_rows=100, batch_columns=30).block_shape(60, 20) == (60, 20)


# -- the same bits ---------------------------------------------------------------------------------


def stopper(after: int) -> Callable[[], bool]:
    asked = [0]

    def stop() -> bool:
        asked[0] += 1
        return asked[0] > after

    return stop


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("side", "seeds", "after"), [("user", 1, 2), ("both", 1, 1), ("both", 2, 6)]
)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    parts: Split,
    tmp_path: Path,
    torch_threads: Callable[[int], None],
    side: str,
    seeds: int,
    after: int,
    threads: int,
) -> None:
    """However many threads torch has been given by the caller meanwhile."""
    # Wide enough for torch to share a product among threads.
    fields = {"hidden": (96, 64), "factors": 32, "context_scale": "sqrt"}
    options: dict[str, Any] = {"n_seeds": seeds, "n_threads": threads, "model": fields}
    torch_threads(1)
    whole = fit(parts, side, **options)
    torch_threads(4)
    stopped = fit(parts, side, store=StateStore(tmp_path), should_stop=stopper(after), **options)
    assert stopped.stopped
    torch_threads(2)
    resumed = fit(parts, side, store=StateStore(tmp_path, resume=True), **options)
    assert torch.equal(weights(whole.model), weights(resumed.model))
    assert whole.model.calibration == resumed.model.calibration
    assert len(resumed.history) == seeds * SETTINGS[side].epochs
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def answers(fitted: FittedModel, parts: Split) -> list[Any]:
    scorer = Scorer(fitted)
    few = scorer.stored_users(np.arange(3))
    return [
        scorer.probabilities(parts.test.users[:50], parts.test.items[:50]),
        scorer.probabilities(parts.test.users[:1], parts.test.items[:1]),
        *lines(scorer, few),
        scorer.rating_probabilities(
            leave_each_out(fitted.context, scorer.stored_users(np.zeros(1, int)), 3)
        ),
    ]


@pytest.mark.parametrize("side", ["user", "both"])
def test_training_changes_no_answers_of_the_same_process(parts: Split, side: str) -> None:
    """Nor does it in threads that are born after it, which may have another number of threads."""
    fields = {"hidden": (96, 64), "factors": 32}
    fitted = fit(parts, side, model=fields).model
    before = answers(fitted, parts)
    fit(parts, side, model=fields, n_threads=2)
    after: list[Any] = []
    born_later = Thread(target=lambda: after.extend(answers(fitted, parts)))
    born_later.start()
    born_later.join()
    for again in (answers(fitted, parts), after):
        for one, other in zip(before, again, strict=True):
            np.testing.assert_array_equal(one, other)


def test_torch_has_the_threads_that_were_asked_for(parts: Split) -> None:
    """Else two runs of one thread each would fight for two cores with four."""
    seen: list[int] = []

    def stop() -> bool:  # asked inside the run
        seen.append(torch.get_num_threads())
        return False

    before = torch.get_num_threads()
    fit(parts, "user", n_threads=3, should_stop=stop)
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


# -- several seeds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["item", "both"])
def test_seeds_are_the_models_of_their_seeds_with_one_calibration(parts: Split, side: str) -> None:
    whole = fit(parts, side, n_seeds=2).model
    single = [fit(parts, side, replace(SETTINGS[side], seed=seed)).model for seed in range(2)]
    assert torch.equal(weights(whole), torch.cat([weights(one) for one in single]))
    cells = parts.test.users, parts.test.items
    expected = np.mean([Scorer(one).probabilities(*cells) for one in single], axis=0)
    np.testing.assert_allclose(Scorer(whole).probabilities(*cells), expected, rtol=1e-12)
    assert [member["seed"] for member in whole.metadata["members"]] == [0, 1]
    epochs = SETTINGS[side].epochs
    assert [record["member"] for record in whole.metadata["history"]] == [0] * epochs + [1] * epochs
    assert whole.metadata["valid"]["rmse"] < max(one.metadata["valid"]["rmse"] for one in single)
    assert whole.calibration not in [one.calibration for one in single]


# -- stopped, diverged, trained again --------------------------------------------------------------


def test_stop_is_asked_after_every_epoch(parts: Split) -> None:
    trained = fit(parts, "user", should_stop=lambda: True)
    assert trained.stopped
    assert len(trained.history) == 1


def diverging(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """From that step on the cost is no number."""
    real, calls = KernelStepper.step, [0]

    def step(self: KernelStepper, *args: Any, **kwargs: Any) -> float:
        calls[0] += 1
        cost = real(self, *args, **kwargs)
        return cost if calls[0] <= after else math.nan

    monkeypatch.setattr(KernelStepper, "step", step)


def test_a_run_that_diverges_keeps_its_best_model(
    parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverging(monkeypatch, after=7)
    trained = fit(parts)
    assert trained.diverged is not None
    assert "step 8" in trained.diverged
    assert trained.model.metadata["best_epoch"] >= 1
    assert torch.isfinite(weights(trained.model)).all()


def test_a_refit_that_diverges_leaves_the_chosen_model(
    parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = weights(fit(parts).model)
    diverging(monkeypatch, after=18)  # the first run takes 18 steps
    trained = fit(parts, training=replace(QUICK, refit=True))
    assert not trained.model.metadata["refit"]
    assert torch.equal(weights(trained.model), chosen)


@pytest.mark.parametrize("side", ["item", "both"])
def test_refit_trains_on_validation_too(parts: Split, side: str) -> None:
    plain = fit(parts, side).model
    refit = fit(parts, side, replace(SETTINGS[side], refit=True)).model
    assert refit.metadata["refit"]
    assert refit.metadata["valid"] == plain.metadata["valid"]
    total = len(parts.train) + len(parts.valid)
    assert {counts.sum() for counts in refit.training_counts.values()} == {total}
    assert {counts.sum() for counts in plain.training_counts.values()} == {len(parts.train)}
    assert not torch.equal(weights(plain), weights(refit))


# -- an earlier model ------------------------------------------------------------------------------


@pytest.mark.parametrize("refit", [False, True])
def test_an_earlier_model_can_be_continued(parts: Split, refit: bool) -> None:
    first = fit(parts).model
    still = replace(QUICK, epochs=1, learning_rate=1e-12, refit=refit)
    more = fit(parts, training=still, init_model=first).model
    assert more.metadata["refit"] is refit
    assert torch.allclose(weights(more), weights(first), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": {"hidden": (9,)}},
            r"init_model cannot be continued: its hidden is .8.*not \(9,\)",
        ),
        (
            {"side": "user", "model": {"hidden": (8,), "ridge": 3}},
            r"its components are item, not user-ridge \+ user; .*ridge=0",
        ),
    ],
)
def test_a_model_of_another_kind_cannot_be_continued(
    parts: Split, change: dict[str, Any], message: str
) -> None:
    first = fit(parts, training=replace(QUICK, epochs=1)).model
    with pytest.raises(TrainingError, match=message):
        fit(parts, init_model=first, **change)


def test_an_ensemble_is_not_continued_by_one_member(parts: Split) -> None:
    first = fit(parts, training=replace(QUICK, epochs=1), n_seeds=2).model
    with pytest.raises(TrainingError, match="it has 2 members, and 1 are to be trained"):
        fit(parts, init_model=first)


# -- what a model conditions on, and what it says of itself ----------------------------------------


def test_facts_say_on_what_data_and_how_good(parts: Split) -> None:
    fitted = fit(parts).model
    facts = fitted.metadata
    assert facts["run"]["data"] == parts.data
    assert facts["run"]["split"]["fingerprint"] == parts.fingerprint
    names = {"rmse", "means_rmse", "nll", "nll_raw", "calibration_error", "calibration_error_raw"}
    assert set(facts["valid"]) == names
    assert facts["valid"]["nll"] <= facts["valid"]["nll_raw"]
    assert len(fitted.context) == len(parts.train) + len(parts.valid)
    assert facts["context"] == "train + valid"


def test_what_is_given_of_held_out_users_is_context_but_not_trained_on(parts: Split) -> None:
    whole = parts.train.concat(parts.valid).concat(parts.test)
    held = split(whole, "users:0:3")
    fitted = fit(held, "user").model
    assert len(fitted.context) == len(held.train) + len(held.valid) + len(held.fold_in)
    assert fitted.training_counts["item"].sum() == len(held.train)
    assert fitted.metadata["context"] == "train + valid + fold-in"
    scores = evaluate(fitted, held.test)
    assert {str(bucket): bucket.n for bucket in scores.by_user if bucket.n} == {"1–4": scores.n}


def test_nothing_to_train_on_is_said(parts: Split) -> None:
    empty = replace(parts, train=parts.train.select(np.zeros(len(parts.train), bool)))
    with pytest.raises(TrainingError, match="no ratings to train on"):
        fit(empty)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"side": "all"}, r'side \(=\'all\'\) must be "user", "item" or "both"'),
        ({"n_seeds": 0}, r"n_seeds \(=0\) must be a whole number"),
        ({"n_seeds": True}, r"n_seeds \(=True\) must be a whole number"),
        ({"device": "nowhere"}, "device 'nowhere' cannot be used: .*; try cpu"),
        ({"device": "meta"}, "optimizer.*device cpu, not 'meta'"),
        ({"training": replace(BLOCKS, context_rate="paper")}, 'context_rate "paper" splits rows'),
    ],
)
def test_what_cannot_be_trained_is_refused(
    parts: Split, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        fit(parts, **{"side": "both", "training": BLOCKS, **wrong})


def test_what_is_made_from_ratings_is_not_trained_whatever_the_settings_say(parts: Split) -> None:
    """It has no weights to move or to average."""
    asked = TrainingConfig(epochs=3, average=0.9)
    made = train(parts, plan_side("user-factors", {}, asked))
    assert made.model.metadata["epochs"] == 0
