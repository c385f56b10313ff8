"""Export the page of the service as static files that predict in the browser.

It is the service's page except for api.js, which here answers requests in the browser. model.json
describes the model and where each table lies in weights.bin. Neither has the ratings of any user,
and the ratings that a visitor gives stay in the browser: the page requests its own files only.

Large tables are rounded (below) to 16 bits a number. The weights that enter a posterior are
float32, as the posterior amplifies errors. Beside a ridge component CF-NADE adds little to the
scores, so its input table has 12 bits there.
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
from cfnade.integrations.fold_in_export import Part, fold_in_tables
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


class ExportedSite(NamedTuple):
    """The size of an exported site."""

    items: int
    bytes: int


def write_web(predictor: Predictor, folder: Path, *, item_name: str | None = None) -> ExportedSite:
    """Write the page and the model into a folder; other files in it stay.

    Args:
        predictor: A model of ratings whose rows are users.
        folder: Created if it does not exist.
        item_name: What an item is, such as film.
    """
    if folder.exists() and not folder.is_dir():
        raise PredictionError(f"{folder}: is not a folder; give one to write the page into")
    weights = _Weights()
    description = _describe(predictor, weights) | {"item_name": item_name}
    contents = _page_files()
    contents["model.json"] = json.dumps(description, ensure_ascii=False).encode()
    contents["weights.bin"] = bytes(weights.content)
    try:
        with ExitStack() as stack:  # all are written before any takes its place
            for name, content in contents.items():
                stack.enter_context(atomic_write(folder / name)).write(content)
    except OSError as error:
        raise PredictionError(f"{folder}: could not be written ({error.strerror})") from error
    return ExportedSite(len(description["items"]["ids"]), sum(map(len, contents.values())))


def _page_files() -> dict[str, bytes]:
    """Return the files of the page, with the scripts that answer requests."""
    contents = {
        f"page/{file.name}": file.read_bytes()
        for folder in (files("cfnade.server") / "page", files("cfnade.integrations.static_site"))
        for file in folder.iterdir()
        if file.is_file() and not file.name.endswith(".py")
    }
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'.encode()
    return contents | {"index.html": contents.pop("page/index.html").replace(_HEAD, _HEAD + policy)}


class _Weights:
    """The content of weights.bin: tables one after the other, each at a multiple of four bytes."""

    def __init__(self) -> None:
        self.content = bytearray()

    def add(self, array: Any) -> dict[str, Any]:
        """Add a table in float32; return where it is."""
        return {"at": self._append(np.asarray(array, "<f4")), "shape": list(array.shape)}

    def add_rounded(self, array: Any, bits: int, *, summed: bool = False) -> dict[str, Any]:
        """Add a table with so many bits a number."""
        steps, scales = rounded(array, bits, summed=summed)
        offset = self._append(packed(steps, bits))
        return {"at": offset, "shape": list(array.shape), "bits": bits, "scales": self.add(scales)}

    def _append(self, values: Any) -> int:
        start = len(self.content)
        self.content += values.tobytes()
        self.content += bytes(-len(self.content) % 4)
        return start


def _describe(predictor: Predictor, weights: _Weights) -> dict[str, Any]:
    """Return the content of model.json, and add all tables."""
    tables, context = fold_in_tables(predictor.fitted), predictor.fitted.context
    items, titles = tables.items, context.titles
    counts = predictor.item_counts[items]
    new_user = predictor.resolve_user(history={})
    return {
        "format": FORMAT,
        "source": context.source,
        "scale": list(context.scale.values),
        "people": max(context.n_users, int(counts.max(initial=1))),
        "items": {
            "ids": context.item_ids[items].tolist(),
            "titles": None if titles is None else titles[items].tolist(),
            "genres": _genres(predictor, items),
            "counts": counts.tolist(),
            "least": predictor.default_min_ratings,
        },
        "map": _map(predictor, items),
        "sample_profiles": sample_profiles(predictor, predictor.item_counts),
        "members": [
            {"share": share, "parts": [_add_part(part, weights, len(parts)) for part in parts]}
            for share, parts in tables.members
        ],
        "calibration": _calibration(predictor, items, weights),
        "usual": weights.add(predictor.baseline[items]),
        "stranger": weights.add(predictor.predict_items(new_user, items).probabilities),
    }


def _genres(predictor: Predictor, items: Any) -> dict[str, Any] | None:
    """Return the names of genres, and the genres of each item."""
    if not predictor.genres:
        return None
    has = np.stack([mask[items] for mask in predictor.genres.values()], 1)
    return {"names": [*predictor.genres], "of": [np.flatnonzero(row).tolist() for row in has]}


def _map(predictor: Predictor, items: Any) -> list[tuple[int, float, float]]:
    """Return positions and coordinates of the items with the most ratings."""
    mapped_items, coordinates = item_map(predictor, ON_MAP)
    positions = {item: position for position, item in enumerate(items.tolist())}
    return [
        (positions[item], round(x, 4), round(y, 4))
        for item, (x, y) in zip(mapped_items.tolist(), coordinates.tolist(), strict=True)
        if item in positions
    ]


def _add_part(part: Part, weights: _Weights, n_parts: int) -> dict[str, Any]:
    """Add the tables of a component; return its description."""
    arrays, config = part.arrays, part.config
    if part.kind == "nade":
        names = ("b", "c", "B", "Q")
        dense: dict[str, Any] = {n: weights.add(arrays[n]) if n in arrays else None for n in names}
        return dense | {
            "kind": "nade",
            "W": weights.add_rounded(arrays["W"], 16 if n_parts == 1 else 12, summed=config.shared),
            "V": weights.add_rounded(arrays["V"], 16, summed=config.shared),
            "deep": [
                {"W": weights.add(arrays[f"W{n}"]), "c": weights.add(arrays[f"c{n}"])}
                for n in range(part.n_deep_layers)
            ],
            "activation": config.activation,
            "mean": config.mean_context,
            "shared": config.shared,
        }
    exact = ("u", "e", "V", "b", "prior", "importance")
    described: dict[str, Any] = {name: weights.add(arrays[name]) for name in exact}
    described |= {"kind": "ridge", "spread": config.spread, "noise": config.noise}
    described["W"] = weights.add_rounded(arrays["W"], 12, summed=True)
    return described | {"q": weights.add_rounded(arrays["q"], 16)}


def _calibration(predictor: Predictor, items: Any, weights: _Weights) -> dict[str, Any] | None:
    calibration = predictor.fitted.calibration_of_new or predictor.fitted.calibration
    if calibration is None:
        return None
    everyone, along, expected = LevelPreferences(predictor.fitted).tables()
    return {
        **calibration.to_dict(),
        "imagined": PRIOR_RATINGS,
        "everyone": everyone.tolist(),
        "along": along.tolist(),
        "expected": weights.add(expected[items]),
    }


# -- tables in 12 or 16 bits a number -------------------------------------------------------------
# Numbers are whole multiples of a scale of each item. An item's weights are of one size, so 16 bits
# are several times as exact as float16, which uses five of them for the exponent. Where the weights
# of levels are summed before use, the sums are rounded and their differences stored: errors do not
# add up over levels.


class Rounded(NamedTuple):
    """A table (M, …) ≈ steps × scales of the first axis."""

    steps: IntArray
    scales: npt.NDArray[np.float32]  # (M,)


def rounded(table: npt.NDArray[Any], bits: int, *, summed: bool) -> Rounded:
    """Round a table (M, …), `summed` over its second axis before it is used."""
    values = np.asarray(table, np.float64)
    axes = tuple(range(1, values.ndim))
    # One less than fits: a difference of rounded sums may be one larger than the rounded number.
    scales = np.abs(values).max(axes) / ((1 << (bits - 1)) - 2)
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    units = values / scales.reshape(-1, *[1] * len(axes))
    steps = np.diff(np.rint(units.cumsum(1)), axis=1, prepend=0) if summed else np.rint(units)
    return Rounded(steps.astype(np.int64), scales)


def packed(steps: IntArray, bits: int) -> npt.NDArray[Any]:
    """Return int16, or pairs of 12 bits plus 2048 in three bytes, the lower number first."""
    if bits == 16:
        return steps.astype("<i2")
    low, high = np.append(steps + 2048, np.zeros(steps.size % 2, np.int64)).reshape(-1, 2).T
    both = low | high << 12
    return np.stack([both & 255, both >> 8 & 255, both >> 16], 1).astype(np.uint8)
