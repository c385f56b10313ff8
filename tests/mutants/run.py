"""Deliberate faults, one at a time: the tests that a fault names must fail.

    python tests/mutants/run.py                   # all of mutants.toml; `make mutants`
    python tests/mutants/run.py scorer            # those whose file has this in its name
    python tests/mutants/run.py --dead dead.txt   # goes on where it was interrupted

The package and its tests are copied to a temporary folder and changed there. A mutant is dead if a
test failed or never ended, and alive if all passed. Tests that fail without any fault are an error.
"""

from __future__ import annotations

import argparse
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
SECONDS = 3600  # more than all tests take; each has a limit of its own


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
    def key(self) -> str:
        """Of the fault, its file and its tests as they are now."""
        paths = [self.file, *(test.partition("::")[0] for test in self.tests.split())]
        texts = [(ROOT / path).read_bytes() for path in paths]
        return sha256(b"\0".join([repr(self).encode(), *texts])).hexdigest()


def mutants(part: str) -> list[Mutant]:
    """Those of mutants.toml whose file has `part` in its name; each must still apply. What needs no
    compiling comes first."""
    text = (Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8")
    chosen = [Mutant(**one) for one in tomllib.loads(text)["mutant"] if part in one["file"]]
    if not chosen:
        sys.exit(f"no mutant is in a file with {part!r} in its name; see mutants.toml")
    for mutant in chosen:
        count = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if count != 1:
            sys.exit(f"{mutant}: stands {count} times in the file; it must stand there once")
    return sorted(chosen, key=lambda mutant: mutant.compiled)


def workshop(folder: Path) -> Path:
    """A copy of the project to break."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """pytest's exit code in the copy, negative if it had to be killed, and how it ended."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    env = os.environ | {"PYTHONPATH": str(folder / "src")} | env
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        started = subprocess.Popen(
            command, cwd=folder, env=env, stdout=said, stderr=said, start_new_session=True
        )
        with suppress(subprocess.TimeoutExpired):
            started.wait(SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # and what a broken test left behind
        code = started.wait()
        said.seek(0)
        return code, said.read()[-2000:]


def dies(mutant: Mutant, folder: Path) -> bool:
    """Compiled code is made anew and thrown away: the copy's own stays as it was, and as the file
    gets its time back, it stays valid."""
    path = folder / mutant.file
    whole, times = path.read_bytes(), path.stat()
    path.write_text(whole.decode().replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        with tempfile.TemporaryDirectory() as fresh:
            env = {"NUMBA_CACHE_DIR": fresh} if mutant.compiled else {}
            # From a thread a test is ended even while a kernel runs.
            code, said = run_tests(folder, "--timeout-method=thread", *mutant.tests.split(), **env)
    finally:
        path.write_bytes(whole)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code > FAILED:
        print(f"pytest could not run these tests:\n{said}")
    return code == FAILED or code < 0


def warm_workshops(folder: Path, chosen: list[Mutant]) -> list[Path]:
    """Where the tests pass without any fault; all have what that compiled."""
    first = workshop(folder / "0")
    named = sorted({test for mutant in chosen for test in mutant.tests.split()})
    code, said = run_tests(first, "-n", str(WORKERS), "--dist", "loadfile", *named)
    if code != PASSED:
        sys.exit(f"tests fail without any fault; mend these first:\n{said}")
    return [first, *(shutil.copytree(first, folder / str(n)) for n in range(1, WORKERS))]


def kill(chosen: list[Mutant], dead: Path | None) -> int:
    """How many of them die; each is noted at once."""
    with tempfile.TemporaryDirectory() as temporary:
        places: Queue[Path] = Queue()
        for folder in warm_workshops(Path(temporary), chosen):
            places.put(folder)

        def try_one(mutant: Mutant) -> bool:
            folder, start = places.get(), time.monotonic()
            died = dies(mutant, folder)
            places.put(folder)
            seconds = time.monotonic() - start
            print(f"{'dead ' if died else 'ALIVE'} {seconds:4.0f} s  {mutant}", flush=True)
            if died and dead:
                with dead.open("a") as file:
                    file.write(mutant.key + "\n")
            return died

        with ThreadPoolExecutor(WORKERS) as pool:
            return sum(pool.map(try_one, chosen))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="", help="of the names of files")
    parser.add_argument("--dead", type=Path, help="where dead ones are noted, to be skipped again")
    given = parser.parse_args()
    chosen = mutants(given.part)
    known = given.dead.read_text().split() if given.dead and given.dead.exists() else []
    left = [mutant for mutant in chosen if mutant.key not in known]
    dead = len(chosen) - len(left) + (kill(left, given.dead) if left else 0)
    print(f"{dead} of {len(chosen)} mutants are dead")
    sys.exit(0 if dead == len(chosen) else 1)


if __name__ == "__main__":
    main()
