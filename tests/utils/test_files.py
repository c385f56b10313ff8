from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cfnade.utils.files import LockedError, atomic_write, exclusive, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_atomic_write_replaces_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "f.txt"
    write_text(path, "old ✓")
    with path.open(encoding="utf-8") as reader, atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text(encoding="utf-8") == reader.read() == "old ✓"
    assert path.read_text() == "new"
    assert names(path.parent) == ["f.txt"]


def fail_inside(path: Path, error: type[BaseException]) -> None:
    with atomic_write(path) as file:
        file.write(b"half of the new")
        file.flush()
        raise error("on purpose")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failure_inside_leaves_the_old_file(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_text(path, "old")
    with pytest.raises(error, match="on purpose"):
        fail_inside(path, error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["f"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "f", "x")
        assert os.umask(0o027) == 0o027  # as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_concurrent_writers_leave_one_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    texts = [str(i) * 50_000 for i in range(8)]
    threads = [threading.Thread(target=write_text, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert names(tmp_path) == ["f"]


# -- locks ----------------------------------------------------------------------------------------


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    """Each adds 1 to a number, reading and writing: no increment is lost if they take turns."""
    number, lock = tmp_path / "number", tmp_path / "lock"
    number.write_text("0")
    code = (
        "import sys; from pathlib import Path\n"
        "from cfnade.utils.files import LockedError, exclusive\n"
        "number, lock, count = Path(sys.argv[1]), Path(sys.argv[2]), 0\n"
        "while count < 200:\n"
        "    try:\n"
        "        with exclusive(lock):\n"
        "            number.write_text(str(int(number.read_text()) + 1)); count += 1\n"
        "    except LockedError: pass\n"
    )
    command = [sys.executable, "-c", code, str(number), str(lock)]
    running = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0] * 4
    assert number.read_text() == "800"
    assert not lock.exists()


def test_the_holder_of_a_lock_is_named(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock"):
        refused = pytest.raises(LockedError, match=rf"^process {os.getpid()} on ")
        with refused, exclusive(tmp_path / "lock"):
            pass
        assert (tmp_path / "lock").exists()
    with exclusive(tmp_path / "lock"):
        pass


def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "cfnade"), exclusive(tmp_path / "lock"):
        pass
    assert "this file system has no locks" in caplog.text
