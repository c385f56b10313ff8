"""Damaged, forged and foreign folders are refused with one error that names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.checkpoint.cases import make, same
from tests.implicit.cases import some_model, some_rows

from cfnade.checkpoint import load, save
from cfnade.checkpoint.manifest import FILES
from cfnade.components.optimizers import member_network
from cfnade.exceptions import CheckpointError
from cfnade.utils.safetensors_io import Arrays, digest_file, digest_text, open_arrays, write_arrays

# -- wrong folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    save(make(choice=True), tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    cuts = {0, 1, 7, 8, 9, len(whole) - 2, *np.linspace(1, len(whole) - 2, 8).astype(int).tolist()}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=name):
            load(tmp_path)
    path.write_bytes(whole)
    load(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_are_detected(tmp_path: Path, name: str) -> None:
    save(make(choice=True), tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for place in rng.integers(0, len(whole) * 8, 20).tolist():
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << (place % 8)
        path.write_bytes(bytes(damaged))
        if name == "model.json" and as_json(bytes(damaged)) == as_json(whole):
            assert same(
                load(tmp_path), make(choice=True)
            )  # white space between its fields means nothing
        else:
            with pytest.raises(CheckpointError, match=name):
                load(tmp_path)


def as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    save(make(choice=True), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load(tmp_path)


def test_files_of_two_saves_do_not_mix(tmp_path: Path) -> None:
    save(make(seed=1), tmp_path / "a")
    save(make(seed=2), tmp_path / "b")
    shutil.copy(tmp_path / "b" / "model.safetensors", tmp_path / "a")
    with pytest.raises(CheckpointError, match="comes from another save"):
        load(tmp_path / "a")


def forge(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change model.json and make its digests right again."""
    content = json.loads((folder / "model.json").read_text())
    for name, said in content["files"].items():
        path = folder / name
        if path.exists():
            said |= {"bytes": path.stat().st_size, "xxh3_128": digest_file(path)}
    change(content)
    content.pop("check", None)
    content["check"] = digest_text(json.dumps(content, sort_keys=True))
    (folder / "model.json").write_text(json.dumps(content))


def put(*keys: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


OTHER_FEATURES = {"levels": 5, "users": 9, "items": 8, "ratings": 40, "features": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("version", value=2), "another format than that of .*; train the model again"),
        (put("version", value=True), "another format"),
        (put("format", value="cfnade-checkpoint"), "another format"),
        (put("format", value="something"), "was not written by cfnade"),
        (put("members", 0, "user", "columns", value=10**12), "too large for any machine"),
        (put("members", 0, "user", "hidden", value=[7]), "shape"),
        (put("members", 0, "user", "factors", value=3), "arrays"),
        (put("members", 0, "user", "depth", value=3), "unexpected .* 'depth'"),
        (put("members", 0, "user", value={}), "missing .* 'columns'"),
        (put("members", 0, value={}), "a member has no components"),
        (put("members", 0, value={"dreams": {}}), "unknown component 'dreams'"),
        (put("members", 0, "time", value=OTHER_FEATURES), "3 time features; this version"),
        (put("members", 0, "item", value={"columns": 9, "levels": 10}), "arrays"),
        (put("members", value=[]), "does not describe|arrays"),
        (put("files", value=3), "does not describe a model"),
        (put("scale", value=None), "does not describe a model"),
        (put("scale", "values", value=[1, 2, 3]), "levels"),
        (put("scale", "values", value=[3, 2, 1]), "ascending"),
        (put("calibration", value={"heat": 1}), "calibration"),
        (put("context", "included", value=False), "lists the files"),
        (put("files", "../secret", value={}), "lists the file '../secret'"),
        (put("files", "model.safetensors", value=None), "does not describe a model"),
    ],
)
def test_an_inconsistent_model_json_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    save(make(), tmp_path)
    forge(tmp_path, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def rewrite(folder: Path, change: Callable[[Arrays], Any]) -> None:
    """Change the arrays of the model and make all digests right again."""
    path = folder / "model.safetensors"
    arrays = {name: array.copy() for name, array in open_arrays(path)[0].items()}
    change(arrays)
    write_arrays(path, arrays, {})
    forge(folder, lambda _: None)


def drop(name: str) -> Callable[[Arrays], Any]:
    return lambda arrays: arrays.pop(name)


def replaced(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], Any]:
    return lambda arrays: arrays.update({name: change(arrays.get(name))})


W, COUNTS = "members/0/user/W", "training_counts/item"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(W, lambda array: array[:, :, :3]), "W is .* of shape .*, 3"),
        (replaced(W, lambda array: array.astype(np.float64)), "float64"),
        (drop("members/0/user/V"), "holds the arrays"),
        (replaced("extra", lambda _: np.zeros(1, np.float32)), "extra"),
        (replaced(COUNTS, lambda array: -np.ones_like(array)), "training counts must count"),
        (replaced(COUNTS, np.zeros_like), "training counts must count"),
        (replaced("training_counts/user", lambda _: np.ones((9, 10))), "training counts are of"),
        (replaced(COUNTS, lambda _: np.ones((3, 5))), "training counts are float64"),
    ],
)
def test_inconsistent_arrays_are_refused(
    tmp_path: Path, change: Callable[[Arrays], Any], message: str
) -> None:
    save(make(), tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"), [("users", 9), ("items", 12), ("levels", 10), ("users", -1)]
)
def test_indices_out_of_range_are_refused(tmp_path: Path, column: str, value: int) -> None:
    """Kernels use them without checking."""
    fitted = make()
    save(fitted, tmp_path)
    path = tmp_path / "context.safetensors"
    arrays, metadata = open_arrays(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    arrays[column][3] = value
    write_arrays(path, arrays, metadata)
    forge(tmp_path, lambda _: None)
    with pytest.raises(CheckpointError, match=f"the context's {column} exceed"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"id": [1, 2]}), "2 columns, the model"),
        (pl.DataFrame({"id": [2, 1]}), "are not sorted"),
        (pl.DataFrame({"id": [1.5, 2.5]}), "holds columns"),
        (pl.DataFrame({"id": [1, None]}), "without missing values"),
    ],
)
def test_inconsistent_id_tables_are_refused(
    tmp_path: Path, frame: pl.DataFrame, message: str
) -> None:
    save(make(), tmp_path)
    frame.write_parquet(tmp_path / "items.parquet")
    forge(tmp_path, lambda _: None)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("name", ["items.parquet", "model.safetensors", "context.safetensors"])
def test_invalid_files_with_a_valid_digest_are_refused(tmp_path: Path, name: str) -> None:
    save(make(), tmp_path)
    for rubbish in (b"", b"PAR1", b"\xff" * 64, b"\x08\0\0\0\0\0\0\0{}      "):
        (tmp_path / name).write_bytes(rubbish)
        forge(tmp_path, lambda _: None)
        with pytest.raises(CheckpointError, match=name):
            load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[1, 2]", "was not written by cfnade"),
        ("[" * 100_000, "is not JSON"),
        ("\xff\xfe", "is not JSON"),
    ],
)
def test_foreign_folders_are_refused_and_never_overwritten(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "model.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="what is there would be lost"):
        save(make(), tmp_path)
    assert (tmp_path / "model.json").read_bytes() == text.encode("latin-1")


def test_foreign_tables_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "users.parquet").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds users\.parquet but no model\.json"):
        save(make(), tmp_path)
    assert (tmp_path / "users.parquet").read_text() == "mine"


def test_paths_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder"):
        load(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"holds no model\.json"):
        load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is not a folder"):
        load(tmp_path / "file")
    with pytest.raises(CheckpointError, match="could not be saved"):
        save(make(), tmp_path / "file")


@pytest.mark.parametrize("facts", [{"rmse": float("nan")}, {"x": object()}])
def test_metadata_must_be_json(tmp_path: Path, facts: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="plain finite values"):
        save(replace(make(), metadata=facts), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_numeric_keys_of_metadata_become_strings(tmp_path: Path) -> None:
    save(replace(make(), metadata={"by_known": {1: 0.9, 20: 0.8}}), tmp_path)
    assert load(tmp_path).metadata == {"by_known": {"1": 0.9, "20": 0.8}}


def test_a_diverged_model_is_not_saved(tmp_path: Path) -> None:
    save(make(), tmp_path)
    for value in (float("nan"), float("inf")):
        bad = make()
        with torch.no_grad():
            next(member_network(bad.members[0]).parameters()).view(-1)[0] = value
        with pytest.raises(CheckpointError, match="W contains NaN or infinity"):
            save(bad, tmp_path)
    assert same(load(tmp_path), make())


PARTS = ("implicit", "components")
EASE = (*PARTS, "ease", "config")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("implicit", value={}), "does not describe a model"),
        (put(*PARTS, "genre", value={"weight": 1.0, "config": {}}), "unknown implicit component"),
        (put(*PARTS, "ease", "weight", value="much"), "does not describe a model"),
        (put(*EASE, "columns", value=13), "shape"),
        (put(*EASE, "penalty", value=-1.0), "penalty"),
        (put(*EASE, "rank", value=3), "arrays"),
        (lambda content: content["implicit"]["components"].pop("popularity"), "arrays"),
    ],
)
def test_an_inconsistent_interaction_model_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    save(make(choice=True), tmp_path)
    forge(tmp_path, change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


def test_implicit_components_must_have_the_items_of_the_model(tmp_path: Path) -> None:
    fitted = make(choice=True)
    model = fitted.interaction_model
    assert model is not None
    fewer = some_model(some_rows(columns=9)).components["ease"]
    other = replace(model, components={**model.components, "ease": fewer})
    with pytest.raises(CheckpointError, match="component ease has 9 items, the model 12"):
        save(replace(fitted, interaction_model=other), tmp_path)


def test_neighbors_out_of_range_are_refused(tmp_path: Path) -> None:
    """Kernels would write where it points."""
    save(make(choice=True), tmp_path)
    for wrong in (12, 2**31 - 1, -2):

        def point_elsewhere(arrays: Arrays, wrong: int = wrong) -> None:
            arrays["implicit/local/neighbors"][3, 0] = wrong

        rewrite(tmp_path, point_elsewhere)
        with pytest.raises(CheckpointError, match="outside of the catalog"):
            load(tmp_path)


def test_an_item_based_model_without_context_has_no_interaction_model(tmp_path: Path) -> None:
    save(make("item", choice=True), tmp_path, with_context=False)
    loaded = load(tmp_path)
    assert loaded.interaction_model is None
    save(make("user", choice=True), tmp_path, with_context=False)
    assert load(tmp_path).interaction_model is not None
