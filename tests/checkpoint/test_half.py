"""Weights as float16: half the bytes, the same answers; where they would differ, float32."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.checkpoint.test_checkpoint import KINDS, make

from cfnade.checkpoint import load, save, without_context
from cfnade.checkpoint.half import BOUND
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import CheckpointError
from cfnade.fitted import FittedModel
from cfnade.predictor import Predictor

WEIGHTS = "model.safetensors"


def everything(fitted: FittedModel) -> Any:
    """What it says of every cell, as people get it. Returns (cells, K)."""
    context = fitted.context
    users, items = np.divmod(np.arange(context.n_users * context.n_items), context.n_items)
    times = 10**9 + 7 * np.arange(len(users)) if fitted.needs_times else None
    return Predictor(fitted).predict_proba(
        context.user_ids[users].tolist(), context.item_ids[items].tolist(), times=times
    )


def dtypes(folder: Path) -> dict[str, torch.dtype]:
    tensors = load_file(folder / WEIGHTS)
    return {name: t.dtype for name, t in tensors.items() if not name.startswith("trained_on")}


@pytest.mark.parametrize("kind", KINDS)
def test_halves_load_as_float32_and_say_nearly_the_same(tmp_path: Path, kind: str) -> None:
    fitted = make(**KINDS[kind])
    save(fitted, tmp_path, half=True)
    assert torch.float16 in dtypes(tmp_path).values()
    loaded = load(tmp_path)
    for one, other in zip(fitted.members, loaded.members, strict=True):
        ours, theirs = one.state_dict(), other.state_dict()
        for name, tensor in theirs.items():
            assert tensor.dtype == torch.float32
            assert torch.allclose(tensor, ours[name], rtol=2**-11, atol=1e-7)
    change = np.abs(everything(loaded) - everything(fitted)).max()
    assert 0 < change <= BOUND


def test_the_file_of_a_large_model_halves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """More cells than are looked at: the bound is seen to hold for the others too."""
    data = synthetic(300, 80, 6_000, seed=1).ratings
    fitted = make(data=data, hidden=(100,))
    with torch.no_grad():
        for parameter in fitted.members[0].parameters():
            parameter.mul_(0.1)
    save(fitted, tmp_path / "whole")
    caplog.set_level(logging.INFO, "cfnade")
    save(fitted, tmp_path / "half", half=True)
    whole, half = ((tmp_path / name / WEIGHTS).stat().st_size for name in ("whole", "half"))
    assert set(dtypes(tmp_path / "half").values()) == {torch.float16}
    assert 0.49 < half / whole < 0.53
    assert f"{(whole - half) / 1e6:.1f} MB less" in caplog.text
    assert np.abs(everything(load(tmp_path / "half")) - everything(fitted)).max() <= BOUND
    # Saved again as it was loaded, it is not smaller for ever.
    save(load(tmp_path / "half"), tmp_path / "again")
    assert set(dtypes(tmp_path / "again").values()) == {torch.float32}


@pytest.mark.parametrize(
    "change",
    [
        # Only differences of biases count, and rounding moves large ones far.
        lambda b: b.add_(500.0),
        # A level that never comes, by a number that float16 does not have.
        lambda b: b[:, -1].sub_(1e5),
    ],
    ids=["too coarse", "beyond float16"],
)
def test_tables_that_would_change_answers_stay_as_they_are(
    tmp_path: Path, change: Callable[[torch.Tensor], Any]
) -> None:
    fitted = make(shared=False)
    with torch.no_grad():
        change(fitted.members[0].sides["user"].network.get_parameter("b"))
    save(fitted, tmp_path, half=True)
    found = dtypes(tmp_path)
    assert found["0.user.b"] == torch.float32
    assert found["0.user.W"] == torch.float16
    assert np.abs(everything(load(tmp_path)) - everything(fitted)).max() <= BOUND


def test_what_is_left_out_of_the_folder_is_still_measured_by(tmp_path: Path) -> None:
    save(make(), tmp_path, half=True, with_context=False)
    assert torch.float16 in dtypes(tmp_path).values()
    assert not load(tmp_path).has_context


def test_a_model_without_its_ratings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"half=True measures .* leave half out"):
        save(without_context(make()), tmp_path / "model", half=True)
    assert not (tmp_path / "model").exists()
