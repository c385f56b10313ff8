"""Configs of components: the fields that determine shapes and equations. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len

from cfnade.exceptions import ModelError
from cfnade.utils.validation import options

Activation = Literal["tanh", "sigmoid", "relu"]
ContextScale = Literal["sum", "sqrt"]
TargetWeight = Literal["paper", "unit"]
TIME_UNITS = 32
"""Hidden units of the network of time features."""

_MOST_NUMBERS = 2**40  # weights; 4 bytes each is beyond any machine that this is meant for


def require(holds: bool, message: str) -> None:
    """Raise a ModelError with the message unless the condition holds."""
    if not holds:
        raise ModelError(message)


@options(ModelError)
class CFNADEConfig:
    """Checked once, on creation. The defaults are the paper's CF-NADE-S with one layer, λ = 1."""

    columns: Annotated[int, Ge(1)]
    """M: how many columns a row may rate."""
    levels: Annotated[int, Ge(2)]
    """K: how many levels the rating scale has, from the data."""
    hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], Len(1)] = (500,)
    """H of each hidden layer, first to last; more than one makes the model deep (Eq. 20)."""
    factors: Annotated[int, Ge(1)] | None = None
    """J: the rank of the factored weights (Eq. 11-12), or None for full weights."""
    shared: bool = True
    """Whether a level uses the weights of all levels up to it (Eq. 9-10) or its own (Eq. 2, 4)."""
    activation: Activation = "tanh"
    """g."""
    context_scale: ContextScale = "sum"
    """What multiplies the summed context: "sum" 1 (the paper), "sqrt" √(mean_context / n)."""
    mean_context: Annotated[float, Gt(0)] | None = None
    """The mean size of a context, for context_scale "sqrt" alone."""
    target_weight: TargetWeight = "paper"
    """What a target counts where batches are drawn: "paper" D/(D-i+1) (Eq. 19), "unit" 1."""
    ordinal_weight: Annotated[float, Ge(0), Le(1)] = 1.0
    """λ: the ordinal cost's share (Eq. 18); the rest is the regular cost."""

    def __post_init__(self) -> None:
        _check_sizes(self)
        _check_mean_context(self.context_scale, self.mean_context)


def check_factors(hidden: Sequence[int], factors: int | None) -> None:
    """Raise a ModelError if the rank exceeds the first or the last hidden layer."""
    smallest = min(hidden[0], hidden[-1])
    if factors is not None and factors > smallest:
        reason = (
            f"must not exceed the {smallest} hidden units that it factors; omit it for full weights"
        )
        message = f"factors (={factors}) {reason}"
        raise ModelError(message, field="factors", value=factors, reason=reason)


def _check_sizes(config: CFNADEConfig) -> None:
    columns, levels, hidden, factors = config.columns, config.levels, config.hidden, config.factors
    check_factors(hidden, factors)
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
    else:
        require(
            mean_context is not None,
            f'mean_context must be given with context_scale "{context_scale}": the mean size of a '
            "context",
        )


@options(ModelError)
class RidgeConfig:
    """The config of a ridge component."""

    columns: Annotated[int, Ge(1)]
    levels: Annotated[int, Ge(2)]
    ridge: Annotated[int, Ge(1)]
    """D."""
    spread: Annotated[float, Gt(0)]
    """τ²: the variance of a column's ratings, in levels, where nothing is known of the row."""
    noise: Annotated[float, Gt(0)]
    """σ²: the same where all is known."""

    def gain(self, unknown: Any) -> Any:
        """γ for an unknown share ω."""
        return self.spread / (self.noise + (self.spread - self.noise) * unknown)


@options(ModelError)
class FactorConfig:
    """The config of a factor analysis."""

    columns: Annotated[int, Ge(1)]
    levels: Annotated[int, Ge(2)]
    dimensions: Annotated[int, Ge(1)]
    """D of each sample."""
    samples: Annotated[int, Ge(1)] = 1
    """S."""


@options(ModelError)
class NeighborhoodConfig:
    """The config of a neighborhood."""

    columns: Annotated[int, Ge(1)]
    levels: Annotated[int, Ge(2)]
    dimensions: Annotated[int, Ge(1)]
    """D of the factor analysis."""
    pairs: Annotated[int, Ge(0)] = 0
    """P."""

    @property
    def factors(self) -> FactorConfig:
        """The config of its factor analysis."""
        return FactorConfig(columns=self.columns, levels=self.levels, dimensions=self.dimensions)


@options(ModelError)
class SetNADEConfig:
    """The config of an implicit CF-NADE."""

    columns: Annotated[int, Ge(1)]
    levels: Annotated[int, Ge(1)]
    hidden: Annotated[int, Ge(1)]
    mean_count: Annotated[float, Gt(0)]
    """n̄."""
