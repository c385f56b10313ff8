"""Whether the parts of a bundle fit together; asked before one is saved, trusted or used."""

from __future__ import annotations

import numpy as np
import torch

from cfnade.bundle import Bundle


def fault_of(bundle: Bundle) -> str | None:
    """Why the bundle cannot be used, or None if it can."""
    return _sizes(bundle) or _weights(bundle) or _counts(bundle) or _ratings(bundle)


def _sizes(bundle: Bundle) -> str | None:
    config, context = bundle.model.config, bundle.context
    if bundle.side not in ("user", "item"):
        return f'side is {bundle.side!r}; it must be "user" or "item"'
    columns = context.n_items if bundle.side == "user" else context.n_users
    if columns != config.columns:
        return f"the id table has {columns:,} columns, the model {config.columns:,}"
    if len(context.scale) != config.levels:
        return f"the scale {context.scale} has {len(context.scale)} levels, not {config.levels}"
    return None


def _weights(bundle: Bundle) -> str | None:
    for name, tensor in bundle.model.state_dict().items():
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return f"{name} is {tensor.dtype} on {tensor.device}; give float32 on the CPU"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name} holds NaN or infinity; training diverged or the file is damaged"
    return None


def _counts(bundle: Bundle) -> str | None:
    counts, config = bundle.column_counts, bundle.model.config
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
