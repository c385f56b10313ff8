"""Write the tables of docs/results/new-users.md from results/new_users.jsonl.

python -m experiments.new_users.report
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import markdown_table
from cfnade_baselines.compare import ResultsFile
from experiments.new_users.panel import HISTORY_SIZES
from experiments.runner import RESULTS

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "new-users.md"
RECORDS = ResultsFile(RESULTS / "new_users.jsonl", ("name",))
TITLES = {
    "ml-1m": "MovieLens 1M",
    "ml-100k": "MovieLens 100K",
    "ml-latest-small": "MovieLens latest-small",
}
COMMAND = (
    "    python -m experiments.new_users ml-1m ml-100k ml-latest-small --seeds 3 5 7 --threads 1 "
    "--save"
)
FIGURES = ("rmse", "nll", "fit_cpu_s", "user_cpu_ms")


def save(record: dict[str, Any]) -> None:
    """Store the record of a data set, in place of an earlier one."""
    RECORDS.add({"name": record["data"]} | record)


def recorded_runs() -> list[dict[str, Any]]:
    """Return the recorded runs of all data sets and seeds."""
    return [run for record in RECORDS.records() for run in record["runs"]]


def write_docs() -> None:
    """Write the tables of all records into the page, the largest data set first."""
    records = sorted(RECORDS.records(), key=lambda record: -record["runs"][0]["asked"][0])
    sections = [section(record) for record in records]
    write_section(PAGE, "\n\n".join([*sections, "Regenerate the tables with:", COMMAND]) + "\n")


def write_section(page: Path, text: str) -> None:
    """Replace the text between the marks, or append it to the page."""
    old = page.read_text()
    before, mark, rest = old.partition(BEGIN)
    after = rest.partition(END)[2] if mark else "\n"
    page.write_text(f"{before if mark else old + chr(10)}{BEGIN}\n{text}{END}{after}")


def section(record: dict[str, Any]) -> str:
    """Return the tables of one data set."""
    runs = record["runs"]
    parts = [f"## {TITLES.get(record['data'], record['data'])}", _users(runs)]
    parts += [_table(runs, "rmse"), _table(runs, "nll"), _seconds(runs)]
    return "\n\n".join([*parts, _machine(runs)])


def means(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the methods with the means of their figures over seeds."""
    return [
        versions[0] | {name: np.mean([m[name] for m in versions], 0) for name in FIGURES}
        for versions in zip(*(run["methods"] for run in runs), strict=True)
    ]


def _users(runs: list[dict[str, Any]]) -> str:
    splits = ", ".join(f"`{run['split']}`" for run in runs)
    users = ", ".join(f"{run['people'][0]:,}" for run in runs)
    ratings = ", ".join(f"{run['asked'][0]:,}" for run in runs)
    return f"Splits {splits}: {users} held-out users, {ratings} predicted ratings."


def _table(runs: list[dict[str, Any]], metric: str) -> str:
    methods = means(runs)
    best = [f"{value:.4f}" for value in np.min([method[metric] for method in methods], 0)]
    lines = []
    for place, method in enumerate(methods):
        cells = [f"{value:.4f}" for value in method[metric]]
        cells = [f"**{c}**" if c == low else c for c, low in zip(cells, best, strict=True)]
        if len(runs) > 1:
            values = [run["methods"][place][metric] for run in runs]
            deviations = np.std(values, 0, ddof=1)
            cells = [f"{c} ± {d:.4f}" for c, d in zip(cells, deviations, strict=True)]
        lines.append([method["method"], *cells])
    head = [f"{metric.upper()} by number of ratings", *HISTORY_SIZES]
    return markdown_table(head, lines).rstrip("\n")


def _seconds(runs: list[dict[str, Any]]) -> str:
    lines = [
        [method["method"], f"{method['fit_cpu_s']:.2g}", f"{method['user_cpu_ms']:.2g}"]
        for method in means(runs)
    ]
    return markdown_table(["", "fit, CPU s", "prediction, CPU ms per user"], lines).rstrip("\n")


def _machine(runs: list[dict[str, Any]]) -> str:
    machine = runs[0]["machine"]
    machines = [run[name] for run in runs for name in ("machine", "rivals_machine")]
    machines += [m["machine"] for run in runs for m in run["methods"] if "machine" in m]
    commits = ", ".join(sorted({str(m["commit"]) for m in machines}))
    return f"{machine['cpu']}, {machine['threads']} thread; commits {commits}."


if __name__ == "__main__":
    write_docs()
