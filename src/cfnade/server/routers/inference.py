"""Questions of the schema, put to the Predictor; each answer is ready to be written as JSON.

What a function of an address says of itself is what the schema says of the address.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade import __version__
from cfnade.components.base import What
from cfnade.evaluation.rating_metrics import quantiles
from cfnade.inference.explain import Target
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankBy
from cfnade.inference.results import UserTopN
from cfnade.server import schemas, visit_schemas
from cfnade.server import settings as limits
from cfnade.server.errors import ApiError
from cfnade.server.item_metadata import asked_items
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import (
    ResolvedUser,
    indices_of,
    item_of,
    known_ids,
    new_items_in,
    resolve_user,
)
from cfnade.utils.cancellation import check_cancelled

Answer = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_TAIL = 0.1
"""What may lie beyond either end of an interval."""
_MOVED = ("item", "title", "count", "rating", "without", "change")
"""What is told of a rating that moved a prediction, as far as the model says it."""
_SAID = ("expected", "std", "median", "interval", "probabilities", "usual")
"""What is told of a rating, if the model knows ratings."""


def predict(loaded: LoadedModel, asked: schemas.PredictIn) -> Answer:
    """The distribution of a person's rating of given items."""
    predictor = loaded.predictor
    if not predictor.fitted.rates:
        raise ApiError(422, "this model knows no ratings to predict; POST /recommend makes lists")
    who = resolve_user(predictor, asked)
    _check_time(predictor, asked.time)
    new = new_items_in(predictor, asked.new_items) if asked.new_items else {}
    different = list(dict.fromkeys(asked.items))
    indices = indices_of(predictor, [item for item in different if item not in new])
    known = {item: index for item, index in indices.items() if index is not None}
    said = _predictions(predictor, who, list(known.values()), asked.time)
    predictions = dict(zip(known, said, strict=True))
    for item in different:
        if item in new:
            check_cancelled()
            predictions[item] = of_new(predictor, who, item, new[item])
    return {
        "predictions": [predictions[item] for item in asked.items if item in predictions],
        "unknown": [item for item in asked.items if item not in predictions],
        "ignored": who.ignored,
    }


def recommend(loaded: LoadedModel, asked: schemas.RecommendIn) -> Answer:
    """The best items for a person, by what they would pick and like, or by a rating."""
    predictor = loaded.predictor
    who = resolve_user(predictor, asked)
    only, unknown = known_ids(predictor, asked.items)
    without, unknown_too = known_ids(predictor, asked.without)
    best = predictor.ranked(
        who.user,
        history=who.history,
        n=asked.n,
        exclude_seen=asked.exclude_seen,
        rank_by=asked.rank,
        balance=asked.taste,
        threshold=asked.threshold,
        personalization=asked.own,
        min_ratings=asked.min_ratings,
        candidate_items=asked_items(loaded.metadata, predictor, only, asked.decades),
        exclude_items=without,
        genres=asked.genres,
        diversity=asked.diversity,
    )
    return {
        "items": listed(loaded, best),
        "hidden": best.n_hidden_items,
        "min_ratings": best.min_ratings,
        "unknown": [*unknown, *unknown_too],
        "ignored": who.ignored,
    }


def explain(loaded: LoadedModel, asked: schemas.ExplainIn) -> Answer:
    """Which ratings moved a prediction, or made a pick likelier: each left out, exactly."""
    predictor = loaded.predictor
    who = resolve_user(predictor, asked)
    index = item_of(predictor, asked.item, "item")
    (name,) = _named(predictor, np.array([index]))
    frame = predictor.explain(
        item=name["item"], user=who.user, history=who.history, target=_target(asked)
    )
    answer = name | {"prediction": None, "pick": None, "ignored": who.ignored}
    if "lift" in frame.columns:
        columns = ("item", "title", "rating", "without", "times")
        names = {"lift": "times", "interaction_probability": "pick"}
        lines = frame.rename(names).to_dicts()
        moved = [{column: line.get(column) for column in columns} for line in lines]
        return answer | {"pick": lines[0]["pick"] if lines else None, "moved": moved}
    (prediction,) = _predictions(predictor, who, [index])
    moved = frame.select(column for column in _MOVED if column in frame.columns).to_dicts()
    return answer | {"prediction": prediction, "moved": moved}


def similar(loaded: LoadedModel, asked: schemas.SimilarIn) -> Answer:
    """The items most like one, the most alike first."""
    predictor = loaded.predictor
    index = item_of(predictor, asked.item, "item")
    (name,) = _named(predictor, np.array([index]))
    frame = predictor.similar_items(name["item"], n=asked.n)
    by = "cosine" if predictor.fitted.interaction_model is None else "times"
    return name | {"by": by, "items": frame.rename({"n_item_ratings": "ratings"}).to_dicts()}


def items(loaded: LoadedModel, asked: schemas.ItemsQuery) -> Answer:
    """Items by title; typing errors, accents, case and "The" are forgiven."""
    predictor, text = loaded.predictor, asked.q.strip()
    if not text:
        indices = loaded.popular[: asked.limit]
    elif predictor.catalog.titles is None:
        indices = _by_id(loaded, text, asked.limit)
    else:
        indices, _ = predictor.catalog.search(text, asked.limit)
    names, counts = _named(predictor, indices), loaded.counts[indices].tolist()
    named = [name | {"ratings": count} for name, count in zip(names, counts, strict=True)]
    return {"items": named, "query": asked.q}


def match(loaded: LoadedModel, asked: schemas.MatchIn) -> Answer:
    """The items that films of a list from elsewhere are; null rather than a wrong one."""
    predictor = loaded.predictor
    titles = [(film.title, film.year) for film in asked.films]
    found = {}
    for title in dict.fromkeys(titles):
        check_cancelled()
        found[title] = predictor.catalog.match(*title)
    indices = [found[title] for title in titles]
    matches = [None if at is None else _named(predictor, np.array([at]))[0] for at in indices]
    return {"matches": matches}


def ask(loaded: LoadedModel, asked: visit_schemas.AskIn) -> Answer:
    """What to ask somebody next: the items whose ratings would tell most of them."""
    predictor = loaded.predictor
    who = resolve_user(predictor, asked)
    without = indices_of(predictor, asked.without or [])
    left_out = np.array([at for at in without.values() if at is not None], np.int64)
    questions = predictor.interview.questions(who.as_known_by(predictor), asked.n, left_out)
    lines = zip(
        _named(predictor, questions.items),
        loaded.counts[questions.items].tolist(),
        questions.reductions.tolist(),
        strict=True,
    )
    return {
        "items": [
            name | {"ratings": count, "reduction": _or_null(by)} for name, count, by in lines
        ],
        "unknown": _or_null(questions.unknown),
        "ignored": who.ignored,
    }


def item_map(loaded: LoadedModel) -> Answer:
    """The best known items in two dimensions, like ones near each other; the same for everybody."""
    items, places = loaded.places
    named, counts = _named(loaded.predictor, items), loaded.counts[items].tolist()
    lines = zip(items.tolist(), named, counts, places.tolist(), strict=True)
    return {
        "items": [
            name | {"x": x, "y": y, "ratings": count, "genres": loaded.metadata.genres[item]}
            for item, name, count, (x, y) in lines
        ]
    }


def model(loaded: LoadedModel, bounds: limits.Limits, noun: str | None, people: bool) -> Answer:
    predictor = loaded.predictor
    fitted = predictor.fitted
    return {
        "name": loaded.name,
        "side": fitted.side,
        "ratings": fitted.rates,
        "picks": fitted.interaction_model is not None,
        "scale": list(predictor.scale.values) if fitted.rates else [],
        "items": len(predictor.items.table),
        "titles": predictor.catalog.titles is not None,
        "new_people": fitted.takes_histories and not fitted.needs_times,
        "lists": not fitted.needs_times,
        "people": people,
        "min_ratings": predictor.default_min_ratings,
        "limits": {
            "history": limits.HISTORY,
            "n": limits.BEST,
            "items": limits.ITEMS,
            "body_bytes": bounds.body_bytes,
        },
        "ranks": ranks(predictor),
        "rank": ranks(predictor)[0],
        "genres": list(predictor.genres),
        "decades": loaded.metadata.decades,
        "noun": noun or loaded.metadata.noun,
        "samples": loaded.samples,
    }


def version(loaded: LoadedModel) -> Answer:
    predictor = loaded.predictor
    return {
        "cfnade": __version__,
        "python": platform.python_version(),
        "model": {
            "name": loaded.name,
            "side": predictor.fitted.side,
            "levels": len(predictor.scale) if predictor.fitted.rates else 0,
            "items": len(predictor.items.table),
            "fingerprint": loaded.fingerprint,
            "loaded_at": loaded.loaded_at.isoformat(timespec="seconds"),
        },
    }


# -- parts ---------------------------------------------------------------------------------------


def ranks(predictor: Predictor) -> list[RankBy]:
    """What lists may be ranked by; the first is what they are if nothing is said."""
    picked: list[RankBy] = ["interaction"] if predictor.fitted.interaction_model else []
    rated: list[RankBy] = ["prediction", "threshold"]
    return [*picked, *(rated if predictor.fitted.rates else [])]


def _target(asked: schemas.ExplainIn) -> Target | None:
    return "interaction" if asked.of == "pick" else asked.of


def _check_time(predictor: Predictor, time: int | None) -> None:
    if predictor.fitted.needs_times and time is None:
        raise ApiError(
            422, "this model knows time: say when, as time in seconds since 1970", where="time"
        )
    if time is not None and not predictor.fitted.needs_times:
        raise ApiError(422, "this model does not know time; leave time out", where="time")


def _predictions(
    predictor: Predictor, who: ResolvedUser, indices: list[int], time: int | None = None
) -> list[Answer]:
    if not indices:
        return []
    said = predictor.predicted(np.array(indices), who.user, history=who.history, timestamp=time)
    return _distributions(
        predictor, said.items, said.predictions, said.probabilities, said.n_item_ratings
    )


def listed(loaded: LoadedModel, best: UserTopN) -> list[Answer]:
    """The lines of a list."""
    predictor, counts = loaded.predictor, best.n_item_ratings
    genres = [loaded.metadata.genres[item] for item in best.items.tolist()]
    if predictor.fitted.rates:
        said = best.predictions, best.probabilities, counts
        items = _distributions(predictor, best.items, *said)
    else:
        items = _named(predictor, best.items)
        nothing = dict.fromkeys(_SAID)
        items = [
            name | nothing | {"ratings": count}
            for name, count in zip(items, counts.tolist(), strict=True)
        ]
    picks = [None] * len(items) if best.picks is None else best.picks.tolist()
    lines = zip(items, best.scores.tolist(), picks, genres, strict=True)
    return [
        item | {"rank": rank, "score": score, "pick": pick, "genres": own}
        for rank, (item, score, pick, own) in enumerate(lines, 1)
    ]


def of_new(predictor: Predictor, who: ResolvedUser, name: int | str, item: What) -> Answer:
    """What is said of a new item, under the name that it was given."""
    said = predictor.predicted_of_new(item, who.user, history=who.history)
    (answer,) = _described(
        predictor, [{"item": name, "title": None}], *said[1:3], said.n_item_ratings, [None]
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
    usual = predictor.baseline[indices].tolist()
    return _described(predictor, _named(predictor, indices), means, chances, counts, usual)


def _described(
    predictor: Predictor,
    names: list[Answer],
    means: FloatArray,
    chances: FloatArray,  # (n, K)
    counts: IntArray,
    usual: list[Any],
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
        "usual": usual,
        "ratings": counts.tolist(),
    }
    lines = zip(names, *columns.values(), strict=True)
    return [named | dict(zip(columns, line, strict=True)) for named, *line in lines]


def _or_null(number: float) -> float | None:
    return None if np.isnan(number) else number


def _named(predictor: Predictor, indices: IntArray) -> list[Answer]:
    """Items by raw id and title."""
    titles, raws = predictor.catalog.titles, predictor.items.table[indices].tolist()
    names = [None] * len(raws) if titles is None else titles[indices].tolist()
    return [{"item": raw, "title": name or None} for raw, name in zip(raws, names, strict=True)]


def _by_id(loaded: LoadedModel, text: str, limit: int) -> IntArray:
    """Without titles: items whose id begins so, the most rated first."""
    raws = loaded.predictor.items.table[loaded.popular].tolist()
    fitting = [place for place, raw in enumerate(raws) if str(raw).startswith(text)]
    return loaded.popular[fitting[:limit]]
