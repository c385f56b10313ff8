"""What the answers to new people must reach, and whether they do: read off the figures, each time.

A must compares ours (one recipe) with the rivals on the same questions; a goal is a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.new_users.baselines import MEANS
from experiments.new_users.panel import GIVEN

MARGIN = 0.01
GOALS: dict[str, tuple[int, dict[str, float]]] = {
    "ml-1m": (3, {"1": 0.955, "2": 0.944, "5": 0.920, "10": 0.893, "20": 0.865, "50": 0.828})
}
"""RMSE to reach on a seed of a data set, by the number given."""

_MARGIN_FROM = GIVEN.index("5")


@dataclass(frozen=True)
class Must:
    """A demand on ours less a rival's figure, for one number given."""

    metric: str  # rmse or nll
    given: str
    words: str

    @property
    def place(self) -> int:
        return GIVEN.index(self.given)

    def rival(self, methods: list[dict[str, Any]]) -> dict[str, Any]:
        """Who has to be beaten: the best of the rivals, and at 0 given the means."""
        rivals = [one for one in methods if "recipe" not in one]
        if self.metric == "rmse" and self.given == "0":
            rivals = [one for one in rivals if one["method"] == MEANS]
        return min(rivals, key=lambda one: float(one[self.metric][self.place]))

    def gap(self, methods: list[dict[str, Any]]) -> float:
        """Ours less the rival's."""
        mine = next(one for one in methods if "recipe" in one)
        theirs = self.rival(methods)
        return float(mine[self.metric][self.place] - theirs[self.metric][self.place])

    def met(self, gap: float) -> bool:
        if self.metric == "nll":
            return gap < 0
        if self.given == "0":
            return gap <= 0
        return gap <= -MARGIN if self.place >= _MARGIN_FROM else gap < 0


def musts() -> list[Must]:
    """RMSE for each of GIVEN, then NLL."""
    near = [Must("rmse", "0", f"no more than {MEANS}")]
    near += [Must("rmse", n, "below the best rival") for n in GIVEN[1:_MARGIN_FROM]]
    ahead = f"{MARGIN} below the best rival"
    far = [Must("rmse", n, ahead) for n in GIVEN[_MARGIN_FROM:]]
    return [*near, *far, *(Must("nll", n, "below the best rival") for n in GIVEN)]


def averaged(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The methods with the means of their figures over seeds."""
    figures = ("rmse", "nll", "fit_s", "fit_cpu_s", "user_ms", "user_cpu_ms")
    out = []
    for versions in zip(*(run["methods"] for run in runs), strict=True):
        means = {name: np.mean([one[name] for one in versions], 0).tolist() for name in figures}
        out.append(versions[0] | means)
    return out


def goals(record: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Number given, goal and ours, if the record has the seed that goals are about."""
    seed, wanted = GOALS.get(record["data"], (None, {}))
    for run in record["runs"]:
        if run["seed"] == seed:
            mine = next(one for one in run["methods"] if "recipe" in one)
            return [(n, goal, mine["rmse"][GIVEN.index(n)]) for n, goal in wanted.items()]
    return []
