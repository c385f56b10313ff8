"""LensKit's own tests of components, with our scorer; test_lenskit.py runs them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from lenskit.testing import (  # noqa: F401  # fixtures
    BasicComponentTests,
    ScorerTests,
    ml_100k,
    ml_ds,
    ml_ds_unchecked,
    ml_ratings,
)

from cfnade.integrations.base import Parameters
from cfnade.integrations.lenskit import CFNADEScorer


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(42)


class TestCFNADEScorer(BasicComponentTests, ScorerTests):
    component = CFNADEScorer  # type: ignore[misc]
    config = Parameters(side="user", epochs=4, n_threads=1)
    configs: ClassVar[list[dict[str, Any]]] = [  # type: ignore[misc]
        {"side": "item", "hidden": [30, 20]},
        {"training_options": {"smoothing": 10}},
    ]
    can_score = "known"
    expected_rmse = (0.85, 0.91)
    """LensKit's mean over people of their RMSE, on a split of its own; a first guess."""
