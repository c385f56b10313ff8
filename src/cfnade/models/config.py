"""The fields that fix a CF-NADE model; a model and its numbers are nothing without them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

from cfnade.errors import ModelError
from cfnade.models.checks import require, require_one_of

ACTIVATIONS = ("tanh", "sigmoid", "relu", "softplus", "elu")
CONTEXT_SCALES = ("sum", "sqrt")
TARGET_WEIGHTS = ("paper", "unit")

_MOST_NUMBERS = 2**40  # weights; 4 bytes each is beyond any machine that this is meant for


@dataclass(frozen=True, kw_only=True)
class CFNADEConfig:
    """Checked once, on creation. The defaults are the paper's CF-NADE-S with one layer, λ = 1."""

    columns: int
    """M: how many columns a row may rate."""
    levels: int
    """K: how many levels the rating scale has, from the data."""
    hidden: tuple[int, ...] = (500,)
    """H of each hidden layer, first to last; more than one makes the model deep (Eq. 20)."""
    factors: int | None = None
    """J: the rank of the factored weights (Eq. 11-12), or None for full weights."""
    shared: bool = True
    """Whether a level uses the weights of all levels up to it (Eq. 9-10) or its own (Eq. 2, 4)."""
    activation: str = "tanh"
    """g."""
    context_scale: str = "sum"
    """What multiplies the summed context: "sum" 1 (the paper), "sqrt" √(mean_context / n)."""
    mean_context: float | None = None
    """The mean size of a context, for context_scale "sqrt" alone."""
    target_weight: str = "paper"
    """What a target counts where batches are drawn: "paper" D/(D-i+1) (Eq. 19), "unit" 1."""
    ordinal_weight: float = 1.0
    """λ: the ordinal cost's share (Eq. 18); the rest is the regular cost."""

    def __post_init__(self) -> None:
        require(
            isinstance(self.hidden, Sequence) and not isinstance(self.hidden, str | bytes),
            f"hidden (={self.hidden!r}) must be a sequence of layer sizes, such as (500,)",
        )
        _check_types(self)
        self._make_plain()
        _check_sizes(self)
        require_one_of("activation", self.activation, ACTIVATIONS)
        require_one_of("context_scale", self.context_scale, CONTEXT_SCALES)
        require_one_of("target_weight", self.target_weight, TARGET_WEIGHTS)
        require(
            0.0 <= self.ordinal_weight <= 1.0,
            f"ordinal_weight (={self.ordinal_weight}) must lie between 0 and 1",
        )
        _check_mean_context(self.context_scale, self.mean_context)

    def _make_plain(self) -> None:
        """Python's own numbers, which JSON can hold; a tuple where JSON gave back a list."""
        object.__setattr__(self, "hidden", tuple(int(size) for size in self.hidden))
        kinds = {"columns": int, "levels": int, "factors": int}
        for name, kind in (kinds | {"ordinal_weight": float, "mean_context": float}).items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, kind(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, so that it can be written as JSON."""
        return {**asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CFNADEConfig:
        known = {field.name for field in fields(cls)}
        for key in values:
            require(key in known, f"unknown field {key!r} of a CF-NADE; known: {sorted(known)}")
        for key in ("columns", "levels"):
            require(key in values, f"the field {key!r} of a CF-NADE is missing; it has no default")
        return cls(**values)


def _check_types(config: CFNADEConfig) -> None:
    for name in ("columns", "levels", "factors"):
        value = getattr(config, name)
        fits = _is_whole(value) or (value is None and name == "factors")
        require(fits, f"{name} (={value!r}) must be a whole number")
    require(
        all(_is_whole(size) for size in config.hidden),
        f"hidden (={config.hidden!r}) must hold whole numbers, such as (500,)",
    )
    require(isinstance(config.shared, bool), f"shared (={config.shared!r}) must be true or false")
    for name in ("ordinal_weight", "mean_context"):
        value = getattr(config, name)
        fits = isinstance(value, Real) and not isinstance(value, bool)
        fits = fits or (value is None and name == "mean_context")
        require(fits, f"{name} (={value!r}) must be a number")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_sizes(config: CFNADEConfig) -> None:
    columns, levels, hidden, factors = config.columns, config.levels, config.hidden, config.factors
    require(columns >= 1, f"columns (={columns}) must be at least 1")
    require(levels >= 2, f"levels (={levels}) must be at least 2: one level leaves nothing to say")
    require(len(hidden) >= 1, "hidden (=()) must name at least one hidden layer, such as (500,)")
    require(min(hidden) >= 1, f"hidden (={hidden}) must hold sizes of at least 1")
    if factors is not None:
        require(factors >= 1, f"factors (={factors}) must be at least 1, or None for full weights")
        smallest = min(hidden[0], hidden[-1])
        require(
            factors <= smallest,
            f"factors (={factors}) must not exceed the {smallest} hidden units that it factors; "
            "use factors=None for full weights",
        )
    inner, outer = (factors, factors) if factors is not None else (hidden[0], hidden[-1])
    numbers = columns * levels * (inner + outer) + sum(a * b for a, b in pairwise(hidden))
    require(
        numbers <= _MOST_NUMBERS,
        f"columns (={columns}), levels (={levels}), hidden (={hidden}) and factors (={factors}) "
        f"make a model of {numbers:,} weights, {numbers * 4 / 1e9:,.0f} GB, too large for any "
        "machine; use fewer hidden units, or factors",
    )


def _check_mean_context(context_scale: str, mean_context: float | None) -> None:
    if context_scale == "sum":
        require(
            mean_context is None,
            f'mean_context (={mean_context}) has no effect with context_scale "sum"; leave it out',
        )
    elif mean_context is None or not (mean_context > 0.0 and math.isfinite(mean_context)):
        raise ModelError(
            f"mean_context (={mean_context}) must be a positive number with context_scale "
            f'"{context_scale}": the mean size of a context'
        )
