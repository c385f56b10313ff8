"""Compare the working tree with the last commit before the restructuring, value by value.

    python tests/golden/run.py                 # everything; minutes
    python tests/golden/run.py --quick         # without MovieLens 100K and what is slow
    python tests/golden/run.py data weights    # only these parts
    python tests/golden/run.py --only 'http near*' -v

Both packages train the same models on this machine. Data, splits and weights must be bit-identical,
answers equal within 1e-6. A line for each value that differs, and with -v for each other one; the
exit code is 1 if any differs that differences.toml does not expect.

The earlier package runs in a git worktree of its own. Its values are kept in the user's cache, by
processor, versions of libraries, environment and the files of this folder that it runs. MovieLens
100K is used if CFNADE_DATA names a folder that has it. It is no part of `make test`, and goes when
the restructuring is complete.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cfnade-golden"
BEFORE = "ba7479c74bdf61f79cbabfa018d88517bbcf2a3b"
PARTS = ("data", "weights", "predictions", "http", "cli")
EXACT = ("data ", "weights ")
TOLERANCE = 1e-6
_LIBRARIES = ("numpy", "numba", "llvmlite", "torch", "polars", "fastapi", "pydantic")
_ENVIRONMENT = (
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE"),
    *("MKL_ENABLE_INSTRUCTIONS", "NPY_DISABLE_CPU_FEATURES"),
)

# -- values ----------------------------------------------------------------------------------------


def compute(which: str, source: Path, parts: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """The values of some parts with one package, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTHONPATH": str(source),
            "CFNADE_CACHE": str(Path(folder) / "cache"),
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, str(HERE / "values.py"), which, folder, *parts]
        done = subprocess.run(
            [*command, *(["--quick"] if quick else [])],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"{done.stderr}the values of the package in {source} cannot be computed")
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def values_before(parts: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """The same of the earlier package: from the cache, or computed and put there."""
    with locked(CACHE / "lock"):
        path = CACHE / f"{key(quick=quick)}.json"
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if missing := [part for part in parts if part not in known]:
            print(f"computing the values of {BEFORE[:7]}: {', '.join(missing)}", file=sys.stderr)
            known |= compute("before", worktree() / "src", missing, quick=quick)
            temporary = path.with_suffix(".part")
            temporary.write_text(json.dumps(known))
            temporary.replace(path)
    return known


def key(*, quick: bool) -> str:
    """What the earlier values depend on."""
    about = [BEFORE, platform.machine(), platform.python_version(), processor(), str(quick)]
    about += [f"{name} {version(name)}" for name in _LIBRARIES]
    about += [f"{name}={os.environ.get(name)}" for name in _ENVIRONMENT]
    about.append(str((Path(os.environ.get("CFNADE_DATA", "")) / "ml-100k.zip").exists()))
    files = [HERE / name for name in ("before.py", "inputs.py", "values.py")]
    files += sorted(path for path in (HERE / "data").rglob("*") if path.is_file())
    return sha256("\n".join(about).encode() + b"".join(map(Path.read_bytes, files))).hexdigest()


def processor() -> str:
    """The model and the features of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else [platform.processor()]
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def worktree() -> Path:
    """A clean worktree at the earlier commit: one that there is already, or a new one."""
    listed = git("worktree", "list", "--porcelain").split("\n\n")
    for lines in listed:
        facts = dict(line.partition(" ")[::2] for line in lines.splitlines())
        if "detached" in facts and facts["HEAD"] == BEFORE:
            found = Path(facts["worktree"])
            if (found / "src").exists() and not git("-C", str(found), "status", "--short", "src"):
                return found
    git("worktree", "prune")
    git("worktree", "add", "--detach", str(CACHE / BEFORE[:7]), BEFORE)
    return CACHE / BEFORE[:7]


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- comparison ------------------------------------------------------------------------------------


class Difference(NamedTuple):
    place: str
    text: str
    gap: float = math.inf
    """Of two numbers: the absolute or the relative difference, whichever is less."""

    def __str__(self) -> str:
        return f"{self.place or 'value'}: {self.text}"


def differences(before: Any, now: Any, *, exact: bool, where: str = "") -> Iterator[Difference]:
    """Where two values differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *(name for name in now if name not in before)]:
            place = f"{where}.{name}" if where else str(name)
            if name not in now:
                yield Difference(place, "is missing now")
            elif name not in before:
                yield Difference(place, f"is new, {short(now[name])}")
            else:
                yield from differences(before[name], now[name], exact=exact, where=place)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield Difference(where, f"{len(now)} entries now, {len(before)} before")
        for number, (one, other) in enumerate(zip(before, now, strict=False)):
            yield from differences(one, other, exact=exact, where=f"{where}[{number}]")
    elif (gap := distance(before, now)) > (0.0 if exact else TOLERANCE):
        yield Difference(where, f"{short(now)} now, {short(before)} before", gap)


def distance(before: Any, now: Any) -> float:
    """The absolute or the relative difference of two numbers; of anything else, 0 or infinity."""
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in (before, now)):
        return 0.0 if before == now and type(before) is type(now) else math.inf
    if math.isnan(before) or math.isnan(now):
        return 0.0 if math.isnan(before) and math.isnan(now) else math.inf
    return abs(now - before) / max(1.0, abs(before), abs(now)) if before != now else 0.0


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 80 else text[:77] + "..."


class Expected:
    """Deliberate differences: differences.toml."""

    def __init__(self, path: Path) -> None:
        self.entries = tomllib.loads(path.read_text("utf-8")).get("difference", [])

    def reason(self, case: str, difference: Difference) -> str | None:
        """Why a value may differ so; None if it may not."""
        for entry in self.entries:
            places = entry.get("fields", ["*"])
            if (
                fnmatchcase(case, entry["value"])
                and any(fnmatchcase(difference.place, one) for one in places)
                and difference.gap <= entry.get("within", math.inf)
            ):
                return str(entry["reason"])
        return None


def report(case: str, found: list[Difference], expected: Expected, *, verbose: bool) -> bool:
    """Print a line for a value, and whether it is as it should be."""
    reasons = {difference: expected.reason(case, difference) for difference in found}
    wrong = [difference for difference, reason in reasons.items() if reason is None]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        print(f"DIFFERS   {case}: {'; '.join(map(str, wrong[:3]))}{more}")
    elif found:
        print(f"expected  {case}: {', '.join(sorted({str(one) for one in reasons.values()}))}")
    elif verbose:
        print(f"same      {case}")
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small data only")
    parser.add_argument("--only", default="*", help="a pattern of the names of values")
    parser.add_argument("-v", "--verbose", action="store_true", help="also what is the same")
    options = parser.parse_args()
    if strange := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {min(strange)!r}; there are {', '.join(PARTS)}")
    parts = options.parts or PARTS
    before = values_before(parts, quick=options.quick)
    now = compute("now", ROOT / "src", parts, quick=options.quick)
    expected, wrong, total = Expected(HERE / "differences.toml"), 0, 0
    for part in parts:
        for case in [*before[part], *(case for case in now[part] if case not in before[part])]:
            if not fnmatchcase(case, options.only):
                continue
            values = [
                {"": found[part][case]} if case in found[part] else {} for found in (before, now)
            ]
            found = list(differences(*values, exact=case.startswith(EXACT)))
            total += 1
            wrong += not report(case, found, expected, verbose=options.verbose)
    print(f"{total - wrong} of {total} values are the same or expected")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
