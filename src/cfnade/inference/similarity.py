"""How alike items are: their vectors, more like one of them, and lists less of the same."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfnade._typing import IntArray
from cfnade.components import Axis
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.implicit.base import ScoreArray
from cfnade.inference.objectives import FloatArray
from cfnade.inference.results import RankedItems, id_series, item_columns
from cfnade.inference.scorer import Scorer

POPULAR = 0.5
"""How far an item's popularity counts: 0 lists the least known of the like, 1 the best known."""

LONGER = 5
"""So many times longer is the list from which a varied one is chosen."""


# -- vectors -------------------------------------------------------------------------------------


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
    if not fitted.predicts_ratings and axis == "item" and fitted.interaction_model is not None:
        vectors = fitted.interaction_model.item_vectors()
        if vectors is not None:
            return vectors
    sides = [side for member in fitted.members[:1] for side in member.components.values()]
    for side in sorted(sides, key=lambda side: side.axis != axis):
        if side.axis == axis and not fitted.has_context:
            raise PredictionError("this model was saved without ratings: it knows no such row")
        table = side.vectors(fitted.context, axis)
        if table is not None:
            return np.asarray(table, np.float32)
    raise PredictionError(f"no side of this model has a vector for each {axis}")


# -- more like this ------------------------------------------------------------------------------


def lifts(model: InteractionModel, item: int) -> tuple[ScoreArray, ScoreArray]:
    """Return log p(i | item) and log p(i | nothing) of every item, both (M,)."""
    columns, weights = np.array([item], np.int32), np.ones(1, np.float32)
    rows = InteractionRows(np.array([0, 1]), columns, weights, model.n_items)
    return model.log_probabilities(rows)[0], model.base_log_probabilities


def similar_by_picks(scorer: Scorer, model: InteractionModel, item: int, n: int) -> pl.DataFrame:
    """By how many times likelier an item is picked after this one than by anybody."""
    picked, alone = lifts(model, item)
    score = picked - (1 - POPULAR) * alone
    return _frame(scorer, item, score, np.exp((picked - alone).astype(np.float64)), n)


def similar_by_vectors(scorer: Scorer, vectors: ScoreArray, item: int, n: int) -> pl.DataFrame:
    """By the cosine of vectors."""
    score = vectors @ vectors[item]
    return _frame(scorer, item, score.copy(), score.astype(np.float64), n)


def _frame(scorer: Scorer, item: int, score: ScoreArray, shown: FloatArray, n: int) -> pl.DataFrame:
    score[item] = -np.inf
    order: IntArray = np.lexsort((np.arange(len(score)), -score))[: min(n, len(score) - 1)]
    return pl.DataFrame(
        {
            "rank": 1 + np.arange(len(order)),
            **item_columns(scorer.fitted.context, order),
            "similarity": shown[order],
            "n_item_ratings": scorer.known_of("item", order),
        }
    )


# -- less of the same: maximal marginal relevance (Carbonell and Goldstein 1998) -----------------


def varied(
    top: RankedItems, n: int, vectors: ScoreArray, share: float, *, chances: bool
) -> RankedItems:
    """The n of each person's list that are good and unlike each other; they keep their scores.

    From a longer list items are taken one by one: each time the one with the largest

        (1 - d) · relevance - d · likeness to the most alike of those taken

    where d is the share, relevance the score (of a chance its logarithm), stretched to 0..1 over
    the longer list, and likeness the cosine of two items' vectors, 0 at least.
    `chances` says that scores are chances, else stars.
    """
    good = np.log(np.maximum(top.scores, 1e-300)) if chances else top.scores
    starts = np.flatnonzero(np.diff(top.which, prepend=-1))
    ends = np.append(starts, len(top.which))[1:]
    chosen = [
        start + _one(top.items[start:end], good[start:end], n, vectors, share)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    order = np.concatenate([np.empty(0, np.int64), *chosen])
    return top.take(order)


def _one(items: IntArray, good: FloatArray, n: int, vectors: ScoreArray, share: float) -> IntArray:
    """Places in one person's list, in the order in which they are taken."""
    spread = good.max() - good.min()
    relevance = (good - good.min()) / spread if spread > 0 else np.ones(len(good))
    alike = vectors[items] @ vectors[items].T
    nearest, taken = np.zeros(len(items)), list[int]()
    for _ in range(min(n, len(items))):
        worth = (1 - share) * relevance - share * nearest
        worth[taken] = -np.inf
        taken.append(int(worth.argmax()))
        nearest = np.maximum(nearest, alike[taken[-1]])
    return np.array(taken, np.int64)
