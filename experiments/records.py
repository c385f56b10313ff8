"""The JSONs that run.py left, and what they say of an entry: mean and spread over its runs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_records(folder: Path) -> dict[str, list[Record]]:
    """The records of a table by the name of their entry, each list by split and seed."""
    found: dict[str, list[Record]] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(record["name"], []).append(_present(record))
    return found


def _present(record: Record) -> Record:
    """With the present names: what is `mae_of_medians` now was `mae` in earlier records."""
    if "mae" in record.get("test", {}):
        record["test"]["mae_of_medians"] = record["test"].pop("mae")
    return record


@dataclass(frozen=True)
class Spread:
    """The mean of some numbers, their standard deviation, and how many there are."""

    mean: float
    deviation: float | None
    n: int

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"


def spread(records: list[Record], value: Callable[[Record], float]) -> Spread:
    """Over records; one alone has no deviation."""
    numbers = [value(record) for record in records]
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Spread(statistics.fmean(numbers), deviation, len(numbers))


def test_rmse(record: Record) -> float:
    return float(record["test"]["rmse"])


def valid_rmse(record: Record) -> float:
    return float(record["valid"]["rmse"])


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
