"""Deliberate faults, one at a time: the tests that a fault names must fail.

    python tests/mutants/run.py            # all of mutants.toml; `make mutants`
    python tests/mutants/run.py scorer     # those whose file has this in its name

The package and its tests are copied to a temporary folder and changed there. A mutant is dead if a
test failed, and alive if all passed. Tests that fail without any fault are an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "benchmarks", "examples", "experiments", "docs")
WORKERS = 2
PASSED, FAILED = 0, 1  # pytest's exit codes


@dataclass(frozen=True)
class Mutant:
    """In `file`, which holds it once, `old` becomes `new`; `tests` must notice."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()}  →  {self.new.strip()}"


def mutants(part: str) -> list[Mutant]:
    """Those of mutants.toml whose file has `part` in its name; each must still apply."""
    text = (Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8")
    chosen = [Mutant(**one) for one in tomllib.loads(text)["mutant"] if part in one["file"]]
    if not chosen:
        sys.exit(f"no mutant is in a file with {part!r} in its name; see mutants.toml")
    for mutant in chosen:
        count = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if count != 1:
            sys.exit(f"{mutant}: stands {count} times in the file; it must stand there once")
    return chosen


def workshop(folder: Path) -> Path:
    """A copy of the project to break."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, tests: str) -> tuple[int, str]:
    """pytest's exit code in the copy, and how it ended."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *tests.split()], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode not in (PASSED, FAILED):
        sys.exit(f"{tests}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.returncode, done.stdout[-2000:]


def forget_compiled(folder: Path) -> None:
    """Numba's cache does not notice a change in a function that a cached one calls."""
    for cached in folder.rglob("*.nb[ic]"):
        cached.unlink()


def dies(mutant: Mutant, folder: Path) -> bool:
    path, compiled = folder / mutant.file, "njit" in (ROOT / mutant.file).read_text("utf-8")
    whole = path.read_text(encoding="utf-8")
    if compiled or "kernels" in mutant.file:
        forget_compiled(folder)
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        return run_tests(folder, mutant.tests)[0] == FAILED
    finally:
        path.write_text(whole, encoding="utf-8")
        if compiled or "kernels" in mutant.file:
            forget_compiled(folder)


def main(part: str = "") -> None:
    chosen = mutants(part)
    with tempfile.TemporaryDirectory() as temporary:
        places: Queue[Path] = Queue()
        for number in range(WORKERS):
            places.put(workshop(Path(temporary) / str(number)))
        first = places.get()
        named = " ".join(sorted({test for mutant in chosen for test in mutant.tests.split()}))
        code, said = run_tests(first, named)
        if code != PASSED:
            sys.exit(f"tests fail without any fault; mend these first:\n{said}")
        places.put(first)

        def try_one(mutant: Mutant) -> bool:
            folder = places.get()
            dead = dies(mutant, folder)
            places.put(folder)
            print("dead " if dead else "ALIVE", mutant, flush=True)
            return dead

        with ThreadPoolExecutor(WORKERS) as pool:
            dead = list(pool.map(try_one, chosen))
    print(f"{sum(dead)} of {len(dead)} mutants are dead")
    sys.exit(0 if all(dead) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
