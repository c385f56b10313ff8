"""From picks to a choice: which sides are made for data of a shape, how, and what each counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cfnade.choice import Choice
from cfnade.choice.blending import Asked, blended, mean_ndcg
from cfnade.choice.linear import DENSE, NEIGHBOURS, Linear, usual_penalty
from cfnade.choice.nade import ChoiceNade, score_all
from cfnade.choice.nade_training import ChoiceSettings, ChoiceTrainer
from cfnade.choice.picks import Picks
from cfnade.choice.posterior import Posterior, PosteriorConfig
from cfnade.choice.side import ChoiceSide
from cfnade.data.choices import chosen
from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split
from cfnade.models.choice_network import ChoiceNetwork

ASKED = 2_000
"""So many people, at most, are asked to choose by."""

EXACT_ITEMS, HEAD, TAIL = 8_000, 2_500, 1_000
"""Up to so many items the softmax is exact; beyond, it has a head and a sampled tail."""

PATIENCE = 3
"""Looks at validation without a gain after which a network stops."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ChoicePlan:
    """What is made. Numbers follow from the data where nothing is said."""

    nade: ChoiceSettings
    look_every: int
    """Epochs between two looks at validation."""
    penalty: float
    neighbours: int
    posterior: PosteriorConfig
    sweeps: int = 3
    people: int = 100_000
    """So many people suffice for the factored path's vectors of items."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choice_plan(ratings: Ratings, *, seed: int = 0) -> ChoicePlan:
    """What suits data of this shape; docs/lists.md says how the numbers were found."""
    picks, M = max(1, len(ratings)), ratings.n_items
    large, exact = picks > 5_000_000, M <= EXACT_ITEMS
    nade = ChoiceSettings(
        hidden=500 if large else 300,
        epochs=10 if large else 60,
        batch=1000 if large else int(np.clip(ratings.n_users // 10, 50, 500)),
        learning_rate=2e-3 if large else 3e-3,
        weight_decay=min(0.01, 185 / picks),
        average_every=5 if large else 2,
        falls=large,
        head=0 if exact else HEAD,
        tail=TAIL,
        seed=seed,
    )
    factors = int(np.clip(M // 8, 16, 128 if large else 256))
    return ChoicePlan(
        nade=nade,
        look_every=1 if large else 5,
        penalty=usual_penalty(picks / max(1, M)),
        neighbours=0 if M <= DENSE else NEIGHBOURS,
        posterior=PosteriorConfig(columns=M, factors=factors),
    )


def asked_of(split: Split, seed: int = 0) -> Asked | None:
    """The people of the validation part, at most ASKED of them; None if there are none."""
    people = np.unique(split.valid.users)
    if not len(people):
        return None
    if len(people) > ASKED:
        people = people[chosen(len(people), ASKED, (seed, 7))]
    known = split.train.plus(split.given) if len(split.given) else split.train
    return Asked(Picks.of(known).take(people), Picks.of(split.valid).take(people))


def make_choice(
    split: Split, plan: ChoicePlan, *, say: Say = lambda _: None, stop: Callable[[], bool]
) -> tuple[Choice, dict[str, Any]]:
    """Train on split.train, choose by split.valid. Returns the choice and what was found."""
    picks, asked = Picks.of(split.train).evenly(), asked_of(split)
    asked = None if asked is None else Asked(asked.known.evenly(), asked.answers)
    sides: dict[str, ChoiceSide] = {}
    seconds = {}
    for name, make in (
        ("nade", lambda: trained_nade(picks, plan, asked, say, stop)),
        ("linear", lambda: _linear(picks, plan)),
        ("posterior", lambda: _posterior(picks, plan)),
    ):
        began = time.monotonic()
        sides[name] = make()
        seconds[name] = round(time.monotonic() - began, 2)
        say(f"lists: {name} made in {seconds[name]:.1f} s")
    weights, found = blended(sides, asked)
    return Choice(sides, weights), found | {"seconds": seconds, "plan": plan.to_dict()}


def _linear(picks: Picks, plan: ChoicePlan) -> Linear:
    return Linear.fit(picks, penalty=plan.penalty, neighbours=plan.neighbours)


def _posterior(picks: Picks, plan: ChoicePlan) -> Posterior:
    how = {"sweeps": plan.sweeps, "people": plan.people, "seed": plan.nade.seed}
    return Posterior.fit(picks, plan.posterior, **how)


def trained_nade(
    picks: Picks, plan: ChoicePlan, asked: Asked | None, say: Say, stop: Callable[[], bool]
) -> ChoiceNade:
    """The network with the averaged weights that give the best lists on validation."""
    trainer = ChoiceTrainer(picks, 1, plan.nade)
    best: ChoiceNetwork | None = None
    best_value, looks = -1.0, 0
    for epoch in range(plan.nade.epochs):
        cost = trainer.epoch(epoch)
        last = epoch == plan.nade.epochs - 1 or stop()
        if asked is not None and ((epoch + 1) % plan.look_every == 0 or last):
            network = trainer.averaged()
            value = mean_ndcg(score_all(network, asked.known).numpy(), asked)
            looks += 1
            say(f"lists: epoch {epoch + 1}, cost {cost:.3f}, validation NDCG@100 {value:.4f}")
            if value > best_value:
                best, best_value, looks = network, value, 0
        if last or looks >= PATIENCE:
            break
    return ChoiceNade([best or trainer.averaged()])
