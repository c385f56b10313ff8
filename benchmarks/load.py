"""How long a file takes to become ratings, beside a bare polars.read_csv of the same bytes.

    python benchmarks/load.py ml-1m.zip NETFLIX_FOLDER
    python benchmarks/load.py --before OTHER_CHECKOUT --rounds 5 NETFLIX_FOLDER

Every figure comes from a process of its own, so that peak memory is its own: polars reading the
text as three or four columns of strings; `load` with an empty cache (kernels compiled before, as
after a first run); `load` again. Without arguments: ml-1m as found by name.

With --before, only the first `load` is measured, with this package and that of another checkout in
turn: medians of the CPU seconds of all threads, peak memory, and ratios of now to before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"

_TIMED = """
import json, resource, sys, time
start = time.perf_counter()
{work}
seconds = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{
    "seconds": round(seconds, 3),
    "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
    "peak_mb": round(usage.ru_maxrss / 1024),
    "rows": rows,
}}))
"""

_POLARS = """
import polars as pl
columns = [f"c{{i}}" for i in range({width})]
table = pl.read_csv({text!r}, has_header=False, separator={separator!r}, quote_char=None,
                    schema=dict.fromkeys(columns, pl.String), missing_columns="insert")
rows = table.height
"""

_LOAD = "from cfnade import load\nrows = len(load({path!r}))"


def timed(work: str, cache: Path, source: Path = SOURCE) -> dict[str, Any]:
    """Run the work in a fresh process with the package in a folder.

    Returns seconds and CPU seconds (imports included), peak memory, rows.
    """
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(work=work)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CFNADE_CACHE": str(cache), "PYTHONPATH": str(source)},
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rating_text(path: Path, scratch: Path) -> tuple[Path, str, int]:
    """The text that holds the ratings, as one plain file; its separator; how many columns."""
    from cfnade.data.readers.files import open_source

    source = open_source(path)
    names = [n for n in source.names if n.endswith(("ratings.dat", "ratings.csv", "u.data"))]
    names = names or [n for n in source.names if "combined_data" in n]
    plain = source.plain_path(names[0]) if len(names) == 1 else None
    if plain is None:
        plain = scratch / "ratings.txt"
        plain.write_bytes(b"".join(source.read(name) for name in names).replace(b"::", b"\t"))
    separator = "\t" if names[0].endswith((".dat", "u.data")) else ","
    return plain, separator, 3 if "combined" in names[0] else 4


def measure(name: str) -> dict[str, Any]:
    """All figures of one data set."""
    from cfnade.data.datasets import DATASETS
    from cfnade.data.load import locate

    path = locate(name, DATASETS.get(name))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text, separator, width = rating_text(path, scratch)
        bare = _POLARS.format(text=str(text), separator=separator, width=width)
        load = _LOAD.format(path=str(path))
        timed(load, scratch / "warm")  # compiles the parser and fills the disk cache
        figures = {
            "polars": timed(bare, scratch),
            "first": timed(load, scratch / "cache"),
            "again": timed(load, scratch / "cache"),
        }
        size = text.stat().st_size
    ratio = figures["first"]["seconds"] / figures["polars"]["seconds"]
    return {"data": path.name, "text_mb": round(size / 1e6), **figures, "ratio": round(ratio, 2)}


def compare(name: str, before: Path, rounds: int) -> dict[str, Any]:
    """Medians of the first `load` with both packages, which take turns, and their ratios."""
    from cfnade.data.datasets import DATASETS
    from cfnade.data.load import locate

    load = _LOAD.format(path=str(locate(name, DATASETS.get(name))))
    runs: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    for turn in range(rounds + 1):  # the first compiles the parser and fills the disk cache
        for label, source in (("before", before / "src"), ("now", SOURCE)):
            with tempfile.TemporaryDirectory() as cache:
                figures = timed(load, Path(cache), source)
            if turn:
                runs[label].append(figures)
    result: dict[str, Any] = {"data": name, "rounds": rounds}
    for key in ("cpu_seconds", "seconds", "peak_mb"):
        medians = {label: statistics.median(run[key] for run in runs[label]) for label in runs}
        ratio = round(medians["now"] / medians["before"], 3)
        result[key] = {**medians, "ratio": ratio}
    assert len({run["rows"] for label in runs for run in runs[label]}) == 1
    return {**result, "rows": runs["now"][0]["rows"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["ml-1m"], help="paths or names of data sets")
    parser.add_argument("--before", type=Path, help="another checkout of the repository")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each package")
    arguments = parser.parse_args()
    if arguments.before:
        for name in arguments.data:
            print(json.dumps(compare(name, arguments.before, arguments.rounds)), flush=True)
        return
    results = []
    for name in arguments.data:
        results.append(measure(name))
        print(json.dumps(results[-1]), flush=True)
    # Late: a process inherits the peak memory of the one that started it.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.common import machine, save

    save("load", {"machine": machine(1), "data": results})


if __name__ == "__main__":
    main()
