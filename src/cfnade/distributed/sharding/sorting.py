"""The stages in the middle: ids are merged and numbered, ratings sorted by row and by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.dataset import OTHER_AXIS, Axis
from cfnade.data.scale import Scale
from cfnade.data.validate import encode_ids
from cfnade.distributed.sharding.chunks import chunk_name
from cfnade.distributed.sharding.finding import ids_name, raw_id
from cfnade.distributed.sharding.layout import PARTS, SIDES, arrays_of, chances, part_of
from cfnade.distributed.sharding.plan import ShardOptions
from cfnade.distributed.sharding.workplace import StoredIds, Workplace, id_arrays
from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import Arrays
from cfnade.utils.text import option

Array = npt.NDArray[Any]


def write_as_texts(place: Workplace, axis: Axis, chunk: int) -> None:
    """Integers of one chunk as texts, for others have texts; `moved` is where each went."""
    facts = place.found()
    arrays = place.read(chunk_name(facts["chunks"][chunk], axis))
    texts = pl.Series(arrays["ids"]).cast(pl.String)
    moved, ids = encode_ids(texts)
    counts = np.empty_like(arrays["counts"])
    counts[moved] = arrays["counts"]
    content = {**id_arrays(ids), "counts": counts, "moved": moved}
    place.write(ids_name(facts, axis, chunk), content)


def merge_ids(place: Workplace, axis: Axis, number: int) -> None:
    """One range of ids: each once, rising, and which one each id of every chunk is."""
    facts, cuts = place.found(), place.read(f"cuts/{axis}")["cuts"]
    slices, counts = [], []
    for chunk, (first, last) in enumerate(cuts[:, number : number + 2].tolist()):
        arrays = place.read(ids_name(facts, axis, chunk))
        slices.append(StoredIds(arrays).between(first, last))
        counts.append(np.array(arrays["counts"][first:last]))
    starts = np.concatenate([[0], np.cumsum([len(some) for some in slices])])
    together = pl.concat(slices)
    if not len(together):
        empty = np.empty(0, object if together.dtype == pl.String else np.int64)
        codes, ids = np.empty(0, np.int32), empty
    else:
        codes, ids = encode_ids(together)
    each = np.bincount(codes, np.concatenate(counts), len(ids)).astype(np.int64)
    place.write(f"codes/{axis}-{number}", {"codes": codes, "starts": starts})
    place.write(f"ids/{axis}-{number}", {**id_arrays(ids), "counts": each})


def scatter(place: Workplace, chunk: int) -> None:
    """Ratings of one chunk by their indices in the whole, in the order of bands of rows."""
    facts = place.found()
    ratings = place.read(chunk_name(facts["chunks"][chunk], "ratings"))
    whole = {axis: _numbered(place, axis, chunk)[ratings[axis]] for axis in SIDES}
    scale = Scale.saved(facts["scale"], facts["edges"])
    levels = scale.levels_of(ratings["values"])[0][ratings["codes"]]
    if len(scale) == 1:
        levels = np.zeros(len(levels), np.uint8)
    for side in place.plan().options.sides:
        bounds = place.read(f"bands/{side}")["bounds"]
        band = np.searchsorted(bounds, whole[side], side="right") - 1
        order = np.argsort(band, kind="stable")
        starts = np.searchsorted(band[order], np.arange(len(bounds)))
        arrays: Arrays = {"rows": whole[side], "columns": whole[OTHER_AXIS[side]], "levels": levels}
        if "weights" in ratings:
            arrays["weights"] = ratings["weights"]
        arrays = {name: array[order] for name, array in arrays.items()}
        place.write(f"scattered/{side}-{chunk:06d}", {**arrays, "starts": starts})


def _numbered(place: Workplace, axis: Axis, chunk: int) -> npt.NDArray[np.int32]:
    """The index in the whole of every id of a chunk. Returns (ids,)."""
    firsts = place.read(f"numbers/{axis}")["firsts"]
    parts = []
    for number, first in enumerate(firsts[:-1].tolist()):
        arrays = place.read(f"codes/{axis}-{number}")
        a, b = arrays["starts"][chunk : chunk + 2].tolist()
        parts.append(arrays["codes"][a:b] + np.int32(first))
    numbers = np.concatenate(parts)
    facts = place.found()
    if chunk in facts["retext"][axis]:
        return np.asarray(numbers[place.read(ids_name(facts, axis, chunk))["moved"]])
    return np.asarray(numbers)


# -- bands ----------------------------------------------------------------------------------------


def sort_band(place: Workplace, side: Axis, band: int) -> None:
    """All ratings of some rows, each pair once: divided, placed in their rows, sorted by part."""
    options = place.plan().options
    low, high = place.read(f"bands/{side}")["bounds"][band : band + 2].tolist()
    ratings = _once_each(place, side, _gathered(place, side, band), options)
    own = ratings["rows"], ratings["columns"]
    users, items = own if side == "user" else own[::-1]
    chance, test = chances(options.seed, users, items), options.test
    division = np.searchsorted([test, test + (1 - test) * options.valid], chance, side="right")
    content: Arrays = {}
    for number, name in ((2, "train"), (1, "valid"), (0, "test")):
        chosen = {key: array[division == number] for key, array in ratings.items()}
        counts = np.bincount(chosen["rows"] - low, minlength=high - low)
        if name == "train":
            ends = np.cumsum(counts)
            chosen["places"] = np.arange(len(chosen["rows"])) - np.repeat(ends - counts, counts)
        part = part_of(chosen["columns"])
        order = np.argsort(part, kind="stable")
        for key, kind in arrays_of(name, weights="weights" in ratings):
            content[f"{name}.{key}"] = chosen[key][order].astype(kind)
        content[f"{name}.starts"] = np.searchsorted(part[order], np.arange(PARTS + 1))
        content[f"{name}.counts"] = counts.astype(np.int32)
    differ = "weights" in ratings and bool(np.any(ratings["weights"] != 1))
    content["weighted"] = np.array([differ], np.uint8)
    place.write(f"sorted/{side}-{band:06d}", content)


def _gathered(place: Workplace, side: Axis, band: int) -> Arrays:
    """The ratings of a band from all chunks, by row and column, equal ones as they came."""
    pieces: dict[str, list[Array]] = {}
    for chunk in range(len(place.found()["chunks"])):
        arrays = place.read(f"scattered/{side}-{chunk:06d}")
        first, last = arrays.pop("starts")[band : band + 2].tolist()
        for name, array in arrays.items():
            pieces.setdefault(name, []).append(np.array(array[first:last]))
    if len({len(of_chunks) for of_chunks in pieces.values()}) > 1:
        raise DataError(
            "some of the files have a column of weights and some have none; name it with "
            f"{option('weight')}, "
            f"or leave it out with {option('weight', False)}"
        )
    ratings = {name: np.concatenate(parts) for name, parts in pieces.items()}
    keys = (ratings["rows"].astype(np.int64) << 32) | ratings["columns"]
    order = np.argsort(keys)  # several times faster than a stable sort, which repeats alone need
    if np.any(np.diff(keys[order]) == 0):
        order = np.argsort(keys, kind="stable")
    return {name: array[order] for name, array in ratings.items()}


def _once_each(place: Workplace, side: Axis, ratings: Arrays, options: ShardOptions) -> Arrays:
    """Each cell once: repeated ratings by the rule that was given, interactions counted."""
    rows, columns = ratings["rows"], ratings["columns"]
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=len(rows))
    facts = place.found()
    scale = Scale.saved(facts["scale"], facts["edges"])
    if len(scale) == 1:
        return _counted(ratings, starts, sizes)
    if len(starts) == len(rows):
        return ratings
    if options.duplicates == "error":
        other = ratings["levels"] != np.repeat(ratings["levels"][starts], sizes)
        if not other.any():  # identical rows are one rating
            return {name: ratings[name][starts] for name in ("rows", "columns", "levels")}
        where = int(np.argmax(other))
        cell = {side: int(rows[where]), OTHER_AXIS[side]: int(columns[where])}
        user, item = (raw_id(place, axis, cell[axis]) for axis in SIDES)
        raise DataError(
            f"user {user} rated item {item} again; {len(rows) - len(starts):,} repeated ratings "
            f"so far. Choose what counts with {option('duplicates', 'last')}; first and mean "
            "are the others"
        )
    if options.duplicates == "mean":
        means = np.add.reduceat(scale.array()[ratings["levels"]], starts) / sizes
        return {"rows": rows[starts], "columns": columns[starts], "levels": scale.nearest(means)}
    kept = starts if options.duplicates == "first" else starts + sizes - 1
    return {name: array[kept] for name, array in ratings.items()}


def _counted(ratings: Arrays, starts: Array, sizes: Array) -> Arrays:
    once = {name: ratings[name][starts] for name in ("rows", "columns", "levels")}
    totals = sizes
    if "weights" in ratings and len(starts):
        totals = np.add.reduceat(ratings["weights"], starts)
    return once | {"weights": totals.astype(np.float32)}
