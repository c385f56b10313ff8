"""What a forward pass for somebody new needs of a model: tables, member by member, side by side.

Only sides whose rows are users read nothing but the person's ratings, so only such models can go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cfnade.components import Member
from cfnade.components.nade import NadeComponent
from cfnade.components.ridge import RidgeComponent
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Query
from cfnade.inference.scorer import Scorer
from cfnade.utils.text import option

Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NadePart:
    """models/cfnade.py, of M columns, K levels, D = H or J."""

    W: Array  # (M, K, D) what a known rating adds
    V: Array  # (M, K, D) what the state meets
    b: Array  # (M, K)
    c: Array  # (H,)
    B: Array | None  # (H, J) if factored, after the sum
    Q: Array | None  # (J, H) if factored, before V
    deep: list[tuple[Array, Array]]
    activation: str
    mean_context: float | None
    shared: bool


@dataclass(frozen=True, eq=False)
class RidgePart:
    """models/ridge.py."""

    u: Array  # (M, D)
    e: Array  # (M, K)
    q: Array  # (M, D)
    W: Array  # (M, K, D)
    V: Array  # (M, K, D + 1)
    b: Array  # (M, K)
    prior: Array  # (D,) β
    importance: Array  # (D,)
    spread: float
    noise: float


Part = NadePart | RidgePart


@dataclass(frozen=True, eq=False)
class Portable:
    """Members with what each counts for somebody new; items are places in `items`."""

    members: list[tuple[float, list[Part]]]
    items: IntArray  # (M,) indices of the items that training saw ratings of
    of_stranger: Array  # (M, K) what is said before the first rating; no pass says that


def portable(fitted: FittedModel) -> Portable:
    """The model without what it knows of its own users; a PredictionError if it cannot be so."""
    if not fitted.rates:
        raise PredictionError("this model is of interactions; only one of ratings can be exported")
    shares = [new for _, new in fitted.shares] or [1 / len(fitted.members)] * len(fitted.members)
    counts = [(share, member) for share, member in zip(shares, fitted.members, strict=True)]
    asked = [(share, member) for share, member in counts if share > 0] or counts[:1]
    trained = fitted.trained_on.get("item")
    if trained is None:
        raise _refusal(fitted.side)
    items = np.flatnonzero(trained.sum(1))
    members = [(share, _parts(one, items, fitted.side)) for share, one in asked]
    nobody = Query.of_pairs(fitted.context, np.full(len(items), -1), items)
    said = Scorer(fitted).rating_probabilities(nobody)
    return Portable(members, items, np.asarray(said, np.float32))


def _parts(member: Member, items: IntArray, name: str) -> list[Part]:
    parts: list[Part] = []
    for side in member.components.values():
        if side.axis != "user" or not isinstance(side, NadeComponent | RidgeComponent):
            raise _refusal(name)
        parts.append(_nade(side, items) if isinstance(side, NadeComponent) else _ridge(side, items))
    return parts


def _nade(side: NadeComponent, items: IntArray) -> NadePart:
    network, config = side.network, side.network.config
    factored = config.factors is not None
    layers = zip(network.deep_W, network.deep_c, strict=True)
    return NadePart(
        W=_array(network.input_table)[items],
        V=_array(network.output_table)[items],
        b=_array(network.b)[items],
        c=_array(network.c),
        B=_array(network.B) if factored else None,
        Q=_array(network.Q) if factored else None,
        deep=[(_array(W), _array(c)) for W, c in layers],
        activation=config.activation,
        mean_context=config.mean_context,
        shared=config.shared,
    )


def _ridge(side: RidgeComponent, items: IntArray) -> RidgePart:
    network = side.network
    return RidgePart(
        u=_array(network.u)[items],
        e=_array(network.e)[items],
        q=_array(network.q)[items],
        W=_array(network.W)[items],
        V=_array(network.V)[items],
        b=_array(network.b)[items],
        prior=_array(network.log_prior.exp()),
        importance=_array(network.importance),
        spread=network.config.spread,
        noise=network.config.noise,
    )


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().numpy(), np.float32)


def _refusal(side: str) -> PredictionError:
    return PredictionError(
        f"a model of side {side!r} reads more than the person's own ratings, so it cannot answer "
        f"by itself elsewhere; export one that was trained with {option('side', 'user')}"
    )
