"""The part of a model that predicts for a new user, for export to other runtimes.

Only components whose rows are users depend on nothing but the user's own ratings, so only models of
such components can be exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cfnade.components import RatingComponent
from cfnade.components.nade import NadeComponent
from cfnade.components.ridge import RidgeComponent
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Query
from cfnade.inference.scorer import Scorer
from cfnade.utils.text import option

Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


class Part(NamedTuple):
    """A component: its config, and its arrays with the names of models/cfnade.py and ridge.py."""

    kind: Literal["nade", "ridge"]
    config: Any
    arrays: dict[str, Array]
    """Tables of the items, and dense arrays. Deep layer n has W{n} and c{n}."""

    @property
    def n_deep_layers(self) -> int:
        """Number of hidden layers after the first."""
        return sum(name[0] == "W" and name != "W" for name in self.arrays)


@dataclass(frozen=True, eq=False)
class FoldInTables:
    """The tables of all members, with their weights for new users."""

    members: list[tuple[float, list[Part]]]
    items: IntArray  # (M,) indices of the items with training ratings
    baseline: Array  # (M, K) distributions for a user without ratings


def fold_in_tables(fitted: FittedModel) -> FoldInTables:
    """Return the tables of a model; raise PredictionError if it cannot be exported."""
    if not fitted.predicts_ratings:
        raise PredictionError(
            "this model predicts no ratings, so it cannot be exported; train one on ratings"
        )
    weights = [new for _, new in fitted.member_weights] or [1 / len(fitted.members)] * len(
        fitted.members
    )
    weighted = list(zip(weights, fitted.members, strict=True))
    used = [(weight, member) for weight, member in weighted if weight > 0] or weighted[:1]
    components = [component for _, member in used for component in member.components.values()]
    trained = fitted.training_counts.get("item")
    if trained is None or not all(map(_is_exportable, components)):
        raise PredictionError(
            f"a model of side {fitted.side!r} reads more than the user's own ratings, so it cannot "
            f"be exported; export one that was trained with {option('side', 'user')}"
        )
    items = np.flatnonzero(trained.sum(1))
    members = [
        (weight, [_part(component, items) for component in member.components.values()])
        for weight, member in used
    ]
    new_user = Query.of_pairs(fitted.context, np.full(len(items), -1), items)
    baseline = Scorer(fitted).rating_probabilities(new_user)
    return FoldInTables(members, items, np.asarray(baseline, np.float32))


def _is_exportable(component: RatingComponent) -> bool:
    return component.axis == "user" and isinstance(component, NadeComponent | RidgeComponent)


def _part(component: Any, items: IntArray) -> Part:
    network, kind = component.network, "nade"
    if isinstance(component, NadeComponent):
        tables = {"W": network.input_table, "V": network.output_table, "b": network.b}
        dense = {"c": network.c}
        dense |= {"B": network.B, "Q": network.Q} if network.config.factors is not None else {}
        for number, layer in enumerate(zip(network.deep_W, network.deep_c, strict=True)):
            dense[f"W{number}"], dense[f"c{number}"] = layer
    else:
        kind = "ridge"
        tables = {name: getattr(network, name) for name in ("u", "e", "q", "W", "V", "b")}
        dense = {"prior": network.log_prior.exp(), "importance": network.importance}
    arrays = {name: _array(table)[items] for name, table in tables.items()}
    arrays |= {name: _array(tensor) for name, tensor in dense.items()}
    return Part(kind, network.config, arrays)  # type: ignore[arg-type]


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().numpy(), np.float32)


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
            _NadeModule(part) if part.kind == "nade" else _RidgeModule(part) for part in parts
        )

    def forward(self, items: Tensor, cells: Tensor) -> Tensor:
        scores = [component(items, cells) for component in self._components]
        return torch.softmax(torch.stack(scores).sum(0), 1)


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

    def __init__(self, part: Part) -> None:
        arrays, config = dict(part.arrays), part.config
        if config.shared:
            arrays |= {name: arrays[name].cumsum(1) for name in ("W", "V", "b")}
        super().__init__(arrays.pop("V"), arrays.pop("b"))
        arrays["W"] = arrays["W"].reshape(-1, arrays["W"].shape[2])
        self._mean_context, self._n_deep = config.mean_context, part.n_deep_layers
        self._activation, self._factored = _ACTIVATIONS[config.activation], "B" in arrays
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array))

    def state(self, items: Tensor, cells: Tensor) -> Tensor:
        del items
        table = dict(self.named_buffers())
        total = table["W"][cells].sum(0)
        if self._mean_context is not None:
            count = torch.ones_like(cells).sum().clamp(min=1).float()
            total = total * torch.sqrt(self._mean_context / count)
        if self._factored:
            total = table["B"] @ total
        state = self._activation(table["c"] + total)
        for n in range(self._n_deep):
            state = self._activation(table[f"c{n}"] + table[f"W{n}"] @ state)
        return table["Q"] @ state if self._factored else state


class _RidgeModule(_Scores):
    """The state (γ m, ω) of a ridge component, in double precision: a posterior is an inverse."""

    u: Tensor
    q: Tensor
    prior: Tensor
    evidence: Tensor
    importance: Tensor

    def __init__(self, part: Part) -> None:
        arrays = part.arrays
        super().__init__(arrays["V"].cumsum(1), arrays["b"].cumsum(1))
        self._noise, self._spread = part.config.noise, part.config.spread
        u, importance = arrays["u"], arrays["importance"]
        evidence = u[:, None] * arrays["e"][:, :, None] + arrays["W"].cumsum(1)  # (M, K, D)
        tables = {"u": u, "q": arrays["q"], "prior": arrays["prior"]}
        tables |= {"evidence": evidence.reshape(-1, u.shape[1])}
        tables |= {"importance": importance / importance.sum()}
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
