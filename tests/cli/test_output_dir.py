"""The folder of a run: its own while that lives, small when it is done, never lost by mistake."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.cli.forks import Server
from tests.cli.test_train import options, wait_for, weights

from cfnade.checkpoint import load
from cfnade.cli.output_dir import LOCK, begin_run
from cfnade.cli.run_config import RunConfig
from cfnade.training import state
from cfnade.utils.files import atomic_write

Shell = Any
STATE = "training.safetensors"
CONFIG = RunConfig(data="ratings.csv", recipe="default", side="user")
LONG = 100_000  # epochs: more than any test waits for


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if Ctrl-C were pressed in the first epoch."""
    monkeypatch.setattr("cfnade.cli.train.interruptible", lambda: nullcontext(lambda: True))
    return monkeypatch


# -- small when done ------------------------------------------------------------------------------


def test_a_finished_run_keeps_its_model_and_not_its_state(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "model", tmp_path / "kept"
    for folder, more in ((out, []), (kept, ["--keep-state"])):
        done = shell("train", ratings_file, *options(folder, 2), "--n-seeds", "2", *more)
        assert done.code == 0, done.err
    assert not list(out.rglob(f"*{STATE}*"))
    assert not list(out.glob("seed-*"))
    assert {path.parent.name for path in kept.rglob(STATE)} == {"kept", "seed-1"}
    assert weights(out) == weights(kept)

    before = weights(out)
    again = shell("train", "--resume", "--out", out)
    assert again.code == 1
    assert "the run is finished, so there is nothing to resume" in again.said
    assert "--keep-state keeps it" in again.said
    assert f"give --init-model {out} and another folder with --out" in again.said
    assert weights(out) == before
    assert shell("train", "--resume", "--out", kept).code == 0
    assert weights(kept) == before


def test_what_kills_left_of_a_state_goes_with_it(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    out.mkdir()
    (out / f".{STATE}.0123456789abcdef.part").write_bytes(b"half a state")
    (out / "notes.txt").write_text("mine")
    assert shell("train", ratings_file, *options(out, 1)).code == 0
    assert not list(out.glob(f".{STATE}*"))
    assert (out / "notes.txt").read_text() == "mine"


def test_a_run_stopped_in_its_refit_is_not_finished(
    shell: Shell, ratings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "model"
    assert shell("train", ratings_file, *options(whole, 2), "--refit").code == 0
    history = out / "history.jsonl"

    def pressed() -> bool:
        return len(history.read_text().splitlines()) == 2  # the run's epochs are done

    with monkeypatch.context() as patched:
        patched.setattr("cfnade.cli.train.interruptible", lambda: nullcontext(pressed))
        done = shell("train", ratings_file, *options(out, 2), "--refit")
    assert done.code == 0, done.err
    assert load(out).metadata["best_epoch"] == 2  # so the refit was stopped after the first of two
    assert "stopped; continue with" in done.out
    assert shell("train", "--resume", "--out", out).code == 0
    assert weights(out) == weights(whole)


# -- never lost by mistake ------------------------------------------------------------------------


def test_a_model_is_replaced_only_if_that_is_said_and_that_before_any_data_is_read(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    assert shell("train", ratings_file, *options(out, 1)).code == 0
    before = weights(out)
    for more in (["--seed", "5"], ["--init-model", str(out)]):
        refused = shell("train", "no-such-file.csv", *options(out, 1), *more)
        assert refused.code == 1
        assert f"{out}: holds a trained model; give --overwrite to replace it" in refused.said
        assert weights(out) == before
    for more in (["--seed", "5"], ["--init-model", str(out)]):
        before = weights(out)
        assert shell("train", ratings_file, *options(out, 1), *more, "--overwrite").code == 0
        assert weights(out) != before


def test_files_that_are_no_model_are_refused_before_training(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("{}")
    refused = shell("train", "no-such-file.csv", *options(tmp_path, 1), "--overwrite")
    assert refused.code == 1
    assert "was not written by cfnade" in refused.said
    assert (tmp_path / "model.json").read_text() == "{}"


# -- one run at a time ----------------------------------------------------------------------------


def test_a_second_run_is_refused_while_the_first_lives_and_not_after_a_kill(
    processes: Server, shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    first = processes.start("train", ratings_file, *options(out, LONG), "--save-every", "0")
    wait_for(out / STATE, first)
    try:
        for second in ([ratings_file, *options(out, 1), "--overwrite"], ["--resume", "--out", out]):
            refused = shell("train", *second)
            assert refused.code == 1
            assert f"{out}: process {first.pid} on " in refused.said
            assert "is training into it" in refused.said
        assert first.poll() is None
    finally:
        first.signal(signal.SIGKILL)
        first.end()
    assert (out / LOCK).exists()  # the file says nothing, the system held the lock
    done = shell("train", ratings_file, *options(out, 1), "--overwrite")
    assert done.code == 0, done.err
    assert not (out / LOCK).exists()


# -- room -----------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_in_the_middle_costs_nothing_that_was_saved(
    shell: Shell, ratings_file: Path, tmp_path: Path, stopped: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "model"
    assert "stopped" in shell("train", ratings_file, *options(out, 6)).out
    stopped.undo()
    assert shell("train", ratings_file, *options(whole, 6)).code == 0

    state = import_module("cfnade.training.state")
    saving = import_module("cfnade.checkpoint.save")  # the package has a function of this name
    for module, name in ((state, "write_state"), (saving, "write_manifest")):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, name, _full)
            done = shell("train", "--resume", "--out", out)
        assert done.code == 1
        assert "No space left on device" in done.said
        assert done.err.count("error: ") == 1
        assert f"continue with: cfnade train --resume --out {out}" in done.said
        load(out)  # that of the stopped run
    assert shell("train", "--resume", "--out", out).code == 0
    assert weights(out) == weights(whole)


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_run_that_begins_removes_only_states_of_earlier_runs(tmp_path: Path) -> None:
    """A member may save, or be saving, its state before another one takes the first step."""
    old, older = tmp_path / state.NAME, tmp_path / "seed-1" / state.NAME
    left = tmp_path / f".{state.NAME}.0123.part"
    older.parent.mkdir()
    for path in (old, older, left):
        path.write_bytes(b"old")
    earlier = state.state_times(tmp_path)
    saved, saving = tmp_path / "seed-2" / state.NAME, tmp_path / f".{state.NAME}.4567.part"
    saved.parent.mkdir()
    for path in (saved, saving):
        path.write_bytes(b"new")
    with atomic_write(old) as file:
        file.write(b"new")
    begin_run(tmp_path, CONFIG, earlier)
    assert not older.exists()
    assert not left.exists()
    assert [path.read_bytes() for path in (old, saved, saving)] == [b"new"] * 3
    begin_run(tmp_path, CONFIG)
    assert not state.state_files(tmp_path)
