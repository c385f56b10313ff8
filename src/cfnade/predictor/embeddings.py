"""Embeddings: what the model knows of each user or item as one vector."""

from __future__ import annotations

import polars as pl
import torch

from cfnade.bundle import Bundle
from cfnade.data.ratings import Side
from cfnade.errors import PredictionError
from cfnade.predictor.frames import id_series
from cfnade.predictor.scoring import all_sums


@torch.no_grad()
def embeddings(bundle: Bundle, side: Side) -> pl.DataFrame:
    """A frame of raw ids, titles of items if known, and vectors.

    A row of the model is described by its hidden state (the last layer), a column by the output
    weights of its levels, one after the other. With side "both" users and items are rows, each of
    one side. Of an ensemble the first model is taken: vectors of different seeds have no mean.
    """
    views = {view.side: view for view in bundle.members()[0].sides()}
    bundle = views.get(side) or next(iter(views.values()))
    context, model = bundle.context, bundle.one_sided_model
    ids = context.user_ids if side == "user" else context.item_ids
    if side == bundle.side:
        if not bundle.has_context:
            raise PredictionError("this model was saved without ratings: it knows no such row")
        rows = context.rows(side)
        counts = torch.from_numpy(rows.counts())
        vectors = model.hidden_from_sums(all_sums(model, rows), counts)
    else:
        vectors = model.output_table.flatten(1)
    columns: dict[str, pl.Series] = {side: id_series(ids, texts=ids.dtype == object)}
    if side == "item" and context.titles is not None:
        columns["title"] = pl.Series(context.titles.tolist(), dtype=pl.String)
    width = vectors.shape[1]
    flat = pl.Series(vectors.float().numpy().ravel()).reshape((-1, width))
    return pl.DataFrame({**columns, "vector": flat})
