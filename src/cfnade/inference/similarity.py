"""Similar items, vectors of users and items, and diverse lists."""

from __future__ import annotations

import numpy as np
import polars as pl
from annotated_types import Ge

from cfnade._typing import IntArray
from cfnade.components import Axis
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionRows
from cfnade.implicit.base import ScoreArray
from cfnade.inference.results import FloatArray, id_series, item_columns
from cfnade.inference.scorer import Scorer
from cfnade.utils.validation import check_scalar

POPULARITY = 0.5
"""Weight of an item's popularity in its similarity: 0 prefers rare items, 1 popular ones."""


# -- similar items ---------------------------------------------------------------------------------


def similar_items(scorer: Scorer, vectors: ScoreArray | None, item: int, n: int) -> pl.DataFrame:
    """Return the items most similar to an item: rank, item, title, similarity, n_item_ratings.

    If the model has learned interactions, `similarity` is the lift: how many times as likely an
    item is as the next interaction after this one as without any. Else it is the cosine of the
    items' vectors (M, D).
    """
    n = check_scalar("n", n, int, Ge(1), error=PredictionError)
    if vectors is None:
        conditional, base = interaction_log_probabilities(scorer.fitted, item)
        score = conditional - (1 - POPULARITY) * base
        similarity = np.exp((conditional - base).astype(np.float64))
    else:
        score = vectors @ vectors[item]
        similarity = score.astype(np.float64)
    counts = scorer.rating_counts("item", np.arange(len(score)))
    candidates = counts > 0 if counts.any() else np.ones(len(score), bool)
    candidates[item] = False  # nor items without data, whose vectors and lifts mean nothing
    score[~candidates] = -np.inf
    n = min(n, int(candidates.sum()))
    order: IntArray = np.lexsort((np.arange(len(score)), -score))[:n]
    return pl.DataFrame(
        {
            "rank": 1 + np.arange(len(order)),
            **item_columns(scorer.fitted.context, order),
            "similarity": similarity[order],
            "n_item_ratings": scorer.rating_counts("item", order),
        }
    )


def interaction_log_probabilities(fitted: FittedModel, item: int) -> tuple[ScoreArray, ScoreArray]:
    """Return log P(next is i | item) and log P(next is i | no interactions), both (M,)."""
    model = fitted.interaction_model
    assert model is not None
    columns, weights = np.array([item], np.int32), np.ones(1, np.float32)
    rows = InteractionRows(np.array([0, 1]), columns, weights, model.n_items)
    return model.log_probabilities(rows)[0], model.base_log_probabilities


# -- vectors ---------------------------------------------------------------------------------------


def embeddings(fitted: FittedModel, axis: Axis) -> pl.DataFrame:
    """Return a frame with ids, titles of items if there are any, and vectors."""
    context, ids = fitted.context, fitted.context.ids(axis)
    vectors = _vectors(fitted, axis)
    columns: dict[str, pl.Series] = {axis: id_series(ids, texts=ids.dtype == object)}
    if axis == "item" and context.titles is not None:
        columns["title"] = pl.Series(context.titles.tolist(), dtype=pl.String)
    flat = pl.Series(vectors.ravel()).reshape((-1, vectors.shape[1]))
    return pl.DataFrame({**columns, "vector": flat})


def item_vectors(fitted: FittedModel) -> ScoreArray:
    """Return a vector of length 1 for each item, (M, D): of its interactions, or of ratings."""
    model = fitted.interaction_model
    vectors = None if model is None else model.item_vectors()
    if vectors is not None:
        return vectors
    vectors = _vectors(fitted, "item")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


def _vectors(fitted: FittedModel, axis: Axis) -> ScoreArray:
    """Return a vector of each user or item.

    It is the state of a row if a component has these rows, else weights. Members with different
    seeds have different axes, so the vectors are those of the first member.
    """
    model = fitted.interaction_model
    if not fitted.predicts_ratings and axis == "item" and model is not None:
        vectors = model.item_vectors()
        if vectors is not None:
            return vectors
    components = [c for member in fitted.members[:1] for c in member.components.values()]
    for component in sorted(components, key=lambda component: component.axis != axis):
        if component.axis == axis and not fitted.has_context:
            raise PredictionError(
                f"this model was saved without ratings, so it has no vectors of each {axis}"
            )
        table = component.vectors(fitted.context, axis)
        if table is not None:
            return np.asarray(table, np.float32)
    raise PredictionError(f"no component of this model has a vector for each {axis}")


# -- diversity -------------------------------------------------------------------------------------


def diversify(
    user: IntArray,
    items: IntArray,
    relevance: FloatArray,
    n: int,
    vectors: ScoreArray,
    diversity: float,
) -> IntArray:
    """Select n diverse entries of each user's list by maximal marginal relevance.

    Entries are selected one by one (Carbonell and Goldstein 1998), each time the one with the
    largest

        (1 - diversity) · relevance - diversity · largest similarity to the selected items

    where the relevance is scaled to 0..1 over the list, and the similarity is the cosine of the
    items' vectors, at least 0.

    Args:
        user: User of each entry, in order, (m,).
        items: Item of each entry.
        relevance: Relevance of each entry.
        n: Number of entries to select.
        vectors: Vector of each item, (M, D).
        diversity: 0 to 1.

    Returns:
        The places of the selected entries, user by user, in the order of their selection.
    """
    starts = np.flatnonzero(np.diff(user, prepend=-1))
    ends = np.append(starts, len(user))[1:]
    selected = [np.empty(0, np.int64)]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = slice(start, end)
        places = _select_diverse(items[part], relevance[part], n, vectors, diversity)
        selected.append(start + places)
    return np.concatenate(selected)


def _select_diverse(
    items: IntArray, relevance: FloatArray, n: int, vectors: ScoreArray, diversity: float
) -> IntArray:
    spread = relevance.max() - relevance.min()
    relevance = (relevance - relevance.min()) / spread if spread > 0 else np.ones(len(items))
    similarities = vectors[items] @ vectors[items].T
    nearest, selected = np.zeros(len(items)), list[int]()
    for _ in range(min(n, len(items))):
        values = (1 - diversity) * relevance - diversity * nearest
        values[selected] = -np.inf
        selected.append(int(values.argmax()))
        nearest = np.maximum(nearest, similarities[selected[-1]])
    return np.array(selected, np.int64)
