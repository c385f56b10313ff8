"""Whether the parts of a model fit together; asked before it is saved, trusted or used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade.fitted import FittedModel
from cfnade.implicit.base import Arrays as Tables
from cfnade.sides.side import other_axis


def fault_of(fitted: FittedModel) -> str | None:
    """Why the model cannot be used, or None if it can."""
    return _sides(fitted) or _weights(fitted) or _counts(fitted) or _ratings(fitted)


def _sides(fitted: FittedModel) -> str | None:
    if not fitted.axes or not (fitted.rates or fitted.interaction_model):
        return "no side of it reads ratings"
    if fitted.rates and fitted.context.implicit:
        return "it predicts ratings, and its data have none"
    for name, part in (
        fitted.interaction_model.components.items() if fitted.interaction_model else ()
    ):
        if part.n_items != fitted.context.n_items:
            items = f"{part.n_items:,} items, the model {fitted.context.n_items:,}"
            return f"the choice's {name} side knows {items}"
    for member in fitted.answering:
        for name, side in member.sides.items():
            if reason := side.fault(fitted.context):
                return f"side {name}: {reason}"
    shares = np.array(fitted.shares, np.float64)
    if len(shares) and (
        len(shares) != len(fitted.answering)
        or not (shares >= 0).all()
        or not np.allclose(shares.sum(0), 1.0)
    ):
        return f"shares (={fitted.shares}) of {len(fitted.answering)} members must add up to 1"
    return None


def _weights(fitted: FittedModel) -> str | None:
    parts: list[Tables] = [member.tables() for member in fitted.answering]
    parts += [fitted.interaction_model.arrays()] if fitted.interaction_model else []
    for part in parts:
        for name, table in part.items():
            if table.dtype == np.int32:
                continue  # which items a sparse table names
            if table.dtype != np.float32:
                return f"{name} is {table.dtype}; give float32"
            if not _finite(table):
                return f"{name} holds NaN or infinity; training diverged or the file is damaged"
    return None


def _finite(table: npt.NDArray[np.float32]) -> bool:
    """Whether all numbers are; mostly their sum says so, in one pass over them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(table.sum())) or bool(np.isfinite(table).all())


def _counts(fitted: FittedModel) -> str | None:
    context, counted = fitted.context, fitted.trained_on
    others = set(map(other_axis, fitted.axes))
    if set(counted) != others:
        return f"training counts are of {sorted(counted)}; such a model has those of {others}"
    for axis, counts in counted.items():
        shape = (len(context.ids(axis)), len(context.scale))
        if counts.shape != shape or counts.dtype != np.int64:
            return f"training counts are {counts.dtype} of shape {counts.shape}, not int64 {shape}"
        if counts.min() < 0 or counts.sum() == 0:
            return "training counts must count at least one rating, and none below 0"
    return None


def _ratings(fitted: FittedModel) -> str | None:
    context = fitted.context
    if not fitted.has_context:
        return f"{len(context):,} ratings in a context that has none" if len(context) else None
    limits = {"users": context.n_users, "items": context.n_items, "levels": len(context.scale)}
    for name, limit in limits.items():
        if any(index.min() < 0 or index.max() >= limit for (index,) in context.chunks(name)):
            return f"the context's {name} run beyond the {limit:,} there are"
    for name in ("titles", "genres"):
        texts = getattr(context, name)
        if texts is not None and len(texts) != context.n_items:
            return f"there are {len(texts):,} {name} for {context.n_items:,} items"
    return None
