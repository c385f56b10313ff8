"""load_split(): data and split by name in one line, with the splits that come as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cfnade.data.build import Options, build
from cfnade.data.load import load, locate
from cfnade.data.named import SETS
from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split, split
from cfnade.errors import DataError

CANONICAL = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
"""The splits that MovieLens 100K comes with."""


def load_split(data: Any, name: str, **reading: Any) -> Split:
    """Load ratings and cut them into parts; `reading` are the arguments of `load`.

    Beside the names that `split` knows: "u1" … "u5", "ua" and "ub" of MovieLens 100K, and
    "file:PATH", where the data is the training part and PATH the test part.
    """
    from cfnade.data.predefined import predefined

    if name in CANONICAL:
        whole = load(data, **reading)
        train, test = (_canonical_part(data, f"{name}.{end}", whole) for end in ("base", "test"))
        return predefined(train, test, name=name, whole=whole)
    if name.startswith("file:"):
        train, test = load(data, **reading), load(name.removeprefix("file:"), **reading)
        return predefined(train, test, name=f"file:{Path(name.removeprefix('file:')).name}")
    return split(load(data, **reading), name)


def _canonical_part(data: Any, wanted: str, whole: Ratings) -> Ratings:
    from cfnade.data import delimited
    from cfnade.data.sources import open_source

    if not isinstance(data, str | Path):
        raise DataError(f"split {wanted.split('.')[0]!r} needs MovieLens 100K by name or path")
    path = locate(data, SETS.get(str(data)))
    source = open_source(path if path.is_dir() or path.suffix == ".zip" else path.parent)
    found = [member for member in source.names() if Path(member).name == wanted]
    if len(found) != 1:
        raise DataError(
            f"{path}: {len(found)} files are named {wanted}; this split is for MovieLens 100K as "
            "published, whose archive holds it"
        )
    columns, _ = delimited.read(source.read(found[0]), source.label(found[0]))
    return build(replace(columns, source=whole.source), Options(scale=whole.scale))
