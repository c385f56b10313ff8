"""The interaction model of ranks that share the items: the set NADE alone.

The other components need all pairs of items or users, and stay on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cfnade._typing import IntArray
from cfnade.data.split_protocols import choose_positions
from cfnade.distributed.process_group import Array
from cfnade.distributed.rank_data import RankData
from cfnade.distributed.state import RankStateStore
from cfnade.evaluation.ranking_metrics import ndcg, ranked_hits
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.set_nade_training import (
    SetNadeSettings,
    hidden_states,
    largest_scores,
    training_loop,
)
from cfnade.implicit.sharpness import FACTORS
from cfnade.models.set_nade import SetNADENetwork
from cfnade.training.callbacks import Callback, Stage

PLACES = 20
ASKED = 2_000
"""So many users, at most, are asked on validation."""
STREAM = 7  # of the random numbers that choose them

_NOTHING = -1e30


@dataclass(frozen=True)
class PartitionedInteractionModel:
    """A network of which each rank has its own items, and the factor of its scores."""

    network: SetNADENetwork
    sharpness: float
    popularity: Array
    """log(1 + n_i) of the own items."""
    facts: dict[str, Any]


def train_interactions(
    owned: RankData,
    settings: SetNadeSettings,
    fingerprint: str,
    store: RankStateStore | None,
    callback: Callback,
    should_stop: Callable[[], bool],
) -> PartitionedInteractionModel:
    """Train the network, select its epoch by validation, and fit the sharpness of its scores."""
    rows = _rows(owned)
    validation = RankingValidation(owned, rows, settings.seed)
    if store is not None:
        store.folder.mkdir(parents=True, exist_ok=True)
        store = replace(store, resume=store.resume and store.exists())

    def validate(network: SetNADENetwork) -> dict[str, float] | None:
        value = validation.value(network)
        return None if value is None else {"ndcg": value}

    size = owned.part.group.size
    loop = training_loop(
        rows,
        settings,
        owned.part,
        validate=validate,
        store=store,
        identity={"plan": settings.to_dict(), "split": fingerprint, "ranks": size},
        callback=_EpochMessages(callback),
        stage=Stage("set-nade", epochs=settings.epochs),
        should_stop=should_stop,
    )
    loop.run()
    network: Any = loop.model.requires_grad_(False)
    facts = {
        "history": loop.state.history,
        "plan": settings.to_dict(),
        "ndcg": (loop.state.best or {}).get("ndcg"),
    }
    counts = np.bincount(rows.columns, minlength=rows.n_columns)
    logs = np.log1p(counts).astype(np.float32)
    return PartitionedInteractionModel(network, validation.sharpness(network), logs, facts)


class _EpochMessages(Callback):
    """Passes steps on, and validated epochs as messages."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def on_step_end(self, stage: Stage, progress: float, cost: float | None) -> None:
        self._callback.on_step_end(stage, progress, cost)

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        if record["valid_ndcg"] is not None:
            self._callback.on_message(
                f"set-nade: epoch {record['epoch']}, cost {record['cost']:.3f}, validation NDCG "
                f"{record['valid_ndcg']:.4f}"
            )


def _rows(owned: RankData) -> InteractionRows:
    """The own training interactions of everybody, each with a weight of 1."""
    own = InteractionRows.from_ratings(owned.ratings)
    return own.with_weights(np.ones(len(own.columns), np.float32))


class RankingValidation:
    """How good lists are for people of the validation part, at most ASKED of them."""

    def __init__(self, owned: RankData, rows: InteractionRows, seed: int) -> None:
        self._group, valid = owned.part.group, owned.valid
        people = np.flatnonzero(owned.asked)
        if len(people) > ASKED:
            people = people[choose_positions(len(people), ASKED, (seed, STREAM))]
        self._known = rows.select(people)
        self._wanted = owned.asked[people].astype(np.int64)
        own = np.flatnonzero(np.isin(valid.rows, people))
        numbers = np.searchsorted(people, valid.rows[own])
        self._answers: tuple[IntArray, Array] = numbers, valid.columns[own]
        self._nobody = len(owned.part.columns)  # columns from here on are nobody's
        self._items = owned.part.whole

    def _scores(self, network: SetNADENetwork) -> torch.Tensor:
        """Of the own items for everybody who is asked; what is known is out. (B, C)."""
        hidden = hidden_states(network, self._known, self._group)
        scores = self._standardized(torch.addmm(network.b, hidden.state, network.V.T))
        scores[self._known.rows.astype(np.int64), self._known.columns.astype(np.int64)] = _NOTHING
        scores[:, self._nobody :] = _NOTHING
        return scores

    def _standardized(self, scores: torch.Tensor) -> torch.Tensor:
        """As InteractionModel adds them: each row with mean 0 and deviation 1 over all items."""
        own = scores[:, : self._nobody].double()
        sums = torch.stack([own.sum(1), own.square().sum(1)]).numpy()
        self._group.all_reduce(sums)
        mean = sums[0] / self._items
        deviation = np.sqrt(np.maximum(sums[1] / self._items - mean * mean, 1e-12))
        shift, scale = (torch.from_numpy(one).float().unsqueeze(1) for one in (mean, deviation))
        return (scores - shift) / scale

    def value(self, network: SetNADENetwork) -> float | None:
        """NDCG of the first places, on every rank the same; None if nobody can be asked."""
        if not len(self._wanted):
            return None
        scores = self._scores(network)
        right = torch.zeros_like(scores)
        right[self._answers[0], self._answers[1].astype(np.int64)] = 1.0
        values, items = torch.topk(scores, min(PLACES, scores.shape[1]))
        liked = torch.gather(right, 1, items)
        # (B, k) of each rank, one below the other, as columns of all.
        gathered = [self._group.gather(np.ascontiguousarray(t.numpy().T)) for t in (values, liked)]
        value = 0.0
        if self._group.rank == 0:
            value = self._ndcg(*(np.concatenate(parts).T for parts in gathered))
        return self._group.broadcast(value)

    def _ndcg(self, values: Array, liked: Array) -> float:
        k = min(PLACES, values.shape[1])
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        top, hits = (np.take_along_axis(of, order, 1) for of in (values, liked > 0))
        found = ranked_hits(np.ascontiguousarray(top), np.ascontiguousarray(hits))
        return float(ndcg(found, self._wanted, k).mean())

    def sharpness(self, network: SetNADENetwork) -> float:
        """What scores are multiplied by, so that picks are as likely as can be."""
        if not len(self._wanted):
            return 1.0
        scores = self._scores(network).double()
        own = scores[self._answers[0], self._answers[1].astype(np.int64)].numpy()
        tops = largest_scores(scores, self._group)
        likelihood = []
        for factor in FACTORS:
            weights = torch.exp(factor * (scores - torch.from_numpy(tops).unsqueeze(1))).sum(1)
            logs = np.log(self._group.all_reduce(weights.numpy()))
            mine = factor * (own - tops[self._answers[0]]) - logs[self._answers[0]]
            likelihood.append(self._group.total(float(mine.sum())))
        return float(FACTORS[int(np.argmax(likelihood))])
