"""Whether the parts of a bundle fit together; asked before one is saved, trusted or used."""

from __future__ import annotations

import numpy as np
import torch

from cfnade.bundle import SIDES, SIDES_IN_WORDS, Bundle
from cfnade.models.joint import JointConfig


def fault_of(bundle: Bundle) -> str | None:
    """Why the bundle cannot be used, or None if it can."""
    return _sizes(bundle) or _weights(bundle) or _counts(bundle) or _ratings(bundle)


def _sizes(bundle: Bundle) -> str | None:
    context = bundle.context
    if bundle.side not in SIDES:
        return f"side is {bundle.side!r}; it must be {SIDES_IN_WORDS}"
    joint = isinstance(bundle.model.config, JointConfig)
    if joint != (bundle.side == "both") or joint == (bundle.row_counts is None):
        return f'side "{bundle.side}" does not belong to such a model'
    if reason := _time(bundle):
        return reason
    for view in bundle.members()[0].sides():
        config = view.one_sided_model.config
        columns = context.n_items if view.side == "user" else context.n_users
        if columns != config.columns:
            return f"the id table has {columns:,} columns, the model {config.columns:,}"
        if len(context.scale) != config.levels:
            return f"the scale {context.scale} has {len(context.scale)} levels, not {config.levels}"
    return None


def _time(bundle: Bundle) -> str | None:
    when, context = bundle.when, bundle.context
    if bundle.knows_time != (when is not None):
        return "a model that knows time and its time features must come together"
    if when is not None and (len(when.user), len(when.item)) != (context.n_users, context.n_items):
        return "the time features are those of other users or items"
    return None


def _weights(bundle: Bundle) -> str | None:
    for name, tensor in bundle.model.state_dict().items():
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return f"{name} is {tensor.dtype} on {tensor.device}; give float32 on the CPU"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name} holds NaN or infinity; training diverged or the file is damaged"
    return None


def _counts(bundle: Bundle) -> str | None:
    for view in bundle.members()[0].sides():
        counts, config = view.column_counts, view.one_sided_model.config
        if counts.shape != (config.columns, config.levels):
            shape = (config.columns, config.levels)
            return f"column_counts have shape {counts.shape}; they must have {shape}"
        if counts.min() < 0 or counts.sum() == 0:
            return "column_counts must count at least one training rating, and none below 0"
    return None


def _ratings(bundle: Bundle) -> str | None:
    context = bundle.context
    if not bundle.has_context:
        return f"{len(context):,} ratings in a context that has none" if len(context) else None
    limits = {"users": context.n_users, "items": context.n_items, "levels": len(context.scale)}
    for name, limit in limits.items():
        index = getattr(context, name)
        if index.shape != context.levels.shape:
            return f"the context has {len(index):,} {name} but {len(context):,} levels"
        if len(index) and not 0 <= int(np.min(index)) <= int(np.max(index)) < limit:
            return f"the context's {name} run beyond the {limit:,} there are"
    for name in ("titles", "genres"):
        texts = getattr(context, name)
        if texts is not None and len(texts) != context.n_items:
            return f"there are {len(texts):,} {name} for {context.n_items:,} items"
    return None
