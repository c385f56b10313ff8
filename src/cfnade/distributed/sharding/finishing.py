"""The last stage: what was sorted is joined into the files that stay, then the manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Axis
from cfnade.distributed.sharding import layout
from cfnade.distributed.sharding.layout import DIVISIONS, PARTS
from cfnade.distributed.sharding.workplace import StoredIds, Workplace, id_arrays
from cfnade.distributed.shards import fingerprint
from cfnade.exceptions import DataError
from cfnade.utils.files import write_text
from cfnade.utils.safetensors_io import open_arrays, write_chunks
from cfnade.utils.text import option

ID_PIECE = 1 << 20
"""So many raw ids are in one file."""
SOURCE = "source.json"
"""The plan, kept beside the manifest: what the shards were made of, and how."""

_META = {"format": layout.FORMAT, "version": str(layout.VERSION)}
Array = npt.NDArray[Any]


def join(place: Workplace, what: str, side: Axis, number: int) -> None:
    """One of the files that stay: raw ids, counts of rows, or a part."""
    if what == "ids":
        write_ids(place, side, number)
    elif what == "rows":
        write_rows(place, side)
    else:
        write_part(place, side, number)


def write_part(place: Workplace, side: Axis, part: int) -> None:
    """One part, from the bands in their order."""
    bands, weighted = _bands(place, side), bool(place.read(f"sizes/{side}")["weighted"][0])

    def pieces(name: str) -> Iterator[Array]:
        division = name.split(".")[0]
        for band in bands:
            arrays = place.read(band)
            first, last = arrays[f"{division}.starts"][part : part + 2].tolist()
            yield arrays[name][first:last]

    lengths = place.read(f"sizes/{side}")["sizes"][:, part].tolist()
    shapes = {
        f"{division}.{name}": (kind, (length,))
        for division, length in zip(DIVISIONS, lengths, strict=True)
        for name, kind in layout.arrays_of(division, weights=weighted)
    }
    write_chunks(place.folder / layout.part_file(side, part), shapes, pieces, _META)


def write_rows(place: Workplace, side: Axis) -> None:
    """How many ratings each row has."""

    def pieces(name: str) -> Iterator[Array]:
        for band in _bands(place, side):
            yield place.read(band)[f"{name}.counts"]

    count = int(place.read(f"numbers/{side}")["firsts"][-1])
    shapes = dict.fromkeys(DIVISIONS, (np.int32, (count,)))
    write_chunks(place.folder / layout.rows_file(side), shapes, pieces, _META)


def write_ids(place: Workplace, axis: Axis, piece: int) -> None:
    """Some raw ids, however they were merged: files do not depend on how ratings were cut."""
    firsts = place.read(f"numbers/{axis}")["firsts"]
    low, high = piece * ID_PIECE, min((piece + 1) * ID_PIECE, int(firsts[-1]))
    parts = []
    for number, (a, b) in enumerate(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)):
        first, last = max(a, low), min(b, high)
        if first < last:
            ids = StoredIds(place.read(f"ids/{axis}-{number}")).between(first - a, last - a)
            parts.append(np.array(ids.to_list(), object) if ids.dtype == str else ids.to_numpy())
    arrays = id_arrays(np.concatenate(parts))
    shapes = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    path = place.folder / layout.ids_file(axis, piece)
    write_chunks(path, shapes, lambda name: [arrays[name]], _META)


def id_pieces(place: Workplace, axis: Axis) -> list[int]:
    """How many ids each file has."""
    count = int(place.read(f"numbers/{axis}")["firsts"][-1])
    return [min(ID_PIECE, count - first) for first in range(0, count, ID_PIECE)]


def write_manifest(place: Workplace) -> dict[str, Any]:
    """Note what is in every file; from then on the shards are finished."""
    plan, facts = place.plan(), place.found()
    told = {side: place.read(f"sizes/{side}") for side in plan.options.sides}
    sizes = {side: arrays["sizes"] for side, arrays in told.items()}
    totals = {side: array.sum(1).tolist() for side, array in sizes.items()}
    counts = next(iter(totals.values()))
    if any(other != counts for other in totals.values()):
        raise DataError(f"{place.folder}: parts by user and by item differ; make them again")
    if not counts[0]:
        raise DataError(
            f"no rating is left to train on of {sum(counts):,}; give smaller "
            f"{option('valid')} and {option('test')}"
        )
    pieces = {axis: id_pieces(place, axis) for axis in layout.SIDES}
    names = [layout.ids_file(axis, i) for axis in layout.SIDES for i in range(len(pieces[axis]))]
    names += [layout.rows_file(side) for side in plan.options.sides]
    names += [layout.part_file(side, part) for side in plan.options.sides for part in range(PARTS)]
    manifest: dict[str, Any] = {
        "format": layout.FORMAT,
        "version": layout.VERSION,
        "parts": PARTS,
        "users": sum(pieces["user"]),
        "items": sum(pieces["item"]),
        "ratings": dict(zip(DIVISIONS, counts, strict=True)),
        "scale": facts["scale"],
        "edges": facts["edges"],
        "weights": bool(next(iter(told.values()))["weighted"][0]),
        "division": {name: getattr(plan.options, name) for name in ("seed", "valid", "test")},
        "sides": plan.options.sides,
        "pieces": pieces,
        "sizes": {side: array.T.tolist() for side, array in sizes.items()},
        "files": {name: _check_of(place, name) for name in names},
    }
    manifest["fingerprint"] = fingerprint(manifest)
    plan.save(place.folder / SOURCE)
    write_text(place.folder / layout.MANIFEST, json.dumps(manifest, indent=1) + "\n")
    shutil.rmtree(place.work)
    return manifest


def _check_of(place: Workplace, name: str) -> str:
    return open_arrays(place.folder / name, verify=False)[1]["check"]


def _bands(place: Workplace, side: Axis) -> list[str]:
    count = len(place.read(f"bands/{side}")["bounds"]) - 1
    return [f"sorted/{side}-{band:06d}" for band in range(count)]


def note_sizes(place: Workplace, side: Axis) -> None:
    """How many ratings of each division are in each part, and whether interactions weigh alike."""
    sizes, weighted = np.zeros((len(DIVISIONS), PARTS), np.int64), np.zeros(1, np.uint8)
    for band in _bands(place, side):
        arrays = place.read(band)
        sizes += [np.diff(arrays[f"{division}.starts"]) for division in DIVISIONS]
        weighted |= arrays["weighted"]
    place.write(f"sizes/{side}", {"sizes": sizes, "weighted": weighted})
