"""The page as a folder of static files that predicts in the browser, for any web server.

It is the service's page, but for api.js, through which it asks its questions: here they are
answered in the browser (static/). model.json says what the model is and where each table lies in
weights.bin. Nobody's ratings are in it, and those that are given on the page stay there: it may ask
for its own files and nothing else.

Large tables are rounded (below), to 16 bits a number. The weights that a posterior meets are
float32, for it is large; CF-NADE says little beside it, so there what is summed has 12 bits.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.calibration.per_user import PRIOR_RATINGS, LevelPreferences
from cfnade.exceptions import PredictionError
from cfnade.inference.predictor import Predictor
from cfnade.integrations.fold_in_export import FoldInTables, NadePart, Part, fold_in_tables
from cfnade.server.item_map import item_map
from cfnade.server.sample_profiles import sample_profiles
from cfnade.utils.files import atomic_write

IntArray = npt.NDArray[np.int64]

FORMAT = 2
ON_MAP = 500
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
_HEAD = b'<meta charset="utf-8">\n'


class Written(NamedTuple):
    """A folder that was written."""

    items: int
    bytes: int


def write_web(predictor: Predictor, folder: Path, *, item_name: str | None = None) -> Written:
    """Write the page and the model; other files in the folder stay. `item_name` is such as film."""
    tables = _Tables()
    about = _described(predictor, fold_in_tables(predictor.fitted), tables) | {
        "item_name": item_name
    }
    content = {"model.json": json.dumps(about, ensure_ascii=False).encode()}
    content["weights.bin"] = bytes(tables.content)
    content |= _page()
    if folder.exists() and not folder.is_dir():
        raise PredictionError(f"{folder}: is no folder; give one to write the page into")
    try:
        with ExitStack() as stack:  # all are written before any takes its place
            for name, data in content.items():
                stack.enter_context(atomic_write(folder / name)).write(data)
    except OSError as error:
        raise PredictionError(f"{folder}: could not be written ({error.strerror})") from error
    return Written(len(about["items"]["ids"]), sum(map(len, content.values())))


def _page() -> dict[str, bytes]:
    """The page's files, with answers of its own."""
    parts = files("cfnade.server") / "page", files("cfnade.integrations.static_site")
    contents = {
        f"page/{one.name}": one.read_bytes()
        for part in parts
        for one in part.iterdir()
        if one.is_file() and not one.name.endswith(".py")
    }
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'.encode()
    return contents | {"index.html": contents.pop("page/index.html").replace(_HEAD, _HEAD + policy)}


class _Tables:
    """Tables one after the other, each at a multiple of four bytes."""

    def __init__(self) -> None:
        self.content = bytearray()

    def __call__(self, array: Any) -> dict[str, Any]:
        return {"at": self._put(np.asarray(array, "<f4")), "shape": list(array.shape)}

    def rounded(self, array: Any, bits: int, *, summed: bool = False) -> dict[str, Any]:
        """In less space."""
        steps, scales = rounded(array, bits, summed=summed)
        offset = self._put(packed(steps, bits))
        return {"at": offset, "shape": list(array.shape), "bits": bits, "scales": self(scales)}

    def _put(self, values: Any) -> int:
        start = len(self.content)
        self.content += values.tobytes()
        self.content += bytes(-len(self.content) % 4)
        return start


def _described(predictor: Predictor, given: FoldInTables, tables: _Tables) -> dict[str, Any]:
    context, items = predictor.fitted.context, given.items
    ids, titles, counts = context.item_ids[items], context.titles, predictor.item_counts[items]
    return {
        "format": FORMAT,
        "source": context.source,
        "scale": list(context.scale.values),
        "people": max(context.n_users, int(counts.max(initial=1))),
        "items": {
            "ids": ids.tolist(),
            "titles": None if titles is None else titles[items].tolist(),
            "genres": _genres(predictor, items),
            "counts": counts.tolist(),
            "least": predictor.default_min_ratings,
        },
        "map": _map(predictor, items),
        "sample_profiles": sample_profiles(predictor, predictor.item_counts),
        "members": [
            {
                "share": share,
                "parts": [_part(part, tables, alone=len(parts) == 1) for part in parts],
            }
            for share, parts in given.members
        ],
        "calibration": _calibration(predictor, items, tables),
        "usual": tables(predictor.baseline[items]),
        "stranger": tables(predictor.predicted(items, history={}).probabilities),
    }


def _genres(predictor: Predictor, items: Any) -> dict[str, Any] | None:
    """Names, and which of them each item has."""
    if not predictor.genres:
        return None
    has = np.stack([mask[items] for mask in predictor.genres.values()], 1)
    return {"names": [*predictor.genres], "of": [np.flatnonzero(row).tolist() for row in has]}


def _map(predictor: Predictor, items: Any) -> list[tuple[int, float, float]]:
    """The best known: places among the items, and where each is."""
    shown, spots = item_map(predictor, ON_MAP)
    place = {item: at for at, item in enumerate(items.tolist())}
    return [
        (place[item], round(x, 4), round(y, 4))
        for item, (x, y) in zip(shown.tolist(), spots.tolist(), strict=True)
        if item in place
    ]


def _part(part: Part, tables: _Tables, *, alone: bool) -> dict[str, Any]:
    if isinstance(part, NadePart):
        return {
            "kind": "nade",
            "W": tables.rounded(part.W, 16 if alone else 12, summed=part.shared),
            "V": tables.rounded(part.V, 16, summed=part.shared),
            "b": tables(part.b),
            "c": tables(part.c),
            "B": None if part.B is None else tables(part.B),
            "Q": None if part.Q is None else tables(part.Q),
            "deep": [{"W": tables(W), "c": tables(c)} for W, c in part.deep],
            "activation": part.activation,
            "mean": part.mean_context,
            "shared": part.shared,
        }
    names = ("u", "e", "V", "b", "prior", "importance")
    exact = {name: tables(getattr(part, name)) for name in names}
    short = {"W": tables.rounded(part.W, 12, summed=True), "q": tables.rounded(part.q, 16)}
    return {"kind": "ridge", "spread": part.spread, "noise": part.noise, **exact, **short}


def _calibration(predictor: Predictor, items: Any, tables: _Tables) -> dict[str, Any] | None:
    calibration = predictor.fitted.calibration_of_new or predictor.fitted.calibration
    if calibration is None:
        return None
    everyone, along, expected = LevelPreferences(predictor.fitted).tables()
    return {
        **calibration.to_dict(),
        "imagined": PRIOR_RATINGS,
        "everyone": everyone.tolist(),
        "along": along.tolist(),
        "expected": tables(expected[items]),
    }


# -- tables in 12 or 16 bits a number: whole numbers, times a scale of each item -----------------
# An item's weights are of one size, so that 16 bits are several times as exact as float16, which
# gives five of its bits to how large each number is. Where a level also counts what those below it
# say, the sums are rounded, and the numbers are their differences: errors do not add up over
# levels.


class Rounded(NamedTuple):
    """values ≈ steps × scales of their first axis."""

    steps: IntArray
    scales: npt.NDArray[np.float32]  # (M,)


def rounded(table: npt.NDArray[Any], bits: int, *, summed: bool) -> Rounded:
    """Of a table (M, …), `summed` over its second axis before it is used."""
    values = np.asarray(table, np.float64)
    others = tuple(range(1, values.ndim))
    # One less than fits: a difference of rounded sums may be one larger than what it rounds.
    scales = np.abs(values).max(others) / ((1 << (bits - 1)) - 2)
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    units = values / scales.reshape(-1, *[1] * len(others))
    steps = np.diff(np.rint(units.cumsum(1)), axis=1, prepend=0) if summed else np.rint(units)
    return Rounded(steps.astype(np.int64), scales)


def packed(steps: IntArray, bits: int) -> npt.NDArray[Any]:
    """As int16, or two of 12 bits in three bytes, the lower first, each 2048 above what it is."""
    if bits == 16:
        return steps.astype("<i2")
    low, high = np.append(steps + 2048, np.zeros(steps.size % 2, np.int64)).reshape(-1, 2).T
    both = low | high << 12
    return np.stack([both & 255, both >> 8 & 255, both >> 16], 1).astype(np.uint8)
