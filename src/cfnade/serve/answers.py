"""Questions of the schema, put to the Predictor; each answer is ready to be written as JSON."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade import __version__
from cfnade.predictor import Predictor
from cfnade.serve import limits, schemas
from cfnade.serve.loading import Loaded
from cfnade.serve.people import Asked, asked_by, item_of, unknown_item

Answer = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_TAIL = 0.1
"""What may lie beyond either end of an interval."""


def predict(loaded: Loaded, wanted: schemas.PredictIn) -> Answer:
    asked = asked_by(loaded.predictor, wanted)
    items = [(text, item_of(loaded.predictor, text)) for text in wanted.items]
    known = [raw for _, raw in items if raw is not None]
    return {
        "predictions": _predictions(loaded.predictor, asked, known),
        "unknown": [text for text, raw in items if raw is None],
        "ignored": asked.ignored,
    }


def recommend(loaded: Loaded, wanted: schemas.RecommendIn) -> Answer:
    predictor = loaded.predictor
    asked = asked_by(predictor, wanted)
    found = predictor.ranked(
        asked.user,
        history=asked.history,
        n=wanted.n,
        exclude_seen=wanted.exclude_seen,
        rank=wanted.rank,
        threshold=wanted.threshold,
        quantile=wanted.quantile,
        min_ratings=wanted.min_ratings,
    )
    chances, counts = found.probabilities, found.known_of_items
    items = _distributions(predictor, found.items, found.predictions, chances, counts)
    for rank, (item, score) in enumerate(zip(items, found.scores.tolist(), strict=True), 1):
        item |= {"rank": rank, "score": score}
    return {
        "items": items,
        "hidden": found.hidden,
        "min_ratings": found.min_ratings,
        "ignored": asked.ignored,
    }


def explain(loaded: Loaded, wanted: schemas.ExplainIn) -> Answer:
    predictor = loaded.predictor
    asked = asked_by(predictor, wanted)
    item = item_of(predictor, wanted.item)
    if item is None:
        raise unknown_item(wanted.item, "item")
    frame = predictor.explain(item=item, user=asked.user, history=asked.history)
    (prediction,) = _predictions(predictor, asked, [item])
    names = ("item", "title") if predictor.bundle.side == "user" else ("count",)
    return {
        "item": item,
        "title": prediction["title"],
        "prediction": prediction,
        "moved": frame.select(*names, "rating", "without", "change").to_dicts(),
        "ignored": asked.ignored,
    }


def items(loaded: Loaded, wanted: schemas.ItemsQuery) -> Answer:
    predictor, text = loaded.predictor, wanted.q.strip()
    if not text:
        found = predictor.items.table[loaded.popular[: wanted.limit]].tolist()
    elif predictor.bundle.context.titles is None:
        found = _by_id(loaded, text, wanted.limit)
    else:
        found = predictor.search(text, limit=wanted.limit)["item"].to_list()
    return {"items": [_found(loaded, raw) for raw in found], "query": wanted.q}


def match(loaded: Loaded, wanted: schemas.MatchIn) -> Answer:
    predictor = loaded.predictor
    if predictor.bundle.context.titles is None:
        return {"matches": [None] * len(wanted.films)}
    raws = [predictor.match(film.title, film.year) for film in wanted.films]
    return {"matches": [None if raw is None else _named(predictor, raw) for raw in raws]}


def model(loaded: Loaded, bounds: limits.Limits) -> Answer:
    predictor = loaded.predictor
    return {
        "name": loaded.name,
        "side": predictor.bundle.side,
        "scale": list(predictor.scale.values),
        "items": len(predictor.items.table),
        "titles": predictor.bundle.context.titles is not None,
        "new_people": predictor.bundle.side == "user",
        "min_ratings": predictor.default_min_ratings,
        "limits": {
            "history": limits.HISTORY,
            "n": limits.BEST,
            "items": limits.ITEMS,
            "body_bytes": bounds.body_bytes,
        },
        "ranks": ["expected", "at_least", "quantile"],
        "samples": loaded.samples,
    }


def version(loaded: Loaded) -> Answer:
    predictor = loaded.predictor
    return {
        "cfnade": __version__,
        "python": platform.python_version(),
        "model": {
            "name": loaded.name,
            "side": predictor.bundle.side,
            "levels": len(predictor.scale),
            "items": len(predictor.items.table),
            "fingerprint": loaded.fingerprint,
            "loaded_at": loaded.loaded_at,
        },
    }


# -- parts ---------------------------------------------------------------------------------------


def _predictions(predictor: Predictor, asked: Asked, known: list[Any]) -> list[Answer]:
    if not known:
        return []
    if asked.history is None:
        frame = predictor.predict_frame(asked.user, known)
    else:
        frame = predictor.predict_frame("", known, histories={"": asked.history})
    chances = frame.select(pl.col("^p_.*$")).to_numpy()
    means, counts = frame["prediction"].to_numpy(), frame["known_of_item"].to_numpy()
    return _distributions(predictor, predictor.items.indices(known), means, chances, counts)


def _distributions(
    predictor: Predictor,
    indices: IntArray,
    means: FloatArray,
    chances: FloatArray,  # (n, K)
    counts: IntArray,
) -> list[Answer]:
    """Items with what is said of each, column by column: a list of 500 takes no time."""
    values = predictor.scale.array()
    low, median, high = (quantiles(chances, values, q) for q in (_TAIL, 0.5, 1 - _TAIL))
    columns = {
        "item": predictor.items.table[indices].tolist(),
        "title": _titles(predictor, indices),
        "expected": means.tolist(),
        "std": np.sqrt((chances * np.square(values - means[:, None])).sum(1)).tolist(),
        "median": median.tolist(),
        "interval": list(zip(low.tolist(), high.tolist(), strict=True)),
        "probabilities": chances.tolist(),
        "ratings": counts.tolist(),
    }
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def _titles(predictor: Predictor, indices: IntArray) -> list[str | None]:
    titles = predictor.bundle.context.titles
    return [None if titles is None else titles[at] or None for at in indices.tolist()]


def quantiles(chances: FloatArray, values: FloatArray, share: float) -> FloatArray:
    """The lowest value that a rating exceeds with chance 1 - share at most. Returns (n,)."""
    reached = chances.cumsum(1) >= share - 1e-12  # (n, K)
    reached[:, -1] = True  # whatever rounding says
    found: FloatArray = values[reached.argmax(1)]
    return found


def _by_id(loaded: Loaded, text: str, limit: int) -> list[Any]:
    """Without titles: items whose id begins so, the most rated first."""
    raws = loaded.predictor.items.table[loaded.popular].tolist()
    return [raw for raw in raws if str(raw).startswith(text)][:limit]


def _named(predictor: Predictor, raw: Any) -> Answer:
    at = predictor.items.indices([raw])
    return {"item": raw, "title": _titles(predictor, at)[0]}


def _found(loaded: Loaded, raw: Any) -> Answer:
    at = loaded.predictor.items.index(raw)
    return _named(loaded.predictor, raw) | {"ratings": int(loaded.counts[at])}
