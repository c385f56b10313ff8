"""Where tasks leave what later ones need: files of arrays that are whole or not there at all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.distributed.sharding.plan import ShardPlan
from cfnade.exceptions import DataError
from cfnade.utils.files import write_text
from cfnade.utils.safetensors_io import Arrays, open_arrays, pack, write_arrays

_verified: set[tuple[str, int, int]] = set()


class Workplace:
    """The folder of a job and what is in its work/, by name."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.work = self.folder / "work"

    @property
    def plan_file(self) -> Path:
        return self.work / "plan.json"

    def plan(self) -> ShardPlan:
        return ShardPlan.load(self.plan_file)

    def path(self, name: str) -> Path:
        return self.work / f"{name}.safetensors"

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def write(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        write_arrays(self.path(name), arrays, {"format": "cfnade-shards-work"})

    def read(self, name: str) -> Arrays:
        """Arrays of a file, of which every byte was checked by this process."""
        return verified_arrays(self.path(name))

    # -- notes: what a stage found, small enough for JSON -----------------------------------------

    def note(self, name: str, told: dict[str, Any]) -> dict[str, Any]:
        write_text(self.work / f"{name}.json", json.dumps(told))
        return told

    def noted(self, name: str) -> dict[str, Any] | None:
        file = self.work / f"{name}.json"
        return dict(json.loads(file.read_text())) if file.exists() else None

    def found(self) -> dict[str, Any]:
        """What all pieces came to together: chunks, kinds of ids, the scale."""
        return self.noted("found") or {}


def verified_arrays(path: Path) -> Arrays:
    """The arrays of a file; its bytes are compared with their digests once a process.

    Maps are not kept: all of them together would count as this process's memory.
    """
    try:
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        arrays, _ = open_arrays(path, verify=key not in _verified)
    except (OSError, DataError) as error:
        raise DataError(
            f"{path}: {error}; remove that file and give the command again: what is missing is "
            "made anew"
        ) from error
    _verified.add(key)
    return arrays


# -- raw ids --------------------------------------------------------------------------------------


def id_arrays(ids: npt.NDArray[Any]) -> Arrays:
    """Raw ids as they are stored."""
    return pack("ids", ids if ids.dtype == object else ids.astype(np.int64))


class StoredIds:
    """Rising raw ids of a file, looked at without reading all of them."""

    def __init__(self, arrays: Arrays) -> None:
        self.texts = "ids" not in arrays
        self._ids = arrays.get("ids", np.empty(0, np.int64))
        self._bytes = arrays.get("ids.bytes", np.empty(0, np.uint8))
        self._starts = arrays.get("ids.starts", np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self._starts) - 1 if self.texts else len(self._ids)

    def __getitem__(self, index: int) -> Any:
        if not self.texts:
            return int(self._ids[index])
        return bytes(self._bytes[self._starts[index] : self._starts[index + 1]]).decode()

    def between(self, first: int, last: int) -> pl.Series:
        """Some of them."""
        if not self.texts:
            return pl.Series(self._ids[first:last])
        starts = self._starts[first : last + 1]
        raw = self._bytes[starts[0] : starts[-1]].tobytes() if len(starts) else b""
        bounds = (starts - starts[0]).tolist() if len(starts) else [0]
        texts = [raw[a:b].decode() for a, b in itertools.pairwise(bounds)]
        return pl.Series(texts, dtype=pl.String)
