"""Write the tables of docs/results/defaults.md from the records of defaults.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import markdown_table
from experiments.new_users.report import write_section

_DOCS = Path(__file__).resolve().parents[1] / "docs" / "results" / "defaults.md"
_COLUMNS = [
    ("means", False),
    ("means", True),
    ("svd", False),
    ("svd", True),
    ("biasmf", False),
    ("biasmf", True),
    ("bfm", False),
    ("bfm", True),
]
_TITLES = {"means": "means", "svd": "SVD", "biasmf": "BiasMF", "bfm": "myFM"}


def write_docs(records: list[dict[str, Any]], sets: list[str], shapes: list[str]) -> None:
    """Write the tables of the page."""
    if records:
        write_section(_DOCS, _section(records, sets, shapes))


def _section(records: list[dict[str, Any]], sets: list[str], shapes: list[str]) -> str:
    first = records[0]
    commits = ", ".join(sorted({record["commit"] for record in records}))
    parts = [f"{first['cpu']}, one thread, shared machine; commits {commits}.\n"]
    for measure, title in (("rmse", "RMSE"), ("nll", "NLL"), ("seconds", "CPU seconds")):
        parts.append(f"## {title}\n")
        parts.append(_table(records, [*sets, *shapes], measure))
    return "\n".join(parts)


def _table(records: list[dict[str, Any]], names: list[str], measure: str) -> str:
    head = ["data", "seeds", *(f"{_TITLES[m]}{', tuned' if t else ''}" for m, t in _COLUMNS)]
    head += ["cfnade", "cfnade − best", "of commit"]
    if measure == "rmse":
        head.append("best reachable")
    lines = []
    for name in names:
        of_data = [record for record in records if record["data"] == name]
        if of_data:
            lines.append(_line(name, of_data, measure))
    return markdown_table(head, lines)


def _line(name: str, records: list[dict[str, Any]], measure: str) -> list[str]:
    baselines = [_values(records, measure, model, tuned) for model, tuned in _COLUMNS]
    cfnade = _values(records, measure, "cfnade", None)
    means = [float(values.mean()) for values in baselines]
    best = int(np.argmin(means))
    cells = [_cell(values, measure) for values in baselines]
    cells[best] = f"**{cells[best]}**"
    gap = f"{(cfnade - baselines[best]).mean():+.4f}"
    if measure == "seconds":
        gap = f"{cfnade.mean() / max(means[-1], 1e-9):.2f} of myFM, tuned"
    line = [name, str(len(records)), *cells, _cell(cfnade, measure), gap, _commits(records)]
    if measure == "rmse":
        reachable = _values(records, measure, "best reachable", None)
        line.append(_cell(reachable, measure) if len(reachable) else "")
    return line


def _commits(records: list[dict[str, Any]]) -> str:
    """Return the commits of the rows of cfnade, which may be newer than the baselines'."""
    commits = {
        row.get("commit", record["commit"])
        for record in records
        for row in record["rows"]
        if row["model"] == "cfnade"
    }
    return ", ".join(sorted(commits))


def _values(records: list[dict[str, Any]], measure: str, model: str, tuned: bool | None) -> Any:
    return np.array(
        [
            row[measure]
            for record in records
            for row in record["rows"]
            if row["model"] == model and row.get("tuned") == tuned
        ]
    )


def _cell(values: Any, measure: str) -> str:
    if measure == "seconds":
        return f"{values.mean():.1f}"
    spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"
