"""Deliberate faults, one at a time: the tests that a fault names must fail.

    python tests/mutants/run.py                   # all of mutants.toml; `make mutants`
    python tests/mutants/run.py scorer            # those whose file has this in its name
    python tests/mutants/run.py --dead dead.txt   # goes on where it was interrupted

The package and its tests are copied to a temporary folder and changed there. A mutant is dead if a
test fails or never ends that passes without the fault, and alive if all pass. A fault that lets no
test begin says nothing: it is as bad as one alive.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "benchmarks", "examples", "experiments", "docs")
WORKERS = 2
PASSED, FAILED = 0, 1  # pytest's exit codes
SECONDS = 1800  # more than the tests of a fault take; each has a limit of its own


@dataclass(frozen=True)
class Mutant:
    """In `file`, which holds it once, `old` becomes `new`; `tests` must notice."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()}  →  {self.new.strip()}"

    @property
    def compiled(self) -> bool:
        """Whether compiled functions are made of it, or are kept by what it says."""
        return "kernels" in self.file or "njit" in (ROOT / self.file).read_text("utf-8")

    @property
    def test_texts(self) -> list[bytes]:
        return [(ROOT / test.partition("::")[0]).read_bytes() for test in self.tests.split()]

    @property
    def key(self) -> str:
        """Of the fault, its file and its tests as they are now."""
        texts = [repr(self).encode(), (ROOT / self.file).read_bytes(), *self.test_texts]
        return sha256(b"\0".join(texts)).hexdigest()


def mutants(part: str) -> list[Mutant]:
    """Those of mutants.toml whose file has `part` in its name; each must still apply. What compiles
    nothing and has short tests comes first."""
    text = (Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8")
    chosen = [Mutant(**one) for one in tomllib.loads(text)["mutant"] if part in one["file"]]
    if not chosen:
        sys.exit(f"no mutant is in a file with {part!r} in its name; see mutants.toml")
    for mutant in chosen:
        count = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if count != 1:
            sys.exit(f"{mutant}: stands {count} times in the file; it must stand there once")
    return sorted(chosen, key=lambda one: (one.compiled, sum(map(len, one.test_texts))))


def workshop(folder: Path) -> Path:
    """A copy of the project to break."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, *arguments: str, **env: str) -> int:
    """pytest's exit code in the copy, negative if it crashed or had to be killed."""
    # From a thread a test is ended even while a kernel runs. A plugin takes longer to import than
    # most faults to be noticed.
    how = ["-x", "-q", "--cache-clear", "--timeout-method=thread", "-p", "no:schemathesis"]
    started = subprocess.Popen(
        [sys.executable, "-m", "pytest", *how, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": ""} | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with suppress(subprocess.TimeoutExpired):
        started.wait(SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)  # and what a broken test left behind
    return started.wait()


def failed(folder: Path) -> list[str]:
    """The tests that just failed there; none if pytest could not write them down."""
    noted = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return list(json.loads(noted.read_text(encoding="utf-8"))) if noted.exists() else []


def noticed(mutant: Mutant, folder: Path) -> list[str] | None:
    """The tests that fail or crash with the fault; None if none began.

    Compiled code is made anew and thrown away: the copy's own stays as it was, and as the file gets
    its time back, it stays valid.
    """
    path, tests = folder / mutant.file, mutant.tests.split()
    whole, times = path.read_bytes(), path.stat()
    path.write_text(whole.decode().replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        with tempfile.TemporaryDirectory() as fresh:
            env = {"NUMBA_CACHE_DIR": fresh} if mutant.compiled else {}
            code = run_tests(folder, *tests, **env)
    finally:
        path.write_bytes(whole)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code == FAILED or code < 0:
        return failed(folder) or tests
    return [] if code == PASSED else None


class Trial:
    """Copies of the project, and what is known of the tests in them."""

    def __init__(self, folder: Path, dead: Path | None) -> None:
        self.folders: Queue[Path] = Queue()
        self.passing: set[str] = set()
        self.dead = dead
        for number in range(WORKERS):
            self.folders.put(workshop(folder / str(number)))

    def dies(self, mutant: Mutant) -> bool:
        folder, start = self.folders.get(), time.monotonic()
        tests = noticed(mutant, folder)
        dies = self.pass_without(tests, folder) if tests else False
        self.folders.put(folder)
        alive = "BREAKS THE TESTS" if tests is None else "ALIVE"
        how = "dead " if dies else "FAILS WITHOUT" if tests else alive
        print(f"{how} {time.monotonic() - start:4.0f} s  {mutant}", flush=True)
        if dies and self.dead:
            with self.dead.open("a") as file:
                file.write(mutant.key + "\n")
        return dies

    def pass_without(self, tests: list[str], folder: Path) -> bool:
        """Whether they pass without the fault."""
        new = [test for test in tests if test not in self.passing]
        if new and run_tests(folder, *new) != PASSED:
            return False
        self.passing.update(new)
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="", help="of the names of files")
    parser.add_argument("--dead", type=Path, help="where dead ones are noted, to be skipped again")
    given = parser.parse_args()
    chosen = mutants(given.part)
    known = given.dead.read_text().split() if given.dead and given.dead.exists() else []
    left = [mutant for mutant in chosen if mutant.key not in known]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        dead = sum(pool.map(Trial(Path(folder), given.dead).dies, left))
    dead += len(chosen) - len(left)
    print(f"{dead} of {len(chosen)} mutants are dead")
    sys.exit(0 if dead == len(chosen) else 1)


if __name__ == "__main__":
    main()
