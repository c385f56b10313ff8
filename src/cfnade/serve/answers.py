"""Questions of the schema, put to the Predictor; each answer is ready to be written as JSON.

What a function of an address says of itself is what the schema says of the address.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade import __version__
from cfnade.predictor import Predictor
from cfnade.serve import limits, schemas
from cfnade.serve.loading import Loaded
from cfnade.serve.people import Asked, asked_by, item_of, new_items_in
from cfnade.serve.problems import Problem
from cfnade.sides.side import What

Answer = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_TAIL = 0.1
"""What may lie beyond either end of an interval."""
_MOVED = ("item", "title", "count", "rating", "without", "change")
"""What is told of a rating that moved a prediction, as far as the model says it."""


def predict(loaded: Loaded, asked: schemas.PredictIn) -> Answer:
    """The distribution of a person's rating of given items."""
    predictor = loaded.predictor
    who = asked_by(predictor, asked)
    _check_time(predictor, asked.time)
    new = new_items_in(predictor, asked.new_items)
    indices = {item: predictor.catalogue.certain(item) for item in asked.items if item not in new}
    known = [index for item in asked.items if (index := indices.get(item)) is not None]
    said = iter(_predictions(predictor, who, known, asked.time))
    told = [item for item in asked.items if item in new or indices[item] is not None]
    return {
        "predictions": [
            _of_new(predictor, who, item, new[item]) if item in new else next(said) for item in told
        ],
        "unknown": [item for item in asked.items if item not in new and indices[item] is None],
        "ignored": who.ignored,
    }


def recommend(loaded: Loaded, asked: schemas.RecommendIn) -> Answer:
    """The best items for a person, by expected rating, by P(rating ≥ x), or by a quantile."""
    predictor = loaded.predictor
    who = asked_by(predictor, asked)
    best = predictor.ranked(
        who.user,
        history=who.history,
        n=asked.n,
        exclude_seen=asked.exclude_seen,
        rank=asked.rank,
        threshold=asked.threshold,
        quantile=asked.quantile,
        min_ratings=asked.min_ratings,
    )
    items = _distributions(
        predictor, best.items, best.predictions, best.probabilities, best.known_of_items
    )
    for rank, (item, score) in enumerate(zip(items, best.scores.tolist(), strict=True), 1):
        item |= {"rank": rank, "score": score}
    return {
        "items": items,
        "hidden": best.hidden,
        "min_ratings": best.min_ratings,
        "ignored": who.ignored,
    }


def explain(loaded: Loaded, asked: schemas.ExplainIn) -> Answer:
    """Which ratings moved a prediction, and how much: each left out, exactly."""
    predictor = loaded.predictor
    who = asked_by(predictor, asked)
    index = item_of(predictor, asked.item, "item")
    raw = predictor.items.raw(index)
    frame = predictor.explain(item=raw, user=who.user, history=who.history)
    (prediction,) = _predictions(predictor, who, [index])
    return {
        "item": raw,
        "title": prediction["title"],
        "prediction": prediction,
        "moved": frame.select(name for name in _MOVED if name in frame.columns).to_dicts(),
        "ignored": who.ignored,
    }


def items(loaded: Loaded, asked: schemas.ItemsQuery) -> Answer:
    """Items by title; typing errors, accents, case and "The" are forgiven."""
    predictor, text = loaded.predictor, asked.q.strip()
    if not text:
        indices = loaded.popular[: asked.limit]
    elif predictor.catalogue.titles is None:
        indices = _by_id(loaded, text, asked.limit)
    else:
        indices, _ = predictor.catalogue.search(text, asked.limit)
    names, counts = _named(predictor, indices), loaded.counts[indices].tolist()
    named = [name | {"ratings": count} for name, count in zip(names, counts, strict=True)]
    return {"items": named, "query": asked.q}


def match(loaded: Loaded, asked: schemas.MatchIn) -> Answer:
    """The items that films of a list from elsewhere are; null rather than a wrong one."""
    predictor = loaded.predictor
    indices = [predictor.catalogue.match(film.title, film.year) for film in asked.films]
    matches = [None if at is None else _named(predictor, np.array([at]))[0] for at in indices]
    return {"matches": matches}


def model(loaded: Loaded, bounds: limits.Limits) -> Answer:
    predictor = loaded.predictor
    fitted = predictor.fitted
    return {
        "name": loaded.name,
        "side": fitted.side,
        "scale": list(predictor.scale.values),
        "items": len(predictor.items.table),
        "titles": predictor.catalogue.titles is not None,
        "new_people": fitted.takes_histories and not fitted.needs_times,
        "lists": not fitted.needs_times,
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
            "side": predictor.fitted.side,
            "levels": len(predictor.scale),
            "items": len(predictor.items.table),
            "fingerprint": loaded.fingerprint,
            "loaded_at": loaded.loaded_at,
        },
    }


# -- parts ---------------------------------------------------------------------------------------


def _check_time(predictor: Predictor, time: int | None) -> None:
    if predictor.fitted.needs_times and time is None:
        raise Problem(
            422, "this model knows time: say when, as time in seconds since 1970", where="time"
        )
    if time is not None and not predictor.fitted.needs_times:
        raise Problem(422, "this model does not know time; leave time out", where="time")


def _predictions(
    predictor: Predictor, who: Asked, indices: list[int], time: int | None = None
) -> list[Answer]:
    if not indices:
        return []
    said = predictor.predicted(np.array(indices), who.user, history=who.history, times=time)
    return _distributions(
        predictor, said.items, said.predictions, said.probabilities, said.known_of_item
    )


def _of_new(predictor: Predictor, who: Asked, name: int | str, item: What) -> Answer:
    """What is said of a new item, under the name that it was given."""
    said = predictor.predicted_of_new(item, who.user, history=who.history)
    (answer,) = _described(
        predictor, [{"item": name, "title": None}], *said[1:3], said.known_of_item
    )
    return answer


def _distributions(
    predictor: Predictor,
    indices: IntArray,
    means: FloatArray,
    chances: FloatArray,  # (n, K)
    counts: IntArray,
) -> list[Answer]:
    """Items with what is said of each."""
    return _described(predictor, _named(predictor, indices), means, chances, counts)


def _described(
    predictor: Predictor,
    names: list[Answer],
    means: FloatArray,
    chances: FloatArray,  # (n, K)
    counts: IntArray,
) -> list[Answer]:
    """The same of items by name, column by column: a list of 500 takes no time."""
    values = predictor.scale.array()
    low, median, high = quantiles(chances, values, np.array([_TAIL, 0.5, 1 - _TAIL]))
    columns = {
        "expected": means.tolist(),
        "std": np.sqrt((chances * np.square(values - means[:, None])).sum(1)).tolist(),
        "median": median.tolist(),
        "interval": list(zip(low.tolist(), high.tolist(), strict=True)),
        "probabilities": chances.tolist(),
        "ratings": counts.tolist(),
    }
    lines = zip(names, *columns.values(), strict=True)
    return [named | dict(zip(columns, line, strict=True)) for named, *line in lines]


def quantiles(chances: FloatArray, values: FloatArray, shares: FloatArray) -> FloatArray:
    """The lowest values that a rating exceeds with chance 1 - share at most.

    Of distributions (n, K) and each of some shares (s,). Returns (s, n).
    """
    reached = chances.cumsum(1) >= shares[:, None, None] - 1e-12  # (s, n, K)
    reached[..., -1] = True  # whatever rounding says
    lowest: FloatArray = values[reached.argmax(2)]
    return lowest


def _named(predictor: Predictor, indices: IntArray) -> list[Answer]:
    """Items by raw id and title."""
    titles, raws = predictor.catalogue.titles, predictor.items.table[indices].tolist()
    names = [None] * len(raws) if titles is None else titles[indices].tolist()
    return [{"item": raw, "title": name or None} for raw, name in zip(raws, names, strict=True)]


def _by_id(loaded: Loaded, text: str, limit: int) -> IntArray:
    """Without titles: items whose id begins so, the most rated first."""
    raws = loaded.predictor.items.table[loaded.popular].tolist()
    fitting = [place for place, raw in enumerate(raws) if str(raw).startswith(text)]
    return loaded.popular[fitting[:limit]]
