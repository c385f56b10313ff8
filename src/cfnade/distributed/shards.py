"""Ratings partitioned by column, opened. Every byte is checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray
from cfnade.data.csr import CsrRows, row_offsets
from cfnade.data.dataset import OTHER_AXIS, Axis, Dataset, make_dataset
from cfnade.data.scale import LevelArray, Scale
from cfnade.data.splits import Split
from cfnade.distributed.sharding import layout
from cfnade.distributed.sharding.layout import DIVISIONS, MANIFEST, PARTS
from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import Arrays, digest_text, open_arrays, unpack

_BAND = 1 << 22  # ratings put in order at a time


@dataclass(frozen=True, eq=False)
class OwnColumns:
    """The training ratings in the columns of one rank."""

    rows: CsrRows
    """All rows of the data; columns count within the rank's own."""
    places: IndexArray  # (n,) each rating's place in its whole row
    counts: IndexArray  # (N,) ratings of each whole row
    columns: IndexArray  # (C,) the rank's columns in the whole
    weights: npt.NDArray[np.float32] | None = None  # (n,) of interactions


@dataclass(frozen=True, eq=False)
class HeldCells:
    """Ratings of a division in the columns of one rank, by row and column."""

    rows: IndexArray  # (n,)
    columns: IndexArray  # (n,) within the rank's own
    levels: LevelArray  # (n,)
    weights: npt.NDArray[np.float32] | None = None


class ShardedRatings:
    """Ratings cut by columns into parts; rank r of R owns the parts that are r modulo R."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self._manifest = folder, manifest
        self.n_users, self.n_items = int(manifest["users"]), int(manifest["items"])
        self.sizes: dict[str, int] = dict(manifest["ratings"])
        """How many ratings each division has."""
        self.sides: tuple[Axis, ...] = tuple(manifest["sides"])
        """What rows may be."""
        self.weighted = bool(manifest["weights"])
        self.fingerprint = str(manifest["fingerprint"])
        self.scale = Scale.saved(manifest["scale"], manifest["edges"])

    @classmethod
    def open(cls, folder: str | Path) -> ShardedRatings:
        """Read the manifest; files are read when they are asked for."""
        folder = Path(folder)
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest["format"] != layout.FORMAT or manifest["version"] != layout.VERSION:
                raise DataError(f"it is {manifest['format']} of version {manifest['version']}")
            if manifest["fingerprint"] != fingerprint(manifest):
                raise DataError("its manifest is damaged")
            return cls(folder, manifest)
        except FileNotFoundError:
            raise DataError(
                f"{folder}: holds no finished shards (there is no {MANIFEST}); make them with "
                f"cfnade data shard RATINGS --out {folder}"
            ) from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(
                f"{folder}: cannot be read as shards ({error}); make them again with cfnade data "
                "shard"
            ) from error

    @staticmethod
    def is_one(path: str | Path) -> bool:
        """Whether a path is a folder of shards, finished or not."""
        return any((Path(path) / name).is_file() for name in (MANIFEST, "work/plan.json"))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{self.sizes[name]:,} {name}" for name in DIVISIONS)
        return f"<Shards {sizes}; {self.n_users:,} users, {self.n_items:,} items, {self.scale}>"

    # -- whole tables -------------------------------------------------------------------------

    def count(self, axis: Axis) -> int:
        """How many users or items there are."""
        return self.n_users if axis == "user" else self.n_items

    def id_pieces(self, axis: Axis) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Raw ids some at a time: the index of the first, and the ids."""
        first = 0
        for piece, size in enumerate(self._manifest["pieces"][axis]):
            arrays = self._read(layout.ids_file(axis, piece))
            yield first, unpack("ids", arrays)
            first += size

    def ids(self, axis: Axis) -> npt.NDArray[Any]:
        """All raw ids: id i is that of index i. Returns (N,)."""
        return np.concatenate([ids for _, ids in self.id_pieces(axis)])

    def ids_at(self, axis: Axis, places: IndexArray) -> npt.NDArray[Any]:
        """The raw ids of these indices, which rise. Returns (n,)."""
        parts = []
        for first, ids in self.id_pieces(axis):
            lo, hi = np.searchsorted(places, (first, first + len(ids)))
            parts.append(ids[places[lo:hi] - first])
        return np.concatenate(parts)

    def row_counts(self, side: Axis, division: str = "train") -> IndexArray:
        """How many ratings of a division each whole row has. Returns (N,)."""
        return self._read(layout.rows_file(side))[division]

    # -- a rank's ratings ---------------------------------------------------------------------

    def columns(self, side: Axis, rank: int, size: int) -> IndexArray:
        """The columns of one rank, rising. Returns (C,)."""
        self._check(side, rank, size)
        return layout.owned(self.count(OTHER_AXIS[side]), rank, size)

    def own(self, side: Axis, rank: int, size: int) -> OwnColumns:
        """The training ratings in the columns of one rank."""
        columns = self.columns(side, rank, size)
        arrays = self._collect(side, ["train"], range(rank, PARTS, size))
        n_columns = self.count(OTHER_AXIS[side])
        rows = CsrRows(
            row_offsets(arrays["rows"], self.count(side)),
            _local(arrays["columns"], columns, n_columns),
            arrays["levels"],
            len(columns),
            len(self.scale),
        )
        counts = self.row_counts(side)
        return OwnColumns(rows, arrays["places"], counts, columns, arrays.get("weights"))

    def cells(self, side: Axis, division: str, rank: int, size: int) -> HeldCells:
        """The ratings of a division in the columns of one rank."""
        columns = self.columns(side, rank, size)
        arrays = self._collect(side, [division], range(rank, PARTS, size))
        local = _local(arrays["columns"], columns, self.count(OTHER_AXIS[side]))
        return HeldCells(arrays["rows"], local, arrays["levels"], arrays.get("weights"))

    def ratings(self, *divisions: str) -> Dataset:
        """All ratings of some divisions in one process, by user and item."""
        side = self.sides[0]
        arrays = self._collect(side, divisions, range(PARTS))
        users, items = arrays["rows"], arrays["columns"]
        if side == "item":
            order = np.lexsort((users, items))
            arrays = {name: array[order] for name, array in arrays.items()}
            users, items = arrays["columns"], arrays["rows"]
        return make_dataset(
            users=users,
            items=items,
            levels=arrays["levels"],
            scale=self.scale,
            user_ids=self.ids("user"),
            item_ids=self.ids("item"),
            weights=arrays.get("weights"),
        )

    def split(self) -> Split:
        """All of them in one process, cut as they have been."""
        train = self.ratings("train")
        valid, test = (
            self.ratings(name).replace(user_ids=train.user_ids, item_ids=train.item_ids)
            for name in ("valid", "test")
        )
        none = test.select(np.arange(0))
        return Split("shards", train, valid, test, none, self.fingerprint, self.fingerprint)

    def _check(self, side: Axis, rank: int, size: int) -> None:
        if side not in self.sides:
            raise DataError(
                f"{self.folder}: has no parts whose rows are {side}s; cut them again with "
                "cfnade data shard --side both"
            )
        if not 1 <= size <= PARTS or not 0 <= rank < size:
            raise DataError(
                f"rank {rank} of {size}: there are {PARTS} parts, so 1 to {PARTS} ranks"
            )

    def _collect(self, side: Axis, divisions: Sequence[str], parts: range) -> Arrays:
        """Arrays of some divisions of some parts, by row and column; columns in the whole."""
        opened = [self._read(layout.part_file(side, part)) for part in parts]
        names = dict(layout.arrays_of(divisions[0], weights=self.weighted))
        if len(divisions) > 1:
            names.pop("places", None)
        pieces = [
            {name: part[f"{division}.{name}"] for name in names}
            for part in opened
            for division in divisions
        ]
        n = sum(len(piece["rows"]) for piece in pieces)
        whole: Arrays = {name: np.empty(n, kind) for name, kind in names.items()}
        done = 0
        for low, high in _bands(pieces, self.count(side)):
            cuts = [np.searchsorted(piece["rows"], (low, high)) for piece in pieces]
            some = {
                name: np.concatenate([p[name][a:b] for p, (a, b) in zip(pieces, cuts, strict=True)])
                for name in names
            }
            keys = (some["rows"].astype(np.int64) << 32) | some["columns"]
            order = np.argsort(keys)
            for name, array in some.items():
                whole[name][done : done + len(order)] = array[order]
            done += len(order)
        return whole

    def _read(self, name: str) -> Arrays:
        return checked_arrays(self.folder / name, self._manifest["files"].get(name))


def checked_arrays(path: Path, check: str | None) -> Arrays:
    """The arrays of a file that must be the one that was written."""
    again = "fetch it again, or make the shards again with cfnade data shard"
    try:
        arrays, texts = open_arrays(path)
    except (OSError, DataError) as error:
        raise DataError(f"{path}: {error}; {again}") from error
    if check is not None and texts["check"] != check:
        raise DataError(f"{path}: is of other shards; {again}")
    return arrays


def fingerprint(manifest: dict[str, Any]) -> str:
    """32 hex digits of what the folder holds."""
    told = {name: value for name, value in manifest.items() if name != "fingerprint"}
    return digest_text(json.dumps(told, sort_keys=True))


def _local(columns: IndexArray, own: IndexArray, n_columns: int) -> IndexArray:
    """Positions among a rank's own columns. Returns (n,)."""
    table = np.full(n_columns, -1, np.int32)
    table[own] = np.arange(len(own), dtype=np.int32)
    return table[columns]


def _bands(pieces: Sequence[Arrays], n_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold some millions of ratings each, or one row that holds more."""
    n = sum(len(piece["rows"]) for piece in pieces)
    step = max(1, n_rows * _BAND // max(n, 1))
    for low in range(0, n_rows, step):
        yield low, min(low + step, n_rows)
