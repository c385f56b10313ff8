"""Train the interaction model of several ranks: set NADE alone, each rank with its own items.

The other components need all pairs of items or users, and one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cfnade._typing import IntArray
from cfnade.data.split_protocols import choose_positions
from cfnade.distributed.process_group import Array
from cfnade.distributed.rank_data import RankData, RankSplit
from cfnade.evaluation.ranking_metrics import ndcg, ranked_hits
from cfnade.implicit import InteractionModel, Popularity, SetNade
from cfnade.implicit.base import FitCache
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.set_nade_training import (
    SetNadeSettings,
    hidden_states,
    largest_scores,
    training_loop,
)
from cfnade.implicit.sharpness import FACTORS, Sharpness
from cfnade.models.set_nade import SetNADENetwork
from cfnade.training.callbacks import Callback, Stage
from cfnade.training.state import StateStore

K = 20
"""Ranks that NDCG looks at."""
MAX_USERS = 2_000
"""Maximum validation users."""
STREAM = 7  # of the random numbers that sample them

_EXCLUDED = -1e30


def train_interactions(
    split: RankSplit,
    settings: SetNadeSettings,
    store: StateStore | None,
    callback: Callback,
    should_stop: Callable[[], bool],
) -> tuple[InteractionModel, dict[str, Any]]:
    """Train the network, select its epoch by validation, and fit the sharpness of its scores.

    Returns:
        The model of the rank's own items, and the entries of model.json.
    """
    data = split.sets[0]
    rows = _rows(data)
    validation = RankingValidation(data, rows, settings.seed)
    if store is not None:
        store.folder.mkdir(parents=True, exist_ok=True)
        store = replace(store, resume=store.resume and store.exists())

    def validate(network: SetNADENetwork) -> dict[str, float] | None:
        value = validation.value(network)
        return None if value is None else {"ndcg": value}

    identity = {
        "plan": settings.to_dict(),
        "split": split.fingerprint,
        "ranks": split.group.size,
    }
    loop = training_loop(
        rows,
        settings,
        data.part,
        validate=validate,
        store=store,
        identity=identity,
        callback=_EpochMessages(callback),
        stage=Stage("set-nade", epochs=settings.epochs),
        should_stop=should_stop,
    )
    loop.run()
    network: Any = loop.model.requires_grad_(False)
    popularity = Popularity.fit(rows, {}, seed=0, cache=FitCache())
    components = {"set-nade": SetNade.of_network(network), "popularity": popularity}
    sharpness = Sharpness(validation.sharpness(network))
    facts = {
        "history": loop.state.history,
        "plan": settings.to_dict(),
        "ndcg": (loop.state.best or {}).get("ndcg"),
    }
    return InteractionModel(components, {"set-nade": 1.0, "popularity": 0.0}, sharpness), facts


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


def _rows(data: RankData) -> InteractionRows:
    """Return the training interactions with the rank's own items, each with a weight of 1."""
    rows = InteractionRows.from_ratings(data.ratings)
    return rows.with_weights(np.ones(len(rows.columns), np.float32))


class RankingValidation:
    """Scores rankings by the validation interactions of at most MAX_USERS users."""

    def __init__(self, data: RankData, rows: InteractionRows, seed: int) -> None:
        self._group, valid = data.part.group, data.valid
        users = np.flatnonzero(data.valid_counts)
        if len(users) > MAX_USERS:
            users = users[choose_positions(len(users), MAX_USERS, (seed, STREAM))]
        self._history = rows.select(users)
        self._n_relevant = data.valid_counts[users].astype(np.int64)
        index = np.flatnonzero(np.isin(valid.row_indices, users))
        numbers = np.searchsorted(users, valid.row_indices[index])
        self._relevant: tuple[IntArray, Array] = numbers, valid.rows.columns[index]
        self._n_columns = len(data.part.columns)  # a rank without columns has a dummy one
        self._n_items = data.part.n_columns

    def _scores(self, network: SetNADENetwork) -> torch.Tensor:
        """Return the users' scores of the own items, known ones excluded. (B, C)."""
        hidden = hidden_states(network, self._history, self._group)
        scores = self._standardized(torch.addmm(network.b, hidden.state, network.V.T))
        scores[self._history.rows.astype(np.int64), self._history.columns.astype(np.int64)] = (
            _EXCLUDED
        )
        scores[:, self._n_columns :] = _EXCLUDED
        return scores

    def _standardized(self, scores: torch.Tensor) -> torch.Tensor:
        """Return scores with mean 0 and deviation 1 over all items, as in InteractionModel."""
        doubles = scores[:, : self._n_columns].double()
        sums = torch.stack([doubles.sum(1), doubles.square().sum(1)]).numpy()
        self._group.all_reduce(sums)
        mean = sums[0] / self._n_items
        deviation = np.sqrt(np.maximum(sums[1] / self._n_items - mean * mean, 1e-12))
        shift, scale = (torch.from_numpy(a).float().unsqueeze(1) for a in (mean, deviation))
        return (scores - shift) / scale

    def value(self, network: SetNADENetwork) -> float | None:
        """Return NDCG@K, the same on every rank; None without validation users."""
        if not len(self._n_relevant):
            return None
        scores = self._scores(network)
        relevant = torch.zeros_like(scores)
        relevant[self._relevant[0], self._relevant[1].astype(np.int64)] = 1.0
        values, items = torch.topk(scores, min(K, scores.shape[1]))
        hits = torch.gather(relevant, 1, items)
        # (k, B) of each rank; rank 0 joins them into (B, k · ranks).
        gathered = [self._group.gather(np.ascontiguousarray(t.numpy().T)) for t in (values, hits)]
        value = 0.0
        if self._group.rank == 0:
            value = self._ndcg(*(np.concatenate(parts).T for parts in gathered))
        return self._group.broadcast(value)

    def _ndcg(self, values: Array, hits: Array) -> float:
        k = min(K, values.shape[1])
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        top, top_hits = (np.take_along_axis(a, order, 1) for a in (values, hits > 0))
        ranked = ranked_hits(np.ascontiguousarray(top), np.ascontiguousarray(top_hits))
        return float(ndcg(ranked, self._n_relevant, k).mean())

    def sharpness(self, network: SetNADENetwork) -> float:
        """Return the factor of the scores that maximizes the likelihood of the interactions."""
        if not len(self._n_relevant):
            return 1.0
        scores = self._scores(network).double()
        observed = scores[self._relevant[0], self._relevant[1].astype(np.int64)].numpy()
        tops = largest_scores(scores, self._group)
        likelihood = []
        for factor in FACTORS:
            weights = torch.exp(factor * (scores - torch.from_numpy(tops).unsqueeze(1))).sum(1)
            logs = np.log(self._group.all_reduce(weights.numpy()))
            terms = factor * (observed - tops[self._relevant[0]]) - logs[self._relevant[0]]
            likelihood.append(self._group.total(float(terms.sum())))
        return float(FACTORS[int(np.argmax(likelihood))])
