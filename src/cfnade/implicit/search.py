"""Model selection for one implicit component: a coordinate search over its options.

It starts at the component's own start values and goes along one option while validation improves.
The order of its steps does not depend on how many are allowed, so more fits never end at a lower
validation score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfnade.implicit.base import FitCache, ImplicitComponent, Options, SearchSpace
from cfnade.implicit.blend import Question, ndcg_of_scores
from cfnade.implicit.holdout import HoldOut
from cfnade.implicit.rows import InteractionRows, Weighting
from cfnade.implicit.weighted import WeightedComponent

WEIGHTINGS: tuple[Weighting, ...] = ("binary", "log", "linear")


@dataclass(frozen=True)
class Trial:
    """One fit: its options, the best last option that needs no fit, and what it gave."""

    options: Options
    variant: float | None
    value: float

    def to_dict(self) -> dict[str, Any]:
        shown = {} if self.variant is None else {"variant": self.variant}
        return {**self.options, **shown, "value": round(self.value, 5)}


@dataclass
class ComponentSearch:
    """The trials of one kind of component."""

    kind: type[ImplicitComponent]
    space: SearchSpace
    holdouts: Sequence[HoldOut]
    seed: int
    k: int
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._caches = [FitCache() for _ in self.holdouts]
        self._questions = [one.question(self.seed) for one in self.holdouts]

    def run(self, fits: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Make at most so many fits, at least one."""
        fixed = self._weighting(fits)
        axes = {name: list(values) for name, values in self.space.values.items()}
        climb(axes, self.space.start, lambda options: self._try(options | fixed), fits, stop)
        self._caches = [FitCache() for _ in self.holdouts]  # they may hold much

    def best(self, fits: int | None = None) -> Trial:
        """Return the best of the first so many trials."""
        return max(self.trials[:fits], key=lambda trial: trial.value)

    def _weighting(self, fits: int) -> dict[str, Any]:
        """Return the best way to weigh counts, at the start values."""
        weights = self.holdouts[0].rows.weights
        if not issubclass(self.kind, WeightedComponent) or not len(weights):
            return {}
        if weights.min() == weights.max() or fits < 2 * len(WEIGHTINGS):
            return {"weighting": "binary" if weights.min() == weights.max() else "log"}
        values = {
            weighting: self._try(dict(self.space.start) | {"weighting": weighting})
            for weighting in WEIGHTINGS
        }
        return {"weighting": max(values, key=lambda name: values[name])}

    def _try(self, options: Mapping[str, Any]) -> float:
        """Return the validation score of these options."""
        for trial in self.trials:
            if trial.options == options:
                return trial.value
        sums: dict[float | None, float] = {}
        fitted = options
        for holdout, question, cache in zip(
            self.holdouts, self._questions, self._caches, strict=True
        ):

            def value(one: ImplicitComponent, question: Question = question) -> float:
                scores = one.scores(question.known)
                return float(ndcg_of_scores(scores, question, self.k).mean())

            component, fitted = self.kind.fit_validated(
                holdout.rows, options, seed=self.seed, cache=cache, value=value
            )
            scores = component.scores(question.known)
            factors: Mapping[Any, Any] = component.variants() or {None: np.float32(1)}
            for variant, factor in factors.items():
                ndcg = ndcg_of_scores(scores * factor, question, self.k).mean()
                sums[variant] = sums.get(variant, 0.0) + float(ndcg) / len(self.holdouts)
        variant = max(sums, key=lambda one: sums[one])
        self.trials.append(Trial(dict(fitted), variant, sums[variant]))
        return sums[variant]


def climb(
    axes: Mapping[str, Sequence[Any]],
    start: Options,
    value: Callable[[dict[str, Any]], float],
    most: int,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Go along one axis at a time while `value` rises, until nothing rises or `most` are tried."""
    names = list(axes)
    fixed = {name: option for name, option in start.items() if name not in axes}
    tried: dict[tuple[int, ...], float] = {}

    def at(place: tuple[int, ...]) -> float:
        if place not in tried:
            chosen = {name: axes[name][i] for name, i in zip(names, place, strict=True)}
            tried[place] = value(fixed | chosen)
        return tried[place]

    place = tuple(list(axes[name]).index(start[name]) for name in names)
    best, moved = at(place), True
    while moved and len(tried) < most and not stop():
        moved = False
        for axis in range(len(names)):
            for step in (1, -1):
                while len(tried) < most and not stop():
                    further = place[axis] + step
                    new = (*place[:axis], further, *place[axis + 1 :])
                    if not 0 <= further < len(axes[names[axis]]) or new in tried:
                        break
                    if at(new) <= best:
                        break
                    place, best, moved = new, at(new), True


def fit_trial(
    kind: type[ImplicitComponent], trial: Trial, rows: InteractionRows, seed: int
) -> ImplicitComponent:
    """Return a component with the options of a trial, fitted to these rows."""
    component = kind.fit(rows, trial.options, seed=seed, cache=FitCache())
    return component if trial.variant is None else component.with_variant(trial.variant)
