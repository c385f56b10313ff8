"""Model selection for one implicit component: a coordinate search over its options.

It starts at the component's own start values and goes along one option while validation improves,
as long as its time budget pays for the next fit. Costs are estimates, and the order of the steps
does not depend on the budget: more time never ends at a lower validation score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfnade.implicit.base import DataShape, FitCache, ImplicitComponent, Options, SearchSpace
from cfnade.implicit.holdout import HoldOut, most_asked
from cfnade.implicit.rows import InteractionRows, Weighting
from cfnade.implicit.validation import Question, RankingMetric
from cfnade.implicit.weighted import WeightedComponent

WEIGHTINGS: tuple[Weighting, ...] = ("log", "binary", "linear")
"""In the order in which they are tried."""
SCORING_SECONDS = 1e-8
"""Core seconds of a trial for each score of its hold-out, measured with five variants."""


def trial_seconds(kind: type[ImplicitComponent], shape: DataShape, options: Options) -> float:
    """Estimate what it takes on one core to fit to data of this shape and to score users."""
    scores = most_asked(shape.users, shape.items) * shape.items
    return kind.seconds(shape, options) + SCORING_SECONDS * scores


@dataclass(frozen=True)
class Trial:
    """One fit: its options, the best last option that needs no fit, and what it gave."""

    options: Options
    variant: float | None
    value: float

    def to_dict(self) -> dict[str, Any]:
        variant = {} if self.variant is None else {"variant": self.variant}
        return {**self.options, **variant, "value": round(self.value, 5)}


@dataclass
class ComponentSearch:
    """The trials of one kind of component."""

    kind: type[ImplicitComponent]
    space: SearchSpace
    holdouts: Sequence[HoldOut]
    seed: int
    metric: RankingMetric
    shape: DataShape
    """Of all data, which the best options are fitted to in the end."""
    on_trial: Callable[[float], None] | None = None
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._caches = [FitCache() for _ in self.holdouts]
        self._questions = [holdout.question(self.seed) for holdout in self.holdouts]
        self._part = DataShape.of(self.holdouts[0].rows)

    def run(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Make at least one fit, and as many as the budget pays for, in estimated core seconds.

        `on_trial` is told the core seconds of each.
        """

        def proceed(options: Options) -> bool:
            return not stop() and self._within(seconds, self.trials, options)

        fixed = self._weighting(proceed)
        axes = {name: list(values) for name, values in self.space.values.items()}
        climb(
            axes,
            self.space.start,
            lambda options: self._try(options | fixed),
            lambda options: proceed(options | fixed),
        )
        self._caches = [FitCache() for _ in self.holdouts]  # they may hold much

    def best(self, seconds: float = np.inf) -> Trial:
        """Return the best trial that a budget would have come to."""
        affordable = self.trials[:1]
        for trial in self.trials[1:]:
            if not self._within(seconds, affordable, trial.options):
                break
            affordable.append(trial)
        return max(affordable, key=lambda trial: trial.value)

    def _within(self, seconds: float, trials: Sequence[Trial], options: Options) -> bool:
        """Whether a budget pays for these trials, one more, and the fits of the dearest to come.

        The best options are fitted again to each hold-out, for the blend, and to all data.
        """
        tried = [*(trial.options for trial in trials), options]
        if len(tried) > self.space.fits:
            return False
        search = sum(map(self._seconds, tried))
        dearest = max(self.kind.seconds(self.shape, options) for options in tried)
        return search + (1 + len(self.holdouts)) * dearest <= seconds

    def _seconds(self, options: Options) -> float:
        return len(self.holdouts) * trial_seconds(self.kind, self._part, options)

    def _weighting(self, proceed: Callable[[Options], bool]) -> dict[str, Any]:
        """Return the best way to weigh counts, at the start values."""
        weights = self.holdouts[0].rows.weights
        if not issubclass(self.kind, WeightedComponent) or not len(weights):
            return {}
        if weights.min() == weights.max():
            return {"weighting": "binary"}
        values = dict[str, float]()
        for weighting in WEIGHTINGS:
            options = dict(self.space.start) | {"weighting": weighting}
            if not values or proceed(options):
                values[weighting] = self._try(options)
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

            def value(component: ImplicitComponent, question: Question = question) -> float:
                scores = component.scores(question.history)
                return float(self.metric.evaluate(scores, question).mean())

            component, fitted = self.kind.fit_validated(
                holdout.rows, options, seed=self.seed, cache=cache, value=value
            )
            scores = component.scores(question.history)
            factors: Mapping[Any, Any] = component.variants() or {None: np.float32(1)}
            for variant, factor in factors.items():
                score = float(self.metric.evaluate(scores * factor, question).mean())
                sums[variant] = sums.get(variant, 0.0) + score / len(self.holdouts)
        variant = max(sums, key=lambda value: sums[value])
        self.trials.append(Trial(dict(fitted), variant, sums[variant]))
        if self.on_trial is not None:
            self.on_trial(self._seconds(options))
        return sums[variant]


def climb(
    axes: Mapping[str, Sequence[Any]],
    start: Options,
    value: Callable[[dict[str, Any]], float],
    proceed: Callable[[dict[str, Any]], bool],
) -> None:
    """Go along one axis at a time while `value` rises, until nothing rises.

    `proceed` is asked before each point but the first, and ends the search where it says no.
    """
    names = list(axes)
    fixed = {name: option for name, option in start.items() if name not in axes}
    tried: dict[tuple[int, ...], float] = {}

    def options_at(place: tuple[int, ...]) -> dict[str, Any]:
        return fixed | {name: axes[name][i] for name, i in zip(names, place, strict=True)}

    def untried(place: tuple[int, ...], axis: int) -> bool:
        return 0 <= place[axis] < len(axes[names[axis]]) and place not in tried

    place = tuple(list(axes[name]).index(start[name]) for name in names)
    best = tried[place] = value(options_at(place))
    moved = True
    while moved:
        moved = False
        for axis in range(len(names)):
            for step in (1, -1):
                while untried(new := _step(place, axis, step), axis):
                    if not proceed(options_at(new)):
                        return
                    tried[new] = value(options_at(new))
                    if tried[new] <= best:
                        break
                    place, best, moved = new, tried[new], True


def _step(place: tuple[int, ...], axis: int, step: int) -> tuple[int, ...]:
    return (*place[:axis], place[axis] + step, *place[axis + 1 :])


def fit_trial(
    kind: type[ImplicitComponent], trial: Trial, rows: InteractionRows, seed: int
) -> ImplicitComponent:
    """Return a component with the options of a trial, fitted to these rows."""
    component = kind.fit(rows, trial.options, seed=seed, cache=FitCache())
    return component if trial.variant is None else component.with_variant(trial.variant)
