"""Answers as polars frames: raw ids, titles and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def id_series(raw: Sequence[Any] | npt.NDArray[Any], *, texts: bool) -> pl.Series:
    """Raw ids as a column: integers, or texts if one is a text or the data's ids are."""
    if isinstance(raw, np.ndarray) and raw.dtype != object:
        return pl.Series(raw)
    listed = list(raw)
    if texts or any(isinstance(one, str) for one in listed):
        return pl.Series([str(one) for one in listed], dtype=pl.String)
    return pl.Series(listed, dtype=pl.Int64)


def title_series(ratings: Ratings, items: IntArray) -> pl.Series:
    """Titles of items by index; null where there is none, or the item is unknown (-1)."""
    known = ratings.titles
    texts = [None if known is None or i < 0 else known[i] or None for i in items.tolist()]
    return pl.Series(texts, dtype=pl.String)


def distribution_columns(
    probabilities: FloatArray, predictions: FloatArray, scale: Scale
) -> dict[str, pl.Series]:
    """prediction, std, and p_ for each value of the scale, of distributions (n, K)."""
    values = scale.array()
    gaps = np.square(values - predictions[:, None])  # (n, K)
    columns = {
        "prediction": pl.Series(predictions),
        "std": pl.Series(np.sqrt((probabilities * gaps).sum(1))),
    }
    names = probability_names(scale)
    return columns | {
        name: pl.Series(np.ascontiguousarray(probabilities[:, k])) for k, name in enumerate(names)
    }


def probability_names(scale: Scale) -> list[str]:
    """p_1, p_2 … or p_0.5, p_1 …: one for each value of the scale."""
    short = [f"p_{value:g}" for value in scale.values]
    return short if len(set(short)) == len(short) else [f"p_{value!r}" for value in scale.values]
