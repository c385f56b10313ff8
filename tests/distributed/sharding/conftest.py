"""Small jobs of many tasks, without waiting for the disk."""

from __future__ import annotations

import os

import pytest

from cfnade.distributed.sharding import chunks, finding, finishing, plan


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit so low that tiny data is cut everywhere; a power cut is not what is tested."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(plan, "ROWS", 150)
    monkeypatch.setattr(plan, "BYTES", 1500)
    monkeypatch.setattr(chunks, "BYTES", 1500)
    monkeypatch.setattr(finding, "IDS_AT_ONCE", 60)
    monkeypatch.setattr(finding, "BAND", 300)
    monkeypatch.setattr(finishing, "ID_PIECE", 40)
