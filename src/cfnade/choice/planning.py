"""Which sides of a choice are made for data of a shape, and how; nothing has to be said."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cfnade.choice.factored import PosteriorConfig
from cfnade.choice.linear import DENSE, NEIGHBOURS, usual_penalty
from cfnade.choice.nade_training import ChoiceSettings
from cfnade.data.dataset import Dataset

EXACT_ITEMS, HEAD, TAIL = 8_000, 2_500, 1_000
"""Up to so many items the softmax is exact; beyond, it has a head and a sampled tail."""

LARGE = 5_000_000
"""Picks from which on networks are larger and pass over the data less often."""

CORES = 1.6
"""How much faster two cores are than one."""


@dataclass(frozen=True, kw_only=True)
class ChoicePlan:
    """What is made."""

    nade: ChoiceSettings
    look_every: int
    """Epochs between two looks at validation."""
    patience: int
    """Looks without a gain after which the network stops."""
    penalty: float
    """Of the linear path."""
    neighbours: int
    posterior: PosteriorConfig | None
    """None: there is no factored path. On large data it needs more dimensions than it is worth."""
    sweeps: int = 3
    people: int = 100_000
    """So many people suffice for the factored path's vectors of items."""
    levels: bool = False
    """Whether the network sees how things were taken up, and not only that they were."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choice_plan(ratings: Dataset, *, seed: int = 0) -> ChoicePlan:
    """What suits data of this shape; docs/lists.md says how the numbers were found."""
    picks, M = max(1, len(ratings)), ratings.n_items
    large = picks > LARGE
    nade = ChoiceSettings(
        hidden=500 if large else 300,
        epochs=6 if large else 60,
        batch=1000 if large else int(np.clip(ratings.n_users // 10, 50, 500)),
        learning_rate=2e-3 if large else 3e-3,
        weight_decay=min(0.01, 185 / picks),
        average_every=5 if large else 2,
        falls=large,
        head=0 if M <= EXACT_ITEMS else HEAD,
        tail=TAIL,
        seed=seed,
    )
    posterior = PosteriorConfig(columns=M, factors=int(np.clip(M // 8, 16, 256)))
    return ChoicePlan(
        nade=nade,
        look_every=1 if large else 5,
        patience=3 if large else 2,
        penalty=usual_penalty(picks / max(1, M)),
        neighbours=0 if M <= DENSE else NEIGHBOURS,
        posterior=None if large else posterior,
    )


def sizes_of(ratings: Dataset, plan: ChoicePlan) -> dict[str, int]:
    """How many bytes the numbers of each side take."""
    M, levels = ratings.n_items, len(ratings.scale) if plan.levels else 1
    counts = {"nade": M * (plan.nade.hidden * (levels + 1) + 1) + plan.nade.hidden}
    counts["linear"] = 2 * M * plan.neighbours or M * M
    if plan.posterior is not None:
        counts["posterior"] = M * plan.posterior.factors
    return {name: 4 * count for name, count in counts.items()}


def seconds_of(ratings: Dataset, plan: ChoicePlan) -> float:
    """About how long a plan takes on two cores without AVX-512; follows from sizes alone."""
    n, N, M = len(ratings), ratings.n_users, ratings.n_items
    nade, D = plan.nade, 0 if plan.posterior is None else plan.posterior.factors
    wide = min(M, nade.head + nade.tail + 3 * nade.batch) if nade.head else M
    epochs = min(nade.epochs, 35)  # most stop before their end
    a_step = 6e-11 * nade.batch * wide * nade.hidden + 4e-9 * M * nade.hidden
    network = epochs * (N / nade.batch) * a_step + epochs * 2e-10 * n * nade.hidden
    linear = 2e-11 * min(M, DENSE) ** 3 + 4e-9 * n * n / max(1, N)
    share = min(1.0, plan.people / max(1, N))
    factored = plan.sweeps * share * (4e-11 * 2 * n * D * D + 4e-11 * (N + M) * D**3)
    return (network + linear + factored) / CORES
