"""Embeddings: what the model knows of each user or item as one vector."""

from __future__ import annotations

import polars as pl

from cfnade.errors import PredictionError
from cfnade.fitted import FittedModel
from cfnade.predictor.frames import id_series
from cfnade.sides import Axis


def embeddings(fitted: FittedModel, axis: Axis) -> pl.DataFrame:
    """A frame of raw ids, titles of items if known, and vectors.

    They come from a side whose rows are these, if there is one, else from a side that has weights
    for them. Of several members the first is taken: vectors of different seeds have no mean.
    """
    sides = fitted.members[0].sides.values()
    context, ids = fitted.context, fitted.context.ids(axis)
    for side in sorted(sides, key=lambda side: side.axis != axis):
        if side.axis == axis and not fitted.has_context:
            raise PredictionError("this model was saved without ratings: it knows no such row")
        vectors = side.vectors(context, axis)
        if vectors is not None:
            break
    else:
        raise PredictionError(f"no side of this model has a vector for each {axis}")
    columns: dict[str, pl.Series] = {axis: id_series(ids, texts=ids.dtype == object)}
    if axis == "item" and context.titles is not None:
        columns["title"] = pl.Series(context.titles.tolist(), dtype=pl.String)
    flat = pl.Series(vectors.detach().float().numpy().ravel()).reshape((-1, vectors.shape[1]))
    return pl.DataFrame({**columns, "vector": flat})
