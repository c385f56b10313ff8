"""Results of experiments: a JSON Lines file with one record per key, for all runs of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from cfnade.exceptions import DataError
from cfnade.utils.files import write_text

Record = dict[str, Any]


@dataclass(frozen=True)
class ResultsFile:
    """Records are identified by `key_fields` and sorted by name, split and seed."""

    path: Path
    key_fields: tuple[str, ...] = ("name", "split", "seed")

    def records(self) -> list[Record]:
        """Return all records; none if there is no file."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [self._parse(line, number) for number, line in enumerate(lines, 1)]

    def find(self, record: Record) -> Record | None:
        """Return the record with the same key, or None."""
        key = self.key(record)
        return next((other for other in self.records() if self.key(other) == key), None)

    def add(self, record: Record) -> None:
        """Write a record, in place of one with the same key; other processes may write, too."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"):
            key = self.key(record)
            others = [other for other in self.records() if self.key(other) != key]
            self.write([*others, record])

    def write(self, records: Iterable[Record]) -> None:
        """Replace the file by these records."""
        lines = [
            json.dumps(record, ensure_ascii=False) for record in sorted(records, key=self._order)
        ]
        write_text(self.path, "".join(f"{line}\n" for line in lines))

    def key(self, record: Record) -> str:
        """Return what identifies a record, as text."""
        return json.dumps([record.get(name) for name in self.key_fields], sort_keys=True)

    def _order(self, record: Record) -> tuple[str, str, int, str]:
        name, split = str(record.get("name", "")), str(record.get("split", ""))
        return name, split, int(record.get("seed", 0)), self.key(record)

    def _parse(self, line: str, number: int) -> Record:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise DataError(f"{self.path}, line {number}: this is not a record; delete the line")
        return record
