"""A folder's files change together, whatever happens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.crash import Killed, kill_at

from cfnade.checkpoint.folder import commit_files, recover, resolve_file

NAMES = ("a", "b", "c")


def write(folder: Path, contents: dict[str, str]) -> None:
    with commit_files(folder, NAMES) as part:
        for name, text in contents.items():
            (part / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    """What a reader finds; a name that the newest files do without does not count."""
    gone = {name for name in NAMES if (folder / ".new" / f"{name}.gone").exists()}
    paths = {name: resolve_file(folder, name) for name in NAMES}
    return {n: p.read_text() for n, p in paths.items() if p.exists() and n not in gone}


OLD, NEW = {"a": "old a", "b": "old b"}, {"b": "new b", "c": "new c"}


def test_files_are_replaced_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("{}")
    write(tmp_path, OLD)
    write(tmp_path, NEW)
    assert read(tmp_path) == NEW
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "c", "history.jsonl"]


@pytest.mark.parametrize("before", [{}, OLD], ids=["first", "second"])
def test_a_kill_at_any_step_leaves_all_old_or_all_new(
    tmp_path: Path, before: dict[str, str]
) -> None:
    outcomes, step, finished = [], 0, False
    while not finished:
        folder = tmp_path / str(step)
        if before:
            write(folder, before)
        with pytest.MonkeyPatch.context() as patch:
            log = kill_at(patch, step)
            try:
                write(folder, NEW)
                finished = True
            except Killed:
                pass
        found = read(folder)
        assert found in (before, NEW), f"killed before step {step} {log[-1:]}"
        if folder.is_dir():
            recover(folder)
            assert read(folder) == found
            assert not list(folder.glob(".new*"))
        write(folder, {"a": "third"})
        assert read(folder) == {"a": "third"}
        outcomes.append(found == NEW)
        step += 1
    # The change happens once: old, old, … new, new; and both kinds were met before the end.
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) > 4
    assert outcomes.count(True) > 4


def fail_half_way(folder: Path) -> None:
    with commit_files(folder, NAMES) as part:
        (part / "a").write_text("half")
        raise OSError(28, "no space")


def test_an_error_while_writing_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    with pytest.raises(OSError, match="no space"):
        fail_half_way(tmp_path)
    assert read(tmp_path) == OLD
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
