"""The interaction model of a data set: components searched, blended and refitted, with no settings.

Interactions of each user are hidden (implicit/holdout.py), every component is tuned on them within
the time budget (implicit/search.py), non-negative weights are found (implicit/blend.py), and the
components that earned a weight are fitted again to everything.

The budget is kept by estimates and not by the clock: the same data, seed and threads give the same
model on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.implicit.base import (
    DataShape,
    ImplicitComponent,
    SearchSpace,
    component_class,
    interaction_components,
)
from cfnade.implicit.blend import (
    Blend,
    Candidates,
    collect_candidates,
    fit_weights,
    join_candidates,
)
from cfnade.implicit.holdout import HoldOut, hold_outs, most_asked
from cfnade.implicit.interaction_model import POPULARITY, InteractionModel
from cfnade.implicit.popularity import Popularity
from cfnade.implicit.repeats import fit_repeats
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.search import ComponentSearch, Trial, fit_trial, trial_seconds
from cfnade.implicit.sharpness import Observed, Sharpness, fit_sharpness, shorten
from cfnade.implicit.validation import Question, RankingMetric
from cfnade.kernels.blending import add_standardized
from cfnade.kernels.threads import single_torch_thread, thread_count
from cfnade.training.callbacks import Callback, Stage
from cfnade.training.options import RunOptions

T = TypeVar("T")

WEIGHTS = "weights"
BASE_SECONDS, SECONDS_PER_100K, MOST_SECONDS = 15.0, 15.0, 90.0
CORES = 1.4
"""Core seconds that are planned for a second on two cores: components do not end at the same time,
and estimates may be too low."""
BLEND_SECONDS = 5e-8
"""Core seconds that weights take for each score of each component, measured."""
SHARPNESS_USERS = 500
BLOCK_NUMBERS = 1 << 24
"""Scores of each component that are held at once while weights are found."""


def default_seconds(interactions: int) -> float:
    """Return the time budget of data of this size."""
    return min(MOST_SECONDS, BASE_SECONDS + SECONDS_PER_100K * interactions / 100_000)


@dataclass(frozen=True, kw_only=True)
class ImplicitPlan:
    """How an interaction model is selected and fitted."""

    seconds: float
    """Time budget on two cores, estimated."""
    metric: RankingMetric = field(default_factory=RankingMetric)
    """Metric on the hold-out that selects options and weights."""
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def implicit_plan(
    data: Dataset, *, seed: int = 0, time_budget: float | None = None
) -> ImplicitPlan:
    """Return the plan for a data set; the budget is in minutes."""
    seconds = default_seconds(len(data)) if time_budget is None else 60 * time_budget
    return ImplicitPlan(seconds=seconds, seed=seed)


def interaction_stage(plan: ImplicitPlan) -> Stage:
    """Return what callbacks call this training."""
    return Stage("interactions", seconds=plan.seconds)


class Progress:
    """Tells a callback which component is at work, and estimates the time that is left."""

    def __init__(self, callback: Callback, stage: Stage) -> None:
        self._callback, self._stage, self._began = callback, stage, time.monotonic()
        self._done = 0.0
        self._left: dict[str, float] = {}
        self._lock = Lock()

    def plan(self, name: str, core_seconds: float) -> None:
        """Expect so much work of a component, or of `weights`."""
        with self._lock:
            self._left[name] = core_seconds

    def advance(self, name: str, core_seconds: float) -> None:
        """Count work as done."""
        with self._lock:
            self._done += core_seconds
            self._left[name] = max(0.0, self._left.get(name, 0.0) - core_seconds)
            total = self._done + sum(self._left.values())
            stage = replace(self._stage, detail=name)
        self._callback.on_step_end(stage, self._done / max(total, 1e-9), None)

    def seconds_left(self) -> float:
        """Return the estimated time to the end, at the speed so far."""
        elapsed = time.monotonic() - self._began
        return elapsed * sum(self._left.values()) / max(self._done, 1e-9)


@dataclass
class ImplicitTraining:
    """Selects and fits an interaction model; `facts` records every trial."""

    split: Split
    plan: ImplicitPlan
    options: RunOptions
    callback: Callback
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._progress = Progress(self.callback, interaction_stage(self.plan))

    def run(self) -> InteractionModel:
        """Return the model. When stopped, it is the best of what has been tried."""
        began = time.monotonic()
        holdouts, rows = self._data()
        shape = DataShape.of(rows)
        spaces = _affordable(shape, self.plan.seconds, max(1, len(holdouts)))
        names = ", ".join(name for name in spaces if name != POPULARITY)
        self.callback.on_message(
            f"interactions: {names}; about {self.plan.seconds:.0f} s on two cores"
        )
        if not holdouts:
            return self._unvalidated(rows)
        searches = self._search(holdouts, shape, spaces)
        blend, trials, sharpness = self._blend(holdouts, searches, shape)
        model = self._refit(rows, blend, trials, sharpness)
        seconds = {"total_seconds": round(time.monotonic() - began, 2)}
        self.facts |= seconds
        return model

    # -- data ---------------------------------------------------------------------------------

    def _data(self) -> tuple[Sequence[HoldOut], InteractionRows]:
        """Return hold-outs, and the rows of the final fit."""
        split, seed = self.split, self.plan.seed
        if len(split.fold_in):  # users are held out whole, and stay so
            train = InteractionRows.from_ratings(split.train)
            history = InteractionRows.from_ratings(split.train.concat(split.fold_in))
            answers = InteractionRows.from_ratings(split.valid)
            holdouts = [HoldOut(train, history, answers)] if len(split.valid) else []
            return holdouts, train
        ratings = split.train.concat(split.valid)
        rows = InteractionRows.from_ratings(ratings)
        times = _times(ratings) if split.name.startswith("time") else None
        return hold_outs(rows, seed=seed, times=times), rows

    # -- steps --------------------------------------------------------------------------------

    def _search(
        self, holdouts: Sequence[HoldOut], shape: DataShape, spaces: Mapping[str, SearchSpace]
    ) -> dict[str, ComponentSearch]:
        frequent = [holdout.of_frequent_items() for holdout in holdouts]
        budgets = self._budgets(holdouts, shape, spaces, self.plan.seconds)
        for name, seconds in budgets.items():
            self._progress.plan(name, seconds)
        self._progress.plan(WEIGHTS, self._weights_seconds(holdouts, shape, spaces))

        def run(name: str) -> ComponentSearch:
            began = time.monotonic()
            search = ComponentSearch(
                component_class(name),
                spaces[name],
                frequent,
                self.plan.seed,
                self.plan.metric,
                shape,
                lambda seconds: self._progress.advance(name, seconds),
            )
            search.run(budgets[name], self.options.should_stop)
            fits = (1 + len(holdouts)) * search.kind.seconds(shape, search.best().options)
            self._progress.plan(name, fits)
            self._tell(name, search, time.monotonic() - began)
            return search

        dearest_first = sorted(spaces, key=lambda name: -budgets[name])
        searches = self._in_parallel(run, dearest_first)
        return {name: searches[name] for name in spaces}

    def _in_parallel(self, function: Callable[[str], T], names: Iterable[str]) -> dict[str, T]:
        """Call a function for each component; each call keeps to one thread.

        Components are independent, and several threads within one fit would wait for each other.
        """

        def on_one_thread(name: str) -> T:
            with single_torch_thread():
                return function(name)

        ordered = list(names)
        with ThreadPoolExecutor(thread_count(self.options.n_threads)) as pool:
            return dict(zip(ordered, pool.map(on_one_thread, ordered), strict=True))

    def _tell(self, name: str, search: ComponentSearch, seconds: float) -> None:
        best, fits = search.best(), len(search.trials)
        fits_text = f"{fits} fit{'s' if fits != 1 else ''} in {seconds:.1f} s"
        self.callback.on_message(
            f"interactions: {name}, {self.plan.metric} {best.value:.4f} ({fits_text}); "
            f"about {self._progress.seconds_left():.0f} s left"
        )
        tried = self.facts.setdefault("tried", {})
        tried[name] = [trial.to_dict() for trial in search.trials]
        self.facts.setdefault("seconds", {})[name] = round(seconds, 2)

    def _blend(
        self, holdouts: Sequence[HoldOut], searches: Mapping[str, ComponentSearch], shape: DataShape
    ) -> tuple[Blend, dict[str, Trial], Sharpness]:
        """Return the better of two blends: of the default budget's options, and of the best ones.

        More time never gives a lower validation score that way.
        """
        options = [{name: search.best() for name, search in searches.items()}]
        default = self._default_trials(holdouts, searches, shape)
        if default not in options:
            options.insert(0, default)
        blends = [(*self._weights(holdouts, trials), trials) for trials in options]
        blend, sharpness, trials = max(blends, key=lambda candidate: candidate[0].score)
        self.facts |= {
            "metric": str(self.plan.metric),
            "score": round(blend.score, 5),
            "component_scores": {
                name: round(value, 5) for name, value in blend.component_scores.items()
            },
            "weights": {name: round(weight, 3) for name, weight in blend.weights.items()},
            "plan": self.plan.to_dict(),
        }
        return blend, trials, sharpness

    def _default_trials(
        self, holdouts: Sequence[HoldOut], searches: Mapping[str, ComponentSearch], shape: DataShape
    ) -> dict[str, Trial]:
        """Return the options that the default budget would have found."""
        seconds = default_seconds(shape.interactions)
        if self.plan.seconds <= seconds:
            return {name: search.best() for name, search in searches.items()}
        spaces = _affordable(shape, seconds, len(holdouts))
        budgets = self._budgets(holdouts, shape, spaces, seconds)
        return {name: searches[name].best(budgets[name]) for name in spaces if name in searches}

    def _budgets(
        self,
        holdouts: Sequence[HoldOut],
        shape: DataShape,
        spaces: Mapping[str, SearchSpace],
        seconds: float,
    ) -> dict[str, float]:
        """Return the core seconds of each component, without those for the weights."""
        weights = self._weights_seconds(holdouts, shape, spaces)
        return share_budget(shape, spaces, CORES * seconds - weights, len(holdouts))

    def _weights_seconds(
        self, holdouts: Sequence[HoldOut], shape: DataShape, names: Sized
    ) -> float:
        """Return the core seconds for the weights, which a longer search finds twice."""
        times = 1 if self.plan.seconds <= default_seconds(shape.interactions) else 2
        scores = len(holdouts) * most_asked(shape.users, shape.items) * shape.items
        return times * BLEND_SECONDS * scores * len(names)

    def _weights(
        self, holdouts: Sequence[HoldOut], trials: Mapping[str, Trial]
    ) -> tuple[Blend, Sharpness]:
        parts: list[Candidates] = []
        first: dict[str, ImplicitComponent] = {}
        for holdout in holdouts:
            fitted = self._fitted(holdout.rows, trials)
            first = first or fitted
            question = holdout.question(self.plan.seed)
            parts += [
                collect_candidates(scores, part, self.plan.metric)
                for part, scores in _scored(fitted, question)
            ]
            del fitted
        self._progress.advance(WEIGHTS, 0.0)
        blend = fit_weights(list(trials), join_candidates(parts), seed=self.plan.seed)
        sharpness = self._sharpness(holdouts[0], first, blend)
        self._progress.plan(WEIGHTS, 0.0)
        return blend, sharpness

    def _sharpness(
        self, holdout: HoldOut, fitted: Mapping[str, ImplicitComponent], blend: Blend
    ) -> Sharpness:
        """Fit to users as they are, and to shorter histories of theirs."""
        weighted = {name: part for name, part in fitted.items() if blend.weights[name] > 0}
        question = holdout.question(self.plan.seed)
        users = np.arange(min(SHARPNESS_USERS, len(question.history)))
        history, answers = question.history.select(users), question.answers.select(users)
        observed = []
        for context, targets in ((history, answers), shorten(history, answers, self.plan.seed)):
            total = np.zeros((len(context), holdout.rows.n_columns), np.float32)
            for name, component in weighted.items():
                add_standardized(component.scores(context), blend.weights[name], total)
            observed.append(Observed(total, context, targets))
        return fit_sharpness(observed)

    def _fitted(
        self, rows: InteractionRows, trials: Mapping[str, Trial]
    ) -> dict[str, ImplicitComponent]:
        shape = DataShape.of(rows)

        def fit(name: str) -> ImplicitComponent:
            kind, trial = component_class(name), trials[name]
            fitted = fit_trial(kind, trial, rows, self.plan.seed)
            self._progress.advance(name, kind.seconds(shape, trial.options))
            return fitted

        return self._in_parallel(fit, trials)

    def _refit(
        self,
        rows: InteractionRows,
        blend: Blend,
        trials: Mapping[str, Trial],
        sharpness: Sharpness,
    ) -> InteractionModel:
        began = time.monotonic()
        needed = {name: trials[name] for name in needed_components(blend, trials)}
        components = self._fitted(rows, needed)
        self.facts["seconds"]["refit"] = round(time.monotonic() - began, 2)
        weights = {name: blend.weights[name] for name in needed}
        return InteractionModel(components, weights, sharpness, fit_repeats(rows))

    def _unvalidated(self, rows: InteractionRows) -> InteractionModel:
        """Without a user of two interactions there is nothing to learn but popularity."""
        self.callback.on_message(
            "interactions: no user has two interactions, so items are ranked by popularity"
        )
        self.facts |= {
            "score": None,
            "component_scores": {},
            "weights": {POPULARITY: 1.0},
            "seconds": {},
        }
        trial = Trial({}, None, 0.0)
        components = {POPULARITY: fit_trial(Popularity, trial, rows, self.plan.seed)}
        return InteractionModel(components, {POPULARITY: 1.0}, repeats=fit_repeats(rows))


def needed_components(blend: Blend, names: Iterable[str]) -> list[str]:
    """Return the components that a model needs.

    These are all components with a weight, popularity for users without interactions, and one with
    item vectors, for similar items and diversity.
    """
    candidates = list(names)
    needed = [name for name in candidates if blend.weights[name] > 0]
    with_vectors = [name for name in candidates if component_class(name).gives_item_vectors]
    if with_vectors and not set(needed) & set(with_vectors):
        needed.append(max(with_vectors, key=lambda name: blend.component_scores[name]))
    return needed if POPULARITY in needed else [*needed, POPULARITY]


def _times(ratings: Dataset) -> Any:
    """Return the times of interactions in the order of rows, if there are any."""
    if ratings.times is None:
        return None
    return ratings.times[np.argsort(ratings.users, kind="stable")]


def _affordable(shape: DataShape, seconds: float, holdouts: int) -> dict[str, SearchSpace]:
    """Return the components that a budget has room for; always popularity and a cheapest one."""
    all_spaces = {name: kind.search_space(shape) for name, kind in interaction_components().items()}
    costs = {
        name: (1 + 2 * holdouts) * trial_seconds(component_class(name), shape, space.start)
        for name, space in all_spaces.items()
        if space is not None
    }
    cheapest = min((name for name in costs if name != POPULARITY), key=lambda name: costs[name])
    spaces, spent = dict[str, SearchSpace](), costs[cheapest]
    for name, cost in costs.items():
        space = all_spaces[name]
        assert space is not None
        extra = 0.0 if name == cheapest else cost
        if name in (POPULARITY, cheapest) or spent + extra <= CORES * seconds:
            spaces[name] = space
            spent += extra
    return spaces


def share_budget(
    shape: DataShape, spaces: Mapping[str, SearchSpace], seconds: float, holdouts: int
) -> dict[str, float]:
    """Divide a budget evenly; what cheap components do not use goes to expensive ones."""
    most = {
        name: _most_seconds(component_class(name), shape, space, holdouts)
        for name, space in spaces.items()
    }
    budgets = dict[str, float]()
    for n_components, name in zip(
        range(len(spaces), 0, -1), sorted(spaces, key=lambda name: most[name]), strict=True
    ):
        budgets[name] = min(most[name], max(0.0, seconds) / n_components)
        seconds -= budgets[name]
    return budgets


def _most_seconds(
    kind: type[ImplicitComponent], shape: DataShape, space: SearchSpace, holdouts: int
) -> float:
    """Return what the search takes at most: a third of its fits at the dearest options."""
    start = trial_seconds(kind, shape, space.start)
    alternatives = [
        dict(space.start) | {name: value}
        for name, values in space.values.items()
        for value in values
    ]
    dearest = max([start, *(trial_seconds(kind, shape, options) for options in alternatives)])
    fits = holdouts * space.fits * (2 * start + dearest) / 3
    return fits + (1 + holdouts) * dearest


def _scored(components: Mapping[str, ImplicitComponent], question: Question) -> Any:
    """Yield parts of a question with the scores of each component."""
    step = max(16, BLOCK_NUMBERS // question.history.n_columns)
    for first in range(0, len(question.history), step):
        users = np.arange(first, min(first + step, len(question.history)))
        part = Question(question.history.select(users), question.answers.select(users))
        yield part, {name: component.scores(part.history) for name, component in components.items()}
