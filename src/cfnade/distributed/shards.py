"""Ratings in Parquet partitions by column, from which each rank reads those of its own columns.

    manifest.json                                   written last: a folder without it is unfinished
    ids/user/*.parquet, ids/item/*.parquet          idx, id: raw ids in ascending order
    user/split=train/part=0/*.parquet … part=63     rows are users, columns are items
    item/split=train/part=0/*.parquet … part=63     rows are items, columns are users

Partition p holds the columns c with c % 64 == p; rank r of R owns the partitions with p % R == r.
A partition has the columns row_idx, column_idx, level, position_in_row and perhaps weight, in no
order. Roles are sampled by position_in_row, so that any number of ranks samples the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade._typing import IndexArray
from cfnade.data.csr import CsrRows, row_offsets
from cfnade.data.dataset import OTHER_AXIS, Axis, Dataset, make_dataset
from cfnade.data.scale import Scale
from cfnade.data.splits import Split
from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import digest_file, digest_text

FORMAT, VERSION = "cfnade-shards", 2
MANIFEST = "manifest.json"
PARTS = 64
SPLITS = ("train", "valid", "test")
AXES: tuple[Axis, Axis] = ("user", "item")

_BAND = 1 << 22  # ratings sorted at a time
_TYPES: dict[str, Any] = {
    "row_idx": np.int32,
    "column_idx": np.int32,
    "level": np.uint8,
    "position_in_row": np.int32,
    "weight": np.float32,
}
Arrays = dict[str, npt.NDArray[Any]]


class ColumnRatings(NamedTuple):
    """Ratings of one split in one rank's columns, sorted by row and column."""

    rows: CsrRows
    """All rows of the data; columns count within the rank's own."""
    columns: IndexArray  # (C,) the rank's columns, ascending
    position_in_row: IndexArray  # (n,) the place of each rating in its whole row
    weights: npt.NDArray[np.float32] | None = None  # (n,) of interactions

    @property
    def row_indices(self) -> IndexArray:
        """The row of each rating. Shape (n,)."""
        return np.repeat(np.arange(len(self.rows), dtype=np.int32), self.rows.counts())


class ShardedRatings:
    """A folder of Parquet partitions, as `build_shards` writes it."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self._manifest = folder, manifest
        self.n_users, self.n_items = int(manifest["users"]), int(manifest["items"])
        self.sizes: dict[str, int] = dict(manifest["ratings"])
        """How many ratings each split has."""
        self.sides: tuple[Axis, ...] = tuple(manifest["sides"])
        """What rows may be."""
        self.weighted = bool(manifest["weights"])
        self.fingerprint = str(manifest["fingerprint"])
        self.job: dict[str, Any] = manifest["job"]
        """The inputs and options of `build_shards`."""
        self.scale = Scale.saved(manifest["scale"], manifest["edges"])

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Read the manifest; data files are verified when they are read."""
        folder = Path(folder)
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest["format"] != FORMAT or manifest["version"] != VERSION:
                raise DataError(f"it is {manifest['format']} of version {manifest['version']}")
            if manifest["fingerprint"] != _fingerprint(manifest):
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
        """Return whether a path is a folder of shards, finished or not."""
        return any((Path(path) / name).is_file() for name in (MANIFEST, "work/job.json"))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{self.sizes[name]:,} {name}" for name in SPLITS)
        return f"<Shards {sizes}; {self.n_users:,} users, {self.n_items:,} items, {self.scale}>"

    def count(self, axis: Axis) -> int:
        """Return how many users or items there are."""
        return self.n_users if axis == "user" else self.n_items

    def ids(self, axis: Axis, indices: IndexArray | None = None) -> npt.NDArray[Any]:
        """Return the raw ids of some indices, or of all."""
        frame = pl.concat([self._read(name) for name in self._files(f"ids/{axis}/")]).sort("idx")
        ids = frame["id"] if indices is None else frame["id"].gather(indices)
        if ids.dtype != pl.String:
            return ids.to_numpy()
        texts = np.empty(len(ids), object)
        texts[:] = ids.to_list()
        return texts

    def columns(self, rows: Axis, rank: int = 0, size: int = 1) -> IndexArray:
        """Return the columns of one rank, ascending."""
        self._check(rows, rank, size)
        columns = np.arange(self.count(OTHER_AXIS[rows]), dtype=np.int32)
        own_columns: IndexArray = columns[owner_of(size, columns) == rank]
        return own_columns

    def load(self, rows: Axis, split: str, rank: int = 0, size: int = 1) -> ColumnRatings:
        """Read the ratings of a split in the columns of one rank."""
        columns = self.columns(rows, rank, size)
        arrays = self._collect(rows, [split], range(rank, PARTS, size))
        local = np.full(self.count(OTHER_AXIS[rows]), -1, np.int32)
        local[columns] = np.arange(len(columns), dtype=np.int32)
        csr = CsrRows(
            row_offsets(arrays["row_idx"], self.count(rows)),
            local[arrays["column_idx"]],
            arrays["level"],
            len(columns),
            len(self.scale),
        )
        return ColumnRatings(csr, columns, arrays["position_in_row"], arrays.get("weight"))

    def ratings(self, *splits: str) -> Dataset:
        """Read all ratings of some splits into one process, by user and item."""
        side = self.sides[0]
        arrays = self._collect(side, splits, range(PARTS))
        users, items = arrays["row_idx"], arrays["column_idx"]
        if side == "item":
            order = np.lexsort((users, items))
            arrays = {name: array[order] for name, array in arrays.items()}
            users, items = arrays["column_idx"], arrays["row_idx"]
        return make_dataset(
            users=users,
            items=items,
            levels=arrays["level"],
            scale=self.scale,
            user_ids=self.ids("user"),
            item_ids=self.ids("item"),
            weights=arrays.get("weight"),
        )

    def to_split(self) -> Split:
        """Read everything into one process, for the ordinary trainer."""
        train = self.ratings("train")
        valid, test = (
            self.ratings(name).replace(user_ids=train.user_ids, item_ids=train.item_ids)
            for name in ("valid", "test")
        )
        none = test.select(np.arange(0))
        return Split("shards", train, valid, test, none, self.fingerprint, self.fingerprint)

    # -- files --------------------------------------------------------------------------------

    def _check(self, rows: Axis, rank: int, size: int) -> None:
        if rows not in self.sides:
            raise DataError(
                f"{self.folder}: has no partitions whose rows are {rows}s; make them with "
                "cfnade data shard --side both"
            )
        if not 1 <= size <= PARTS or not 0 <= rank < size:
            raise DataError(
                f"rank {rank} of {size}: there are {PARTS} partitions, so 1 to {PARTS} ranks"
            )

    def _files(self, prefix: str) -> list[str]:
        return sorted(name for name in self._manifest["files"] if name.startswith(prefix))

    def _collect(self, rows: Axis, splits: Sequence[str], parts: Sequence[int]) -> Arrays:
        """Return arrays of some splits of some partitions, sorted by row and column."""
        names = [name for name in _TYPES if name != "weight" or self.weighted]
        pieces = [
            self._sorted_arrays(f"{rows}/split={split}/part={part}/", names)
            for split in splits
            for part in parts
        ]
        n = sum(len(piece["row_idx"]) for piece in pieces)
        merged: Arrays = {name: np.empty(n, _TYPES[name]) for name in names}
        start = 0
        for low, high in _bands(pieces, self.count(rows)):  # bounds the memory of the temporaries
            cuts = [np.searchsorted(piece["row_idx"], (low, high)) for piece in pieces]
            band = {
                name: np.concatenate([p[name][a:b] for p, (a, b) in zip(pieces, cuts, strict=True)])
                for name in names
            }
            order = _order(band)
            for name, array in band.items():
                merged[name][start : start + len(order)] = array[order]
            start += len(order)
        return merged

    def _sorted_arrays(self, prefix: str, names: Sequence[str]) -> Arrays:
        frames = [self._read(name) for name in self._files(prefix)]
        parts = {
            name: np.concatenate(
                [np.empty(0, _TYPES[name]), *(frame[name].to_numpy() for frame in frames)]
            ).astype(_TYPES[name], copy=False)
            for name in names
        }
        order = _order(parts)
        return {name: array[order] for name, array in parts.items()}

    def _read(self, name: str) -> pl.DataFrame:
        path, (size, digest) = self.folder / name, self._manifest["files"][name]
        advice = "fetch it again, or make the shards again with cfnade data shard"
        try:
            if path.stat().st_size != size or digest_file(path) != digest:
                raise DataError(f"{path}: is damaged or of other shards; {advice}")
            return pl.read_parquet(path, hive_partitioning=False)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise DataError(f"{path}: cannot be read ({error}); {advice}") from error


def owner_of(size: int, columns: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the rank of so many that owns each column."""
    return (columns % PARTS % size).astype(np.uint8)


def manifest_of(
    folder: Path,
    *,
    sizes: Mapping[str, int],
    counts: Mapping[Axis, int],
    scale: Scale,
    weighted: bool,
    sides: Sequence[Axis],
    job: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the manifest of the partitions in a folder."""
    files = {
        file.relative_to(folder).as_posix(): [file.stat().st_size, digest_file(file)]
        for top in ("ids", *sides)
        for file in sorted((folder / top).rglob("*.parquet"))
    }
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "parts": PARTS,
        "users": counts["user"],
        "items": counts["item"],
        "ratings": dict(sizes),
        "scale": scale.values,
        "edges": scale.edges,
        "weights": weighted,
        "sides": sides,
        "job": dict(job),
        "files": files,
    }
    return manifest | {"fingerprint": _fingerprint(manifest)}


def _fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return 32 hex digits of what the folder holds."""
    content = {name: value for name, value in manifest.items() if name != "fingerprint"}
    return digest_text(json.dumps(content, sort_keys=True))


def _order(arrays: Arrays) -> npt.NDArray[Any]:
    keys = (arrays["row_idx"].astype(np.int64) << 32) | arrays["column_idx"]
    return np.argsort(keys)


def _bands(pieces: Sequence[Arrays], n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that hold some millions of ratings each, or one row that holds more."""
    n = sum(len(piece["row_idx"]) for piece in pieces)
    step = max(1, n_rows * _BAND // max(n, 1))
    for low in range(0, n_rows, step):
        yield low, min(low + step, n_rows)
