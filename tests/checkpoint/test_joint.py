"""Models of both sides and ensembles in a folder: the same bits back, and nothing that lies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.bundle import Bundle
from cfnade.checkpoint import load, save
from cfnade.data.store import digest_text
from cfnade.data.synthetic import synthetic
from cfnade.errors import CheckpointError
from cfnade.models.cfnade import CFNADE
from cfnade.models.ensemble import Ensemble
from cfnade.models.joint import JointCFNADE
from cfnade.training.start import level_counts

KINDS = ("joint", "ensemble", "ensemble of joints")


def model_of(kind: str, seed: int = 0) -> Any:
    if kind.startswith("ensemble"):
        single = "joint" if kind.endswith("joints") else "user"
        return Ensemble([model_of(single, seed) for seed in range(3)])
    fields: dict[str, Any] = {"levels": 5, "hidden": (4,)}
    sides = CFNADE(columns=9, **fields), CFNADE(columns=12, **fields)
    model = JointCFNADE(*sides) if kind == "joint" else sides[0]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return model


def make(kind: str) -> Bundle:
    context = synthetic(12, 9, 70, seed=1).ratings
    by_user, by_item = (level_counts(context.rows(side)) for side in ("user", "item"))
    if kind == "ensemble":
        return Bundle(model_of(kind), "user", context, by_user)
    return Bundle(model_of(kind), "both", context, by_user, row_counts=by_item)


@pytest.mark.parametrize("kind", KINDS)
def test_loading_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    bundle = make(kind)
    save(bundle, tmp_path)
    found = load(tmp_path)
    assert type(found.model) is type(bundle.model)
    assert found.side == bundle.side
    assert found.n_members == bundle.n_members
    assert found.model.config == bundle.model.config
    tensors, wanted = found.model.state_dict(), bundle.model.state_dict()
    assert list(tensors) == list(wanted)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in tensors.items())
    assert np.array_equal(found.column_counts, bundle.column_counts)
    assert (found.row_counts is None) == (bundle.row_counts is None)
    if bundle.row_counts is not None and found.row_counts is not None:
        assert np.array_equal(found.row_counts, bundle.row_counts)


@pytest.mark.parametrize("kind", KINDS)
def test_older_versions_are_told_that_they_cannot_read_it(tmp_path: Path, kind: str) -> None:
    save(make(kind), tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["version"] == 2


def test_a_joint_model_is_not_saved_without_its_ratings(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be shared without them"):
        save(make("joint"), tmp_path, with_context=False)
    save(make("ensemble"), tmp_path, with_context=False)
    assert not load(tmp_path).has_context


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"side": "user"}, 'side "user" does not belong to such a model'),
        ({"row_counts": None}, 'side "both" does not belong to such a model'),
        ({"row_counts": np.ones((3, 5), np.int64)}, r"column_counts have shape \(3, 5\)"),
        ({"model": model_of("user")}, "does not belong to such a model"),
    ],
)
def test_parts_that_do_not_fit_are_not_saved(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        save(replace(make("joint"), **change), tmp_path)


def forged(folder: Path, **changes: Any) -> None:
    """Change model.json and its own digest."""
    path = folder / "model.json"
    content = json.loads(path.read_text()) | changes
    content.pop("check")
    content["check"] = digest_text(json.dumps(content, sort_keys=True))
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"side": "item"}, "does not belong"),
        ({"architecture": {"members": 2, "of": {}}}, "the field 'columns'"),
        ({"architecture": {"members": 10**9, "of": {}}}, "members"),
        ({"architecture": {"members": "3", "of": {}}}, "members"),
        ({"architecture": {"user": {}}}, "sides user and item"),
        ({"architecture": {"user": 3, "item": 4}}, "does not describe a model"),
    ],
)
def test_a_model_json_that_lies_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    save(make("joint"), tmp_path)
    forged(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)
