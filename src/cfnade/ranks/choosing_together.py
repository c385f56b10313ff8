"""What people pick, learnt by ranks that share the items: the network alone, weighed by lists.

The linear and the factored path of a choice need all pairs of items, and stay on one machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cfnade._typing import IntArray
from cfnade.choice.blending import PLACES, SHARPNESS
from cfnade.choice.nade_training import ChoiceTrainer
from cfnade.choice.picks import Picks
from cfnade.choice.planning import ChoicePlan
from cfnade.choice.set_states import hidden_of, largest_of
from cfnade.data.split_protocols import choose_positions
from cfnade.evaluation.ranking_metrics import ndcg, ranked_hits
from cfnade.group import Array
from cfnade.models.choice_network import ChoiceNetwork
from cfnade.ranks.owned import Owned
from cfnade.ranks.rank_state import RankSaving
from cfnade.training.choice_run import ASKED, STREAM, NetworkRun, Say

_NOTHING = -1e30


@dataclass(frozen=True)
class SharedChoice:
    """A network of which each rank has its own items, and what its scores count."""

    network: ChoiceNetwork
    weight: float
    facts: dict[str, Any]


def choose_together(
    owned: Owned,
    plan: ChoicePlan,
    fingerprint: str,
    saving: RankSaving | None,
    say: Say,
    stop: Callable[[], bool],
) -> SharedChoice:
    """Train the network, choose its epoch by validation, and say how sharp its scores are."""
    levels = len(owned.ratings.scale) if plan.levels else 1
    picks = _picks(owned, plan)
    trainer = ChoiceTrainer(picks, levels, plan.nade, owned.part)
    judge = ListJudge(owned, picks, plan.nade.seed)
    identity = {"plan": plan.to_dict(), "split": fingerprint, "ranks": owned.part.group.size}
    run = NetworkRun(trainer, plan, judge.value, saving, identity, say)
    run.go(stop)
    best = trainer.best()
    facts = {"history": run.history, "plan": plan.to_dict(), "ndcg": judge.value(best)}
    return SharedChoice(best, judge.sharpness(best), facts)


def _picks(owned: Owned, plan: ChoicePlan) -> Picks:
    """The own training picks of everybody."""
    own, weights = Picks.of(owned.ratings), owned.weights
    if weights is not None:
        group = owned.part.group
        mean = group.total(float(weights.sum(dtype=np.float64))) / group.total(len(weights))
        own = Picks(own.offsets, own.columns, own.levels, weights / np.float32(mean), own.n_columns)
    return own if plan.levels else own.evenly()


class ListJudge:
    """How good lists are for people of the validation part, at most ASKED of them."""

    def __init__(self, owned: Owned, picks: Picks, seed: int) -> None:
        self._group, valid = owned.part.group, owned.valid
        people = np.flatnonzero(owned.asked)
        if len(people) > ASKED:
            people = people[choose_positions(len(people), ASKED, (seed, STREAM))]
        self._known = picks.take(people)
        self._wanted = owned.asked[people].astype(np.int64)
        own = np.flatnonzero(np.isin(valid.rows, people))
        rows = np.searchsorted(people, valid.rows[own])
        self._answers: tuple[IntArray, Array] = rows, valid.columns[own]
        self._nobody = len(owned.part.columns)  # columns from here on are nobody's

    def _scores(self, network: ChoiceNetwork) -> torch.Tensor:
        """Of the own items for everybody who is asked; what is known is out. (B, C)."""
        hidden = hidden_of(network, self._known, self._group)
        scores = torch.addmm(network.b, hidden.state, network.V.T)
        scores[self._known.rows.astype(np.int64), self._known.columns.astype(np.int64)] = _NOTHING
        scores[:, self._nobody :] = _NOTHING
        return scores

    def value(self, network: ChoiceNetwork) -> float | None:
        """NDCG of the first places, on every rank the same; None if nobody can be asked."""
        if not len(self._wanted):
            return None
        scores = self._scores(network)
        right = torch.zeros_like(scores)
        right[self._answers[0], self._answers[1].astype(np.int64)] = 1.0
        values, items = torch.topk(scores, min(PLACES, scores.shape[1]))
        liked = torch.gather(right, 1, items)
        # (B, k) of each rank, one below the other, as columns of all.
        gathered = [self._group.collect(np.ascontiguousarray(t.numpy().T)) for t in (values, liked)]
        said = ""
        if self._group.rank == 0:
            said = json.dumps(self._ndcg(*(np.concatenate(parts).T for parts in gathered)))
        return float(json.loads(self._group.broadcast(said)))

    def _ndcg(self, values: Array, liked: Array) -> float:
        k = min(PLACES, values.shape[1])
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        top, hits = (np.take_along_axis(of, order, 1) for of in (values, liked > 0))
        found = ranked_hits(np.ascontiguousarray(top), np.ascontiguousarray(hits))
        return float(ndcg(found, self._wanted, k).mean())

    def sharpness(self, network: ChoiceNetwork) -> float:
        """What scores are multiplied by, so that picks are as likely as can be."""
        if not len(self._wanted):
            return 1.0
        scores = self._scores(network).double()
        own = scores[self._answers[0], self._answers[1].astype(np.int64)].numpy()
        tops = largest_of(scores, self._group)
        likelihood = []
        for factor in SHARPNESS:
            weights = torch.exp(factor * (scores - torch.from_numpy(tops).unsqueeze(1))).sum(1)
            logs = np.log(self._group.sum_(weights.numpy()))
            mine = factor * (own - tops[self._answers[0]]) - logs[self._answers[0]]
            likelihood.append(self._group.total(float(mine.sum())))
        return float(SHARPNESS[int(np.argmax(likelihood))])
