"""CF-NADE itself, by one of its recipes, in the interface of its rivals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split
from cfnade.errors import ModelError
from cfnade.recipes import model_fields, recipe, training_settings
from cfnade_rivals.interface import Arrays, FloatArray, IntArray, require_fitted
from cfnade.training.run import train as train_model


@dataclass(frozen=True, kw_only=True)
class OursOptions:
    """A recipe of `cfnade train` and what differs from it."""

    recipe: str = "default"
    """The name of a recipe, or a TOML file."""
    model: dict[str, Any] = field(default_factory=dict)
    """Fields of the model that replace the recipe's."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings that replace the recipe's; the seed comes from `fit`."""

    def __post_init__(self) -> None:
        recipe(self.recipe)
        model_fields(self.model, "cfnade")
        if "seed" in self.training:
            raise ModelError("training holds a seed; the seed is an argument of fit")


class Ours:
    """CF-NADE; it conditions on training and validation ratings, as the paper does."""

    name: ClassVar[str] = "cfnade"

    def __init__(self, **options: Any) -> None:
        self.options = OursOptions(**options)
        self.bundle: Bundle | None = None
        """The trained model, once there is one; `cfnade.checkpoint` saves it."""

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Train by the recipe; validation chooses the epoch and the calibration."""
        base = recipe(self.options.recipe)
        given = base.training.to_dict() | self.options.training | {"seed": seed}
        none = train.select(np.empty(0, np.int64))
        trained = train_model(
            Split("comparison", train, valid, none, none, fingerprint=""),
            side=base.side,
            architecture=base.model | model_fields(self.options.model, "cfnade"),
            settings=training_settings(given, "cfnade"),
            threads=threads,
        )
        if trained.diverged:
            raise ModelError(f"cfnade diverged: {trained.diverged}")
        self.bundle = trained.bundle
        self._cells = Cells(trained.bundle)

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """The mean of the distribution, by the rule for unseen ones (models/unseen.py)."""
        require_fitted(self.bundle is not None, self.name)
        assert self.bundle is not None
        stars = self.bundle.context.scale.array()
        means = self._cells.probabilities(users, items) @ stars
        return np.clip(means, stars[0], stars[-1])

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray:
        """The chance of every level, calibrated. Returns (n, K)."""
        require_fitted(self.bundle is not None, self.name)
        assert self.bundle is not None
        raw = self._cells.probabilities(users, items)
        calibration = self.bundle.calibration
        stars = self.bundle.context.scale.array()
        return raw if calibration is None else calibration.apply(raw, stars)

    def arrays(self) -> Arrays:
        """Refuse: CF-NADE has a format of its own."""
        raise ModelError(
            "cfnade has a format of its own; save it with cfnade.checkpoint.save(rival.bundle, "
            "folder)"
        )

    def restore(self, arrays: Arrays) -> None:
        """Refuse."""
        raise ModelError(
            f"cfnade cannot be restored from {len(arrays)} arrays; load it with "
            "cfnade.checkpoint.load(folder)"
        )
