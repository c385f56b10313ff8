"""The part of a model that predicts for a new user, for export to other runtimes.

Only components whose rows are users depend on nothing but the user's own ratings, so only models of
such components can be exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

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

    W: Array  # (M, K, D) input weights
    V: Array  # (M, K, D) output weights
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
class FoldInTables:
    """The tables of all members, with their weights for new users."""

    members: list[tuple[float, list[Part]]]
    items: IntArray  # (M,) indices of the items with training ratings
    baseline: Array  # (M, K) distributions for a user without ratings


def fold_in_tables(fitted: FittedModel) -> FoldInTables:
    """Return the tables of a model; raise PredictionError if it cannot be exported."""
    if not fitted.rates:
        raise PredictionError("this model is of interactions; only one of ratings can be exported")
    weights = [new for _, new in fitted.shares] or [1 / len(fitted.members)] * len(fitted.members)
    weighted = list(zip(weights, fitted.members, strict=True))
    used = [(weight, member) for weight, member in weighted if weight > 0] or weighted[:1]
    trained = fitted.trained_on.get("item")
    if trained is None:
        raise _refusal(fitted.side)
    items = np.flatnonzero(trained.sum(1))
    members = [(weight, _parts(member, items, fitted.side)) for weight, member in used]
    new_user = Query.of_pairs(fitted.context, np.full(len(items), -1), items)
    baseline = Scorer(fitted).rating_probabilities(new_user)
    return FoldInTables(members, items, np.asarray(baseline, np.float32))


def _parts(member: Member, items: IntArray, name: str) -> list[Part]:
    parts: list[Part] = []
    for component in member.components.values():
        if component.axis != "user":
            raise _refusal(name)
        if isinstance(component, NadeComponent):
            parts.append(_nade(component, items))
        elif isinstance(component, RidgeComponent):
            parts.append(_ridge(component, items))
        else:
            raise _refusal(name)
    return parts


def _nade(component: NadeComponent, items: IntArray) -> NadePart:
    network, config = component.network, component.network.config
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


def _ridge(component: RidgeComponent, items: IntArray) -> RidgePart:
    network = component.network
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
        f"a model of side {side!r} reads more than the user's own ratings, so it cannot be "
        f"exported; export one that was trained with {option('side', 'user')}"
    )


# -- as a torch module ----------------------------------------------------------------------------


class FoldInModule(nn.Module):
    """Predicts the ratings of all items for a new user, from tables alone.

    Args:
        tables: Those of a model.
        values: Values of the rating levels, (K,).
    """

    values: Tensor
    baseline: Tensor

    def __init__(self, tables: FoldInTables, values: Sequence[float]) -> None:
        super().__init__()
        self._weights = [weight for weight, _ in tables.members]
        self._members = nn.ModuleList(_MemberModule(parts) for _, parts in tables.members)
        self.register_buffer("values", torch.tensor(values, dtype=torch.float32))
        self.register_buffer("baseline", torch.from_numpy(tables.baseline))

    def forward(self, items: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Return distributions (M, K) and expected ratings (M,).

        Args:
            items: Positions of the rated items in the tables, (n,).
            levels: Levels of their ratings, (n,).
        """
        cells = items * len(self.values) + levels
        mixed = torch.zeros_like(self.baseline)
        for weight, member in zip(self._weights, self._members, strict=True):
            mixed = mixed + weight * member(items, cells)
        is_empty = torch.ones_like(items).sum() == 0
        probabilities = torch.where(is_empty, self.baseline, mixed)
        return probabilities, probabilities @ self.values


class _MemberModule(nn.Module):
    """The distributions of one member, (M, K)."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self._components = nn.ModuleList(
            _NadeModule(part) if isinstance(part, NadePart) else _RidgeModule(part)
            for part in parts
        )

    def forward(self, items: Tensor, cells: Tensor) -> Tensor:
        first, *others = (component(items, cells) for component in self._components)
        return torch.softmax(sum(others, first), 1)


class _Scores(nn.Module):
    """Scores of all items from the state of a user."""

    V: Tensor
    b: Tensor

    def __init__(self, V: Array, b: Array) -> None:
        super().__init__()
        M, self.K, D = V.shape
        self.register_buffer("V", torch.from_numpy(V.reshape(M * self.K, D)))
        self.register_buffer("b", torch.from_numpy(b))

    def forward(self, items: Tensor, cells: Tensor) -> Tensor:
        """Return the scores (M, K)."""
        return (self.V @ self.state(items, cells)).view(-1, self.K) + self.b

    def state(self, items: Tensor, cells: Tensor) -> Tensor:
        """Return the state (D,)."""
        raise NotImplementedError


class _NadeModule(_Scores):
    """Eq. 2, 9 and 20 of the paper."""

    W: Tensor
    B: Tensor | None
    Q: Tensor | None
    c: Tensor

    def __init__(self, part: NadePart) -> None:
        super().__init__(*((t.cumsum(1) if part.shared else t) for t in (part.V, part.b)))
        W = part.W.cumsum(1) if part.shared else part.W
        self._part, self._activation = part, _ACTIVATIONS[part.activation]
        self.register_buffer("W", torch.from_numpy(W.reshape(-1, W.shape[2])))
        for name in ("B", "Q", "c"):
            array = getattr(part, name)
            self.register_buffer(name, None if array is None else torch.from_numpy(array))
        for number, (weights, bias) in enumerate(part.deep):
            self.register_buffer(f"W{number}", torch.from_numpy(weights))
            self.register_buffer(f"c{number}", torch.from_numpy(bias))

    def state(self, items: Tensor, cells: Tensor) -> Tensor:
        del items
        total = self.W[cells].sum(0)
        if self._part.mean_context is not None:
            count = torch.ones_like(cells).sum().clamp(min=1).float()
            total = total * torch.sqrt(self._part.mean_context / count)
        if self.B is not None:
            total = self.B @ total
        state = self._activation(self.c + total)
        for number in range(len(self._part.deep)):
            weights, bias = getattr(self, f"W{number}"), getattr(self, f"c{number}")
            state = self._activation(bias + weights @ state)
        return state if self.Q is None else self.Q @ state


class _RidgeModule(_Scores):
    """The state (γ m, ω) of a ridge component, in double precision: a posterior is an inverse."""

    u: Tensor
    q: Tensor
    prior: Tensor
    evidence: Tensor
    importance: Tensor

    def __init__(self, part: RidgePart) -> None:
        super().__init__(part.V.cumsum(1), part.b.cumsum(1))
        evidence = part.u[:, None] * part.e[:, :, None] + part.W.cumsum(1)  # (M, K, D)
        self._noise, self._spread = part.noise, part.spread
        tables = {"u": part.u, "q": part.q, "prior": part.prior}
        tables |= {"evidence": evidence.reshape(-1, len(part.prior))}
        tables |= {"importance": part.importance / part.importance.sum()}
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table.astype(np.float64)))

    def state(self, items: Tensor, cells: Tensor) -> Tensor:
        u = self.u[items]  # (n, D)
        covariance = _inverse(u.T @ u + torch.diag(self.prior + self.q[items].sum(0)))
        mean = covariance @ self.evidence[cells].sum(0)
        unknown = (torch.diagonal(covariance) * self.importance).sum()
        gain = self._spread / (unknown * (self._spread - self._noise) + self._noise)
        return torch.cat([mean * gain, unknown[None]]).float()


def _inverse(matrix: Tensor) -> Tensor:
    """Invert a positive definite matrix by Gauss–Jordan elimination: ONNX has no inverse."""
    D = len(matrix)
    unit = torch.eye(D, dtype=matrix.dtype)
    both = torch.cat([matrix, unit], 1)  # (D, 2D)
    for k in range(D):
        row = both[k] / both[k, k]
        both = both - torch.outer(both[:, k] - unit[k], row)
    return both[:, D:]


_ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}
