"""A model to ask on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.distributed.batches import saved_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("engine") / "model")
