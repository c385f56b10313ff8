"""Apply deliberate faults one at a time: the tests that a fault names must fail.

    python tests/mutants/run.py                   # the entries of all packages; `make mutants`
    python tests/mutants/run.py scorer            # faults in files with this in their path
    python tests/mutants/run.py --dead dead.txt   # skip the dead ones of earlier runs

The entries are in one TOML file per package. The project is copied to a temporary folder and
changed there. A mutant is dead if a test fails or hangs that passes without the fault, and alive if
all tests pass. A fault with which no test starts proves nothing and counts as alive.
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
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = sorted(Path(__file__).parent.glob("*.toml"))
COPIED = ("src", "tests", "benchmarks", "examples", "experiments", "docs")
WORKERS = 2
PASSED, FAILED = 0, 1  # pytest's exit codes
SECONDS = 1800  # more than the tests of a fault take; each has a limit of its own


@dataclass(frozen=True)
class Mutant:
    """Replace `old`, which occurs once in `file`, by `new`; one of `tests` must fail."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()}  →  {self.new.strip()}"

    @property
    def package(self) -> str:
        """The name of the TOML file to which the entry belongs."""
        _, package, *names = Path(self.file).parts
        if package == "cfnade_baselines":
            return "baselines"
        return names[0] if len(names) > 1 else "cfnade"

    @property
    def compiled(self) -> bool:
        """Whether Numba compiles functions of the file."""
        return "kernels" in self.file or "njit" in (ROOT / self.file).read_text("utf-8")

    @property
    def test_texts(self) -> list[bytes]:
        return [(ROOT / test.partition("::")[0]).read_bytes() for test in self.tests.split()]

    @property
    def key(self) -> str:
        """Return a digest of the fault, its file and its tests as they are now."""
        texts = [repr(self).encode(), (ROOT / self.file).read_bytes(), *self.test_texts]
        return sha256(b"\0".join(texts)).hexdigest()


def read_mutants(paths: Iterable[Path] = ENTRIES) -> list[Mutant]:
    """Return the entries of some TOML files."""
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [Mutant(**entry) for table in tables for entry in table["mutant"]]


def select(part: str) -> list[Mutant]:
    """Return the mutants with `part` in the path of their file, the fastest to try first."""
    selected = [mutant for mutant in read_mutants() if part in mutant.file]
    if not selected:
        sys.exit(f"no mutant is in a file with {part!r} in its path; see {Path(__file__).parent}")
    for mutant in selected:
        count = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if count != 1:
            sys.exit(f"{mutant}: occurs {count} times in the file; it must occur once")
    return sorted(selected, key=lambda mutant: (mutant.compiled, sum(map(len, mutant.test_texts))))


def copy_project(folder: Path) -> Path:
    """Copy the project to a folder, where faults can be applied."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, *arguments: str, **env: str) -> int:
    """Return pytest's exit code in the copy, negative if it crashed or was killed."""
    # The thread method ends a test even while a kernel runs. Importing schemathesis takes longer
    # than most tests.
    options = ["-x", "-q", "--cache-clear", "--timeout-method=thread", "-p", "no:schemathesis"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": ""} | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # and processes that a broken test started
    return process.wait()


def last_failed(folder: Path) -> list[str]:
    """Return the tests that just failed in the copy; none if pytest did not record them."""
    cache = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return list(json.loads(cache.read_text(encoding="utf-8"))) if cache.exists() else []


def failing_tests(mutant: Mutant, folder: Path) -> list[str] | None:
    """Return the tests that fail or crash with the fault; None if no test started.

    Kernels with the fault are compiled into a temporary cache. The cache of the copy stays valid,
    because the file gets its modification time back.
    """
    path, tests = folder / mutant.file, mutant.tests.split()
    original, times = path.read_bytes(), path.stat()
    path.write_text(original.decode().replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        with tempfile.TemporaryDirectory() as fresh:
            env = {"NUMBA_CACHE_DIR": fresh} if mutant.compiled else {}
            code = run_tests(folder, *tests, **env)
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code == FAILED or code < 0:
        return last_failed(folder) or tests
    return [] if code == PASSED else None


class Trial:
    """Copies of the project, and the tests that pass in them without a fault."""

    def __init__(self, folder: Path, dead: Path | None) -> None:
        self.folders: Queue[Path] = Queue()
        self.passing: set[str] = set()
        self.dead = dead
        for number in range(WORKERS):
            self.folders.put(copy_project(folder / str(number)))

    def dies(self, mutant: Mutant) -> bool:
        folder, start = self.folders.get(), time.monotonic()
        tests = failing_tests(mutant, folder)
        dies = self.pass_without(tests, folder) if tests else False
        self.folders.put(folder)
        alive = "BREAKS THE TESTS" if tests is None else "ALIVE"
        outcome = "dead " if dies else "FAILS WITHOUT" if tests else alive
        print(f"{outcome} {time.monotonic() - start:4.0f} s  {mutant}", flush=True)
        if dies and self.dead:
            with self.dead.open("a") as file:
                file.write(mutant.key + "\n")
        return dies

    def pass_without(self, tests: list[str], folder: Path) -> bool:
        """Return whether tests pass without the fault."""
        new = [test for test in tests if test not in self.passing]
        if new and run_tests(folder, *new) != PASSED:
            return False
        self.passing.update(new)
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Check that tests notice deliberate faults.")
    parser.add_argument("part", nargs="?", default="", help="part of the path of a source file")
    parser.add_argument("--dead", type=Path, help="file of dead mutants, which are skipped")
    options = parser.parse_args()
    selected = select(options.part)
    tried = options.dead.read_text().split() if options.dead and options.dead.exists() else []
    remaining = [mutant for mutant in selected if mutant.key not in tried]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        dead = sum(pool.map(Trial(Path(folder), options.dead).dies, remaining))
    dead += len(selected) - len(remaining)
    print(f"{dead} of {len(selected)} mutants are dead")
    sys.exit(0 if dead == len(selected) else 1)


if __name__ == "__main__":
    main()
