"""Check that the parts of a model fit together."""

from __future__ import annotations

import numpy as np

from cfnade._typing import Array
from cfnade.components import Component
from cfnade.components.base import other_axis
from cfnade.exceptions import ModelError
from cfnade.fitted_model import FittedModel


def validate_model(model: FittedModel, *, weights: bool) -> None:
    """Raise a ModelError if the parts of a model do not fit together.

    Args:
        model: The model.
        weights: Whether to check that all weights are finite, which reads all of them.
    """
    _check_components(model)
    _check_member_weights(model)
    if weights:
        _check_weights(model)
    _check_training_counts(model)
    _check_context(model)


def _check_components(model: FittedModel) -> None:
    if not model.axes or not (model.predicts_ratings or model.interaction_model):
        raise ModelError("no component of it reads ratings")
    if model.predicts_ratings and model.context.implicit:
        raise ModelError("it predicts ratings, and its data are interactions")
    n_items = model.context.n_items
    interactions = model.interaction_model
    for name, part in interactions.components.items() if interactions else ():
        if part.n_items != n_items:
            raise ModelError(
                f"the implicit component {name} has {part.n_items:,} items, the model {n_items:,}"
            )
    for member in model.members:
        for name, side in member.components.items():
            if reason := side.fault(model.context):
                raise ModelError(f"component {name}: {reason}")


def _check_member_weights(model: FittedModel) -> None:
    weights = np.array(model.member_weights, np.float64)
    if len(weights) and (
        len(weights) != len(model.members)
        or not (weights >= 0).all()
        or not np.allclose(weights.sum(0), 1.0)
    ):
        raise ModelError(
            f"the weights {model.member_weights} of {len(model.members)} members must add up to 1"
        )


def _check_weights(model: FittedModel) -> None:
    parts: list[Component] = [c for m in model.members for c in m.components.values()]
    if model.interaction_model is not None:
        parts += model.interaction_model.components.values()
    for component in parts:
        for name, spec in component.spec(component.config).items():
            array = component.arrays[name]
            if array.dtype != np.dtype(spec.dtype):
                raise ModelError(f"{name} is {array.dtype}; give {spec.dtype}")
            if array.dtype.kind == "f" and not _all_finite(array):
                raise ModelError(f"{name} contains NaN or infinity; training diverged")


def _all_finite(table: Array) -> bool:
    """Return whether all values are finite; usually one pass for the sum is enough."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(table.sum())) or bool(np.isfinite(table).all())


def _check_training_counts(model: FittedModel) -> None:
    context, counts_by_axis = model.context, model.training_counts
    expected = set(map(other_axis, model.axes))
    if set(counts_by_axis) != expected:
        raise ModelError(
            f"training counts are of {sorted(counts_by_axis)}; such a model has those of "
            f"{sorted(expected)}"
        )
    for axis, counts in counts_by_axis.items():
        shape = (len(context.ids(axis)), len(context.scale))
        if counts.shape != shape or counts.dtype != np.int64:
            raise ModelError(
                f"training counts are {counts.dtype} of shape {counts.shape}, not int64 {shape}"
            )
        if counts.min() < 0 or counts.sum() == 0:
            raise ModelError("training counts must count at least one rating, and none below 0")


def _check_context(model: FittedModel) -> None:
    """Check the indices, which compiled kernels use without checking bounds."""
    context = model.context
    if not model.has_context:
        if len(context):
            raise ModelError(f"it has no context, but {len(context):,} ratings in it")
        return
    limits = {"users": context.n_users, "items": context.n_items, "levels": len(context.scale)}
    for name, limit in limits.items():
        if any(index.min() < 0 or index.max() >= limit for (index,) in context.chunks(name)):
            raise ModelError(f"the context's {name} exceed the {limit:,} that exist")
    for name in ("titles", "genres"):
        texts = getattr(context, name)
        if texts is not None and len(texts) != context.n_items:
            raise ModelError(f"there are {len(texts):,} {name} for {context.n_items:,} items")
