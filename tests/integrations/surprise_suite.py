"""Surprise's own tests of algorithms, run with ours; see docs/how-to/integrate.md.

Its source archive has the tests but not the fixtures and ratings that they read.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import surprise
from surprise import Dataset, Reader
from surprise.model_selection import PredefinedKFold

from cfnade.integrations.surprise import CFNADEAlgo


class Ours(CFNADEAlgo):
    """A short training, whatever is asked of their algorithms."""

    def __init__(self, **_: Any) -> None:
        super().__init__(side="user", hidden=(8,), epochs=2, threads=1)


THEIRS = "BaselineOnly KNNBasic KNNWithMeans KNNBaseline SVD SVDpp NMF SlopeOne"
for name in [*THEIRS.split(), "CoClustering", "KNNWithZScore"]:
    setattr(surprise, name, Ours)


@pytest.fixture
def toy_data() -> Any:
    cells = itertools.product(range(5), range(4))
    lines = [(f"user{u}", f"item{i}", 1 + (u * i + u) % 5) for u, i in cells if (u + i) % 3]
    return Dataset.load_from_df(pd.DataFrame(lines), Reader(rating_scale=(1, 5)))


@pytest.fixture
def u1_ml100k(tmp_path: Path) -> Any:
    """Made up: 900 ratings to learn from, 100 to predict."""
    rng = np.random.default_rng(1)
    cells = rng.choice(100 * 60, 1000, replace=False)
    lines = [f"{at // 60} {at % 60} {rng.integers(1, 6)}" for at in cells.tolist()]
    for part, some in (("train", lines[:900]), ("test", lines[900:])):
        (tmp_path / part).write_text("\n".join(some))
    reader = Reader(line_format="user item rating", sep=" ", rating_scale=(1, 5))
    return Dataset.load_from_folds([(tmp_path / "train", tmp_path / "test")], reader=reader)


@pytest.fixture
def pkf() -> PredefinedKFold:
    return PredefinedKFold()
