"""A checkpoint folder: the same bits again, all or nothing, and nothing wrong is let in."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.choice.given import some_choice, some_picks

from cfnade.calibration import Calibration
from cfnade.checkpoint import CHOICE, KEPT, load, manifest, save, without_context
from cfnade.checkpoint import FILES as ALL_FILES
from cfnade.checkpoint.card import CARD
from cfnade.choice import Choice
from cfnade.choice.linear import Linear
from cfnade.choice.picks import Picks
from cfnade.config import TrainingConfig
from cfnade.data.array_files import digest_file, digest_text
from cfnade.data.build import Options, build
from cfnade.data.columns import Columns
from cfnade.data.dataset import Dataset
from cfnade.exceptions import CheckpointError
from cfnade.fitted import FittedModel, trained_on
from cfnade.sides import new_member, side_names

FILES = [name for name in ALL_FILES if name not in (KEPT, CHOICE)]  # what every model has
KINDS: dict[str, dict[str, Any]] = {
    "user": {},
    "user-factored-unshared": {"shared": False, "factors": 3},
    "user-seeds": {"seeds": 3},
    "item-deep": {"side": "item", "hidden": (6, 5, 4), "context_scale": "sqrt"},
    "both": {"side": "both"},
    "both-time-seeds": {"side": "both", "time": True, "seeds": 2},
    "user-choice": {"choice": True},
}


def ratings(*, texts: bool = False, titles: bool = True) -> Dataset:
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.choice(9 * 12, 60, replace=False), 12)
    values = rng.integers(1, 11, 60) / 2
    names = {i: f"Film {i} – é" for i in range(11)}
    return build(
        Columns(
            users=pl.Series([f"u{u}" for u in users]) if texts else users * 7,
            items=pl.Series([f"i{i}" for i in items]) if texts else items,
            values=values,
            times=np.arange(60) + 10**9,
            titles=({f"i{i}": t for i, t in names.items()} if texts else names) if titles else {},
            genres={1: "Comedy|Drama"} if titles and not texts else {},
            source="made up",
        ),
        Options(scale="0.5-5/0.5"),
    )


def make(
    side: str = "user",
    *,
    seed: int = 0,
    seeds: int = 1,
    time: bool = False,
    data: Dataset | None = None,
    choice: bool = False,
    **fields: Any,
) -> FittedModel:
    context = ratings() if data is None else data
    names, fields = side_names(side, time=time), {"hidden": (6,)} | fields
    members = tuple(
        new_member(names, context, fields, TrainingConfig()).eval() for _ in range(seeds)
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for member in members:
            for parameter in member.parameters():
                parameter.normal_(0.0, 0.5, generator=generator)
    counts = trained_on(members[0].axes, context)
    facts = {"context": "train + valid", "seed": seed, "metrics": {"rmse": 0.8312345678901234}}
    picked = some_choice(Picks.of(context)) if choice else None
    return FittedModel(
        members, side, context, counts, Calibration(1.25), True, facts, choice=picked
    )


def weights(fitted: FittedModel) -> list[dict[str, bytes]]:
    return [
        {name: tensor.numpy().tobytes() for name, tensor in member.state_dict().items()}
        for member in fitted.members
    ]


def kept(fitted: FittedModel) -> list[bytes]:
    """What its sides keep beside their weights."""
    sides = [side for member in fitted.members for side in member.sides.values()]
    return [array.tobytes() for side in sides for array in side.arrays().values()]


def picked(fitted: FittedModel) -> Any:
    """What it knows of picks."""
    if fitted.choice is None:
        return None
    tables = fitted.choice.tables().items()
    return fitted.choice.to_dict(), {name: table.tobytes() for name, table in tables}


def same(one: FittedModel, other: FittedModel) -> bool:
    fields = [
        (f.side, f.calibration, f.has_context, f.facts, [m.to_dict() for m in f.members])
        for f in (one, other)
    ]
    return (
        weights(one) == weights(other)
        and kept(one) == kept(other)
        and picked(one) == picked(other)
        and fields[0] == fields[1]
        and one.context == other.context
        and set(one.trained_on) == set(other.trained_on)
        and all(
            np.array_equal(one.trained_on[axis], other.trained_on[axis]) for axis in one.trained_on
        )
    )


# -- there and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_loading_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    fitted = make(**KINDS[kind])
    save(fitted, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert same(fitted, loaded)
    assert loaded.context.fingerprint == fitted.context.fingerprint
    assert not any(member.training for member in loaded.members)
    names = {path.name for path in (tmp_path / "model").iterdir()}
    more = {KEPT} if "time" in kind else {CHOICE} if "choice" in kind else set()
    assert names == {*FILES, *more, CARD}
    assert kept(fitted) or "time" not in kind


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("titles", [False, True])
def test_ids_and_titles_come_back(tmp_path: Path, texts: bool, titles: bool) -> None:
    data = ratings(texts=texts, titles=titles)
    save(make(data=data), tmp_path)
    assert load(tmp_path).context == data
    frame = pl.read_parquet(tmp_path / "items.parquet")
    assert frame["id"].to_list() == data.item_ids.tolist()
    assert ("title" in frame.columns) == titles


def test_binned_scales_and_models_without_calibration_come_back(tmp_path: Path) -> None:
    columns = Columns(np.arange(4), np.arange(4), np.array([0.1, 0.5, 2.5, 9.0]))
    fitted = replace(make(data=build(columns, Options(bins=[0, 1, 2, 10]))), calibration=None)
    save(fitted, tmp_path)
    assert same(load(tmp_path), fitted)
    assert load(tmp_path).context.scale.edges == (1.0, 2.0)


def test_weights_are_mapped_and_what_is_done_to_them_stays_in_memory(tmp_path: Path) -> None:
    save(make(), tmp_path)
    before, loaded = (tmp_path / "model.safetensors").read_bytes(), load(tmp_path)
    if sys.platform == "linux":
        assert str(tmp_path / "model.safetensors") in Path("/proc/self/maps").read_text()
    with torch.no_grad():
        for parameter in loaded.members[0].parameters():
            parameter.zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert same(load(tmp_path), make())


def test_a_loaded_model_stays_what_it_is_when_another_is_saved_in_its_place(tmp_path: Path) -> None:
    save(make(), tmp_path)
    loaded = load(tmp_path)
    save(make(seed=1), tmp_path)
    assert same(loaded, make())


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(make(), tmp_path / name)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_model_json_can_be_read_by_a_person(tmp_path: Path) -> None:
    save(make(hidden=(6, 5)), tmp_path)
    text = (tmp_path / "model.json").read_text()
    assert text.count("\n") > 20
    content = json.loads(text)
    assert list(content)[:3] == ["format", "version", "side"]
    assert list(content)[-1] == "check"
    assert content["format"] == "cfnade-checkpoint"
    assert content["version"] == 5
    assert content["choice"] is None
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
def test_without_context_nothing_of_the_rows_remains(
    tmp_path: Path, side: str, dropped: str
) -> None:
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
    assert same(without_context(fitted), found)
    save(found, tmp_path / "again")
    assert same(load(tmp_path / "again"), found)


def test_a_model_that_reads_items_too_is_not_shared_without_its_ratings(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be shared without them"):
        save(make("both"), tmp_path, with_context=False)
    assert list(tmp_path.iterdir()) == []


# -- all or nothing --------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9: from then on nothing reaches the disk, clean-up code included."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    done = 0

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            if done >= step:
                raise Killed
            done += 1
            return real(*args, **kwargs)

        return call

    for name in ("rename", "replace", "fsync", "mkdir", "rmdir", "unlink", "open", "chmod"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))


def test_a_kill_at_any_step_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    """The new one has fewer files, so some are replaced and some must go."""
    old, new = make(seed=1), without_context(make(seed=2))
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


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Writes beyond that many bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    old, new = make(seed=1), make(seed=2)
    save(old, tmp_path)
    longest = max((tmp_path / name).stat().st_size for name in FILES)
    sizes = sorted(
        {0, 1, *range(0, longest, 600), *((tmp_path / n).stat().st_size - 1 for n in FILES)}
    )
    for size in sizes:
        with files_no_longer_than(size), pytest.raises(CheckpointError, match="could not be saved"):
            save(new, tmp_path)
        assert same(load(tmp_path), old)
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*FILES, CARD])
    with files_no_longer_than(longest + 1000):
        save(new, tmp_path)
    assert same(load(tmp_path), new)


def test_killed_processes_leave_a_whole_model(tmp_path: Path) -> None:
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


def test_a_save_in_the_midst_of_loading_gives_the_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make(seed=1), make(seed=2)
    save(old, tmp_path)
    saves = iter([new])

    def check_files(*given: Any) -> None:
        for fitted in saves:  # after model.json was read, before the files are
            save(fitted, tmp_path)
        manifest.check_files(*given)

    monkeypatch.setattr("cfnade.checkpoint.check_files", check_files)
    assert same(load(tmp_path), new)


# -- wrong folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, CHOICE])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, name: str) -> None:
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


@pytest.mark.parametrize("name", [*FILES, CHOICE])
def test_a_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
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


@pytest.mark.parametrize("name", [*FILES, CHOICE])
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("version", value=6), "version 6 of the format.*install a newer cfnade"),
        (put("version", value="1"), "no version of the format"),
        (put("version", value=True), "no version of the format"),
        (put("format", value="something"), "was not written by cfnade"),
        (put("members", 0, "user", "columns", value=10**12), "too large for any machine"),
        (put("members", 0, "user", "hidden", value=[7]), "shape"),
        (put("members", 0, "user", "hidden", value="x"), "does not describe a model"),
        (put("members", 0, "user", "hidden", value=None), "hidden"),
        (put("members", 0, "user", "factors", value=3), "arrays"),
        (put("members", 0, "user", "depth", value=3), "unknown field 'depth'"),
        (put("members", 0, "user", value={}), "the field 'columns'"),
        (put("members", 0, "user", value=3), "does not describe a model"),
        (put("members", 0, value={}), "a member has no sides"),
        (put("members", 0, value=["user"]), "does not describe a model"),
        (put("members", 0, value={"dreams": {}}), "unknown side 'dreams'"),
        (put("members", 0, "time", value={"features": 3}), "3 time features; this version"),
        (put("members", 0, "item", value={"columns": 9, "levels": 10}), "arrays"),
        (put("members", value=[]), "does not describe|arrays"),
        (put("members", value=7), "does not describe a model"),
        (put("scale", value=None), "does not describe a model"),
        (put("scale", "values", value=[1, 2, 3]), "levels"),
        (put("scale", "values", value=[3, 2, 1]), "rising"),
        (put("calibration", value={"heat": 1}), "calibration"),
        (put("calibration", value=3), "does not describe a model"),
        (put("context", value=None), "does not describe a model"),
        (put("context", "included", value=False), "lists the files"),
        (put("files", "../secret", value={}), "lists the file '../secret'"),
        (put("files", "model.safetensors", value=None), "does not describe a model"),
        (put("files", value=3), "does not describe a model"),
        (put("extra", value=3), "damaged or edited"),
    ],
)
def test_a_model_json_that_lies_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    save(make(), tmp_path)
    forge(tmp_path, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = {n: t.clone() for n, t in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    forge(folder, lambda _: None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["0.user.W"].view(-1)[3].fill_(float("nan")), "W holds NaN"),
        (lambda t: t["0.user.b"].view(-1)[0].fill_(float("inf")), "b holds NaN or infinity"),
        (
            lambda t: t.update({"0.user.W": t["0.user.W"][:, :, :3].contiguous()}),
            "W is .* of shape .*, 3",
        ),
        (lambda t: t.update({"0.user.W": t["0.user.W"].double()}), "float64"),
        (lambda t: t.pop("0.user.V"), "holds the arrays"),
        (lambda t: t.update(extra=torch.zeros(1)), "extra"),
        (lambda t: t["trained_on.item"].fill_(-1), "training counts must count"),
        (lambda t: t["trained_on.item"].zero_(), "training counts must count"),
        (lambda t: t.pop("trained_on.item"), "training counts are of"),
        (lambda t: t.update({"trained_on.user": torch.ones(9, 10)}), "training counts are of"),
        (lambda t: t.update({"trained_on.item": torch.ones(3, 5)}), "training counts are float32"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], Any], message: str
) -> None:
    save(make(), tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"id": [1, 2]}), "2 columns, the model"),
        (pl.DataFrame({"id": [2, 1]}), "do not rise"),
        (pl.DataFrame({"id": [1.5, 2.5]}), "holds columns"),
        (pl.DataFrame({"id": [1, None]}), "no gaps"),
        (pl.DataFrame({"name": ["x"]}), "holds columns"),
    ],
)
def test_id_tables_that_do_not_fit_are_refused(
    tmp_path: Path, frame: pl.DataFrame, message: str
) -> None:
    save(make(), tmp_path)
    frame.write_parquet(tmp_path / "items.parquet")
    forge(tmp_path, lambda _: None)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("name", ["items.parquet", "model.safetensors", "context.safetensors"])
def test_rubbish_with_a_right_digest_is_refused(tmp_path: Path, name: str) -> None:
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
        ('{"model_type": "bert"}', "was not written by cfnade"),
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


def test_someone_elses_table_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "users.parquet").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds users\.parquet but no model\.json"):
        save(make(), tmp_path)
    assert (tmp_path / "users.parquet").read_text() == "mine"


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no folder"):
        load(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"holds no model\.json"):
        load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is no folder"):
        load(tmp_path / "file")
    with pytest.raises(CheckpointError, match="could not be saved"):
        save(make(), tmp_path / "file")


@pytest.mark.parametrize(
    ("facts", "message"),
    [({"rmse": float("nan")}, "plain finite values"), ({"x": object()}, "plain finite values")],
)
def test_facts_that_are_not_json_are_refused(
    tmp_path: Path, facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        save(replace(make(), facts=facts), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_numbers_as_names_in_facts_become_texts(tmp_path: Path) -> None:
    save(replace(make(), facts={"by_known": {1: 0.9, 20: 0.8}}), tmp_path)
    assert load(tmp_path).facts == {"by_known": {"1": 0.9, "20": 0.8}}


def test_a_diverged_model_is_not_saved(tmp_path: Path) -> None:
    save(make(), tmp_path)
    bad = make()
    with torch.no_grad():
        next(bad.members[0].parameters()).view(-1)[0] = float("nan")
    with pytest.raises(CheckpointError, match="W holds NaN"):
        save(bad, tmp_path)
    assert same(load(tmp_path), make())


LINEAR = ("choice", "linear", "fields")
NADE = ("choice", "nade", "fields")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("choice", value=None), "lists the files"),
        (put("choice", value={}), "arrays|no sides"),
        (put("choice", value=3), "does not describe a model"),
        (
            put("choice", "dreams", value={"weight": 1.0, "fields": {}}),
            "unknown side 'dreams' of a",
        ),
        (put("choice", "linear", value={}), "does not describe a model"),
        (put("choice", "linear", "weight", value="much"), "does not describe a model"),
        (put(*LINEAR, "columns", value=13), "shape"),
        (put(*LINEAR, "columns", value=10**12), "shape"),
        (put(*LINEAR, "penalty", value=-1.0), "penalty"),
        (put(*LINEAR, "neighbours", value=3), "arrays"),
        (put(*NADE, "columns", value=10**15), "does not describe a model|shape"),
        (put(*NADE, "networks", value=10**9), "networks"),
        (put(*NADE, "networks", value=0), "networks"),
        (put(*NADE, "depth", value=2), "not those of a choice"),
        (lambda content: content["files"].pop(CHOICE), "lists no file of that"),
    ],
)
def test_a_choice_that_lies_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    save(make(choice=True), tmp_path)
    forge(tmp_path, change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


def test_sides_of_a_choice_know_the_same_items(tmp_path: Path) -> None:
    fitted = make(choice=True)
    assert fitted.choice is not None
    fewer = some_choice(some_picks(columns=9)).sides["linear"]
    sides = {**fitted.choice.sides, "linear": fewer}
    other = replace(fitted, choice=replace(fitted.choice, sides=sides))
    with pytest.raises(CheckpointError, match="choice's linear side knows 9 items, the model 12"):
        save(other, tmp_path)


def test_a_named_item_outside_the_catalogue_is_refused(tmp_path: Path) -> None:
    """Kernels would write where it points."""
    fitted = make()
    side = Linear.fit(Picks.of(fitted.context), penalty=2.0, neighbours=4)
    assert fitted.choice is None
    save(replace(fitted, choice=Choice({"linear": side}, {"linear": 1.0})), tmp_path)
    arrays = load_file(tmp_path / CHOICE)
    for wrong in (12, 2**31 - 1):
        arrays["linear.of"][3, 0] = wrong
        save_file(arrays, tmp_path / CHOICE)
        forge(tmp_path, lambda _: None)
        with pytest.raises(CheckpointError, match="does not describe a model"):
            load(tmp_path)


@pytest.mark.parametrize("version", [3, 4])
def test_versions_that_knew_no_picks_still_load(tmp_path: Path, version: int) -> None:
    fitted = make()
    save(fitted, tmp_path)

    def older(content: dict[str, Any]) -> None:
        content["version"] = version
        del content["choice"]
        if version < 4:
            del content["shares"]

    forge(tmp_path, older)
    assert same(load(tmp_path), fitted)


def test_an_item_based_model_is_shared_without_its_picks(tmp_path: Path) -> None:
    save(make("item", choice=True), tmp_path, with_context=False)
    loaded = load(tmp_path)
    assert loaded.choice is None
    save(make("user", choice=True), tmp_path, with_context=False)
    assert load(tmp_path).choice is not None
