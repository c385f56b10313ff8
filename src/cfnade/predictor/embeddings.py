"""Embeddings: what the model knows of each user or item as one vector."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfnade.choice.choice_side import ScoreArray
from cfnade.errors import PredictionError
from cfnade.fitted import FittedModel
from cfnade.predictor.frames import id_series
from cfnade.sides import Axis


def embeddings(fitted: FittedModel, axis: Axis) -> pl.DataFrame:
    """A frame of raw ids, titles of items if known, and vectors.

    They come from a side whose rows are these, if there is one, else from a side that has weights
    for them. Of several members the first is taken: vectors of different seeds have no mean.
    """
    context, ids = fitted.context, fitted.context.ids(axis)
    vectors = _vectors(fitted, axis)
    columns: dict[str, pl.Series] = {axis: id_series(ids, texts=ids.dtype == object)}
    if axis == "item" and context.titles is not None:
        columns["title"] = pl.Series(context.titles.tolist(), dtype=pl.String)
    flat = pl.Series(vectors.ravel()).reshape((-1, vectors.shape[1]))
    return pl.DataFrame({**columns, "vector": flat})


def unit_vectors(fitted: FittedModel) -> ScoreArray:
    """The same of items, each of length 1. Returns (M, D)."""
    vectors = _vectors(fitted, "item")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


def _vectors(fitted: FittedModel, axis: Axis) -> ScoreArray:
    if not fitted.rates and axis == "item" and fitted.choice is not None:
        vectors = fitted.choice.vectors()
        if vectors is not None:
            return vectors
    sides = [side for member in fitted.answering[:1] for side in member.sides.values()]
    for side in sorted(sides, key=lambda side: side.axis != axis):
        if side.axis == axis and not fitted.has_context:
            raise PredictionError("this model was saved without ratings: it knows no such row")
        table = side.vectors(fitted.context, axis)
        if table is not None:
            return np.asarray(table, np.float32)
    raise PredictionError(f"no side of this model has a vector for each {axis}")
