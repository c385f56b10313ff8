"""Saved models: the same bits when loaded, and all or nothing when saved."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.checkpoint.cases import KINDS, make, ratings, same, weights
from tests.support.crash import Killed, disk_limit, kill_at
from tests.support.raw_tables import raw_table

from cfnade.checkpoint import drop_context, load, manifest, save
from cfnade.checkpoint.manifest import FILES
from cfnade.checkpoint.model_card import CARD
from cfnade.components.optimizers import member_network
from cfnade.data.load import LoadOptions
from cfnade.data.validate import build
from cfnade.exceptions import CheckpointError
from cfnade.utils.safetensors_io import digest_file

# -- there and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_loading_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    fitted = make(**KINDS[kind])
    save(fitted, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert same(fitted, loaded)
    assert loaded.context.fingerprint == fitted.context.fingerprint
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {*FILES, CARD}


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("titles", [False, True])
def test_ids_and_titles_are_restored(tmp_path: Path, texts: bool, titles: bool) -> None:
    data = ratings(texts=texts, titles=titles)
    save(make(data=data), tmp_path)
    assert load(tmp_path).context == data
    frame = pl.read_parquet(tmp_path / "items.parquet")
    assert frame["id"].to_list() == data.item_ids.tolist()
    assert ("title" in frame.columns) == titles


def test_binned_scales_and_missing_calibration_are_restored(tmp_path: Path) -> None:
    columns = raw_table(np.arange(4), np.arange(4), np.array([0.1, 0.5, 2.5, 9.0]))
    fitted = replace(make(data=build(columns, LoadOptions(bins=[0, 1, 2, 10]))), calibration=None)
    save(fitted, tmp_path)
    assert same(load(tmp_path), fitted)
    assert load(tmp_path).context.scale.edges == (1.0, 2.0)


def test_weights_are_mapped_copy_on_write(tmp_path: Path) -> None:
    save(make(), tmp_path)
    before, loaded = (tmp_path / "model.safetensors").read_bytes(), load(tmp_path)
    if sys.platform == "linux":
        assert str(tmp_path / "model.safetensors") in Path("/proc/self/maps").read_text()
    with torch.no_grad():
        for parameter in member_network(loaded.members[0]).parameters():
            parameter.zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert same(load(tmp_path), make())


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(make(), tmp_path / name)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_model_json_is_readable(tmp_path: Path) -> None:
    save(make(hidden=(6, 5)), tmp_path)
    text = (tmp_path / "model.json").read_text()
    assert text.count("\n") > 20
    content = json.loads(text)
    assert list(content)[:3] == ["format", "version", "side"]
    assert list(content)[-1] == "check"
    assert content["format"] == "cfnade-model"
    assert content["version"] == 1
    assert content["implicit"] is None
    assert [list(member) for member in content["members"]] == [["user"]]
    assert content["members"][0]["user"]["hidden"] == [6, 5]
    assert content["scale"]["values"] == [k / 2 for k in range(1, 11)]
    assert content["context"] == {"included": True, "ratings": 60, "holds": "train + valid"}
    assert set(content["versions"]) == {"cfnade", "python", "torch", "numpy"}
    for name, said in content["files"].items():
        assert said["xxh3_128"] == digest_file(tmp_path / name)
        assert said["bytes"] == (tmp_path / name).stat().st_size


# -- without context -------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "dropped"), [("user", "users"), ("item", "items")])
def test_without_context_no_rows_remain(tmp_path: Path, side: str, dropped: str) -> None:
    fitted = make(side, data=ratings(texts=True))
    save(fitted, tmp_path)  # what a save leaves out must go, even if it was there before
    save(fitted, tmp_path, with_context=False)
    found = load(tmp_path)
    assert weights(found) == weights(fitted)
    assert not found.has_context
    assert len(found.context) == 0
    assert len(found.context.user_ids if side == "user" else found.context.item_ids) == 0
    left = {"users", "items"} - {dropped}
    names = ["model.json", "model.safetensors", f"{left.pop()}.parquet"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*names, CARD])
    said = json.loads((tmp_path / "model.json").read_text())["context"]
    assert said["included"] is False
    assert "left out" in said["note"]
    first_id = {"user": b"u0", "item": b"Film 0"}[side]
    assert not any(first_id in p.read_bytes() for p in tmp_path.iterdir())
    assert same(drop_context(fitted), found)
    save(found, tmp_path / "again")
    assert same(load(tmp_path / "again"), found)


def test_a_joint_model_needs_its_context(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be shared without them"):
        save(make("both"), tmp_path, with_context=False)
    assert list(tmp_path.iterdir()) == []


# -- all or nothing --------------------------------------------------------------------------------


def test_a_kill_at_any_step_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    """The new one has fewer files, so some are replaced and some must go."""
    old, new = make(seed=1), drop_context(make(seed=2))
    save(old, tmp_path / "old")
    outcomes, step, finished = [], 0, False
    while not finished:
        folder = tmp_path / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "old", folder)
        (folder / "history.jsonl").write_text("kept")
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, step)
            try:
                save(new, folder)
                finished = True
            except Killed:
                pass
        found = load(folder)
        assert same(found, old) or same(found, new), f"killed at step {step}"
        outcomes.append(same(found, new))
        save(old, folder)
        assert same(load(folder), old)
        assert (folder / "history.jsonl").read_text() == "kept"
        assert not list(folder.glob(".new*"))
        step += 1
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) > 10
    assert outcomes.count(True) > 5


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    old, new = make(seed=1), make(seed=2)
    save(old, tmp_path)
    longest = max((tmp_path / name).stat().st_size for name in FILES)
    sizes = sorted(
        {0, 1, *range(0, longest, 600), *((tmp_path / n).stat().st_size - 1 for n in FILES)}
    )
    for size in sizes:
        with disk_limit(size), pytest.raises(CheckpointError, match="could not be saved"):
            save(new, tmp_path)
        assert same(load(tmp_path), old)
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*FILES, CARD])
    with disk_limit(longest + 1000):
        save(new, tmp_path)
    assert same(load(tmp_path), new)


def test_a_killed_process_leaves_a_complete_model(tmp_path: Path) -> None:
    """The real thing: a process that saves two models in turn is killed."""
    one, two, folder = make(seed=1), make(seed=2), tmp_path / "model"
    save(one, tmp_path / "one")
    save(two, tmp_path / "two")
    save(one, folder)
    code = (
        "import sys; from cfnade.checkpoint import load, save\n"
        "one, two = load(sys.argv[1]), load(sys.argv[2])\n"
        "print('ready', flush=True)\n"
        "while True: save(two, sys.argv[3]); save(one, sys.argv[3])\n"
    )
    given = [str(tmp_path / "one"), str(tmp_path / "two"), str(folder)]
    process = subprocess.Popen([sys.executable, "-c", code, *given], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.11)
        # Whoever reads while another writes gets one of the two as well.
        found = load(folder)
        assert same(found, one) or same(found, two)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = load(folder)
    assert same(found, one) or same(found, two)


def test_loading_during_a_save_gives_the_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make(seed=1), make(seed=2)
    save(old, tmp_path)
    saves = iter([new])

    def save_then_verify(*given: Any) -> None:
        for model in saves:  # after model.json is read, before the files are
            save(model, tmp_path)
        manifest.verify_files(*given)

    loading = import_module("cfnade.checkpoint.load")  # the package has a function of this name
    monkeypatch.setattr(loading, "verify_files", save_then_verify)
    assert same(load(tmp_path), new)
