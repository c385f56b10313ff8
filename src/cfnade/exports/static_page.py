"""A folder of static files that predicts in the browser: any web server can hand it out.

model.json says what the model is and where each table lies in weights.bin; model.js computes, and
page.js shows. Nobody's ratings are in it, and those that are given on the page stay there: the page
may ask for its own files and nothing else. Large tables have sixteen bits a number (rounded.py);
what is as small as it is sensitive is float32.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cfnade.errors import PredictionError
from cfnade.exports.portable import NadePart, Part, Portable, portable
from cfnade.exports.rounded import rounded
from cfnade.files import replacing
from cfnade.personal import IMAGINED, Leanings
from cfnade.predictor import Predictor

STATIC = ("index.html", "model.js", "page.js", "style.css", "icon.svg")
FORMAT = 2


class Written(NamedTuple):
    """A folder that was written."""

    items: int
    bytes: int


def write_web(predictor: Predictor, folder: Path) -> Written:
    """Write the page and the model; other files in the folder stay."""
    tables = _Tables()
    about = _described(predictor, portable(predictor.fitted), tables)
    content = {"model.json": json.dumps(about, ensure_ascii=False).encode()}
    content["weights.bin"] = bytes(tables.content)
    static = files("cfnade.exports").joinpath("static")
    content |= {name: static.joinpath(name).read_bytes() for name in STATIC}
    if folder.exists() and not folder.is_dir():
        raise PredictionError(f"{folder}: is no folder; give one to write the page into")
    try:
        with ExitStack() as stack:  # all are written before any takes its place
            for name, data in content.items():
                stack.enter_context(replacing(folder / name)).write(data)
    except OSError as error:
        raise PredictionError(f"{folder}: could not be written ({error.strerror})") from error
    return Written(len(about["items"]["ids"]), sum(map(len, content.values())))


class _Tables:
    """Tables one after the other, each at a multiple of four bytes."""

    def __init__(self) -> None:
        self.content = bytearray()

    def __call__(self, array: Any, dtype: str = "float32") -> dict[str, Any]:
        start = len(self.content)
        values = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))
        self.content += values.tobytes()
        self.content += bytes(-len(self.content) % 4)
        return {"at": start, "shape": list(values.shape)}

    def rounded(self, array: Any, *, summed: bool = False) -> dict[str, Any]:
        """In half the space."""
        steps, scales = rounded(array, summed=summed)
        return self(steps, "int16") | {"scales": self(scales)}


def _described(predictor: Predictor, given: Portable, tables: _Tables) -> dict[str, Any]:
    context, items = predictor.fitted.context, given.items
    ids, titles, genres = context.item_ids[items], context.titles, context.genres
    return {
        "format": FORMAT,
        "source": context.source,
        "scale": list(context.scale.values),
        "items": {
            "ids": ids.tolist(),
            "titles": None if titles is None else titles[items].tolist(),
            "genres": None if genres is None else genres[items].tolist(),
            "counts": predictor.item_counts[items].tolist(),
            "least": predictor.default_min_ratings,
        },
        "members": [
            {"share": share, "parts": [_part(part, tables) for part in parts]}
            for share, parts in given.members
        ],
        "calibration": _calibration(predictor, items, tables),
        "stranger": tables(predictor.predicted(items, history={}).probabilities),
    }


def _part(part: Part, tables: _Tables) -> dict[str, Any]:
    if isinstance(part, NadePart):
        return {
            "kind": "nade",
            "W": tables.rounded(part.W, summed=part.shared),
            "V": tables.rounded(part.V, summed=part.shared),
            "b": tables(part.b),
            "c": tables(part.c),
            "B": None if part.B is None else tables(part.B),
            "Q": None if part.Q is None else tables(part.Q),
            "deep": [{"W": tables(W), "c": tables(c)} for W, c in part.deep],
            "activation": part.activation,
            "mean": part.mean_context,
            "shared": part.shared,
        }
    exact = {name: tables(getattr(part, name)) for name in ("u", "e", "b", "prior", "importance")}
    short = {name: tables.rounded(getattr(part, name), summed=True) for name in ("W", "V")}
    short["q"] = tables.rounded(part.q)
    return {"kind": "ridge", "spread": part.spread, "noise": part.noise, **exact, **short}


def _calibration(predictor: Predictor, items: Any, tables: _Tables) -> dict[str, Any] | None:
    calibration = predictor.fitted.calibration_of_new or predictor.fitted.calibration
    if calibration is None:
        return None
    everyone, along, expected = Leanings(predictor.fitted).tables()
    return {
        **calibration.to_dict(),
        "imagined": IMAGINED,
        "everyone": everyone.tolist(),
        "along": along.tolist(),
        "expected": tables(expected[items]),
    }
