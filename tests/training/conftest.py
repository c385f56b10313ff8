"""A small data set with a known answer, cut into parts."""

from __future__ import annotations

import pytest

from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic


@pytest.fixture(scope="session")
def parts() -> Split:
    return split(synthetic(60, 40, 900, seed=3).ratings, "paper:0")
