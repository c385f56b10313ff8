"""This package's interaction model (docs/picks.md), in the interface of its rivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from cfnade.data.dataset import Interactions
from cfnade.data.split_protocols import TRAIN
from cfnade.data.splits import apply_labels
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.training.implicit import implicit_plan
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.train import train
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores


@dataclass(frozen=True)
class FittedInteractions(FittedLists):
    """An interaction model, asked about users by what they like."""

    model: InteractionModel

    def scores(self, given: Likes) -> Scores:
        """Return the weighted sum of its components, (users, M)."""
        columns = np.asarray(given.columns, np.int32)
        weights = np.ones(len(columns), np.float32)
        rows = InteractionRows(given.offsets, columns, weights, given.n_items)
        return self.model.scores(rows)


@dataclass(frozen=True, kw_only=True)
class OurLists(ListRival[FittedInteractions]):
    """All else follows from the data."""

    name: ClassVar[str] = "cfnade"

    minutes: Annotated[float, Gt(0)] | None = None
    """Time budget of model selection; by default it follows from the size of the data."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedInteractions:
        """Train, as `cfnade train` does on interactions."""
        picked = Interactions(
            likes.rows(),
            np.asarray(likes.columns, np.int32),
            np.arange(len(likes)),
            np.arange(likes.n_items),
        )
        split = apply_labels(picked, np.full(len(picked), TRAIN, np.uint8), "compared")
        plan = implicit_plan(split.train, seed=seed, time_budget=self.minutes)
        model = train(
            split, TrainingPlan(implicit=plan), RunOptions(n_threads=threads)
        ).model.interaction_model
        assert model is not None
        return FittedInteractions(model)
