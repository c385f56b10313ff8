"""Answering POST /recommendations passes few modules and functions, so that a reader can follow."""

from __future__ import annotations

import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.server.given import Asking, history, rated

import cfnade

ROOT = str(Path(cfnade.__file__).parent)
MAX_SERVER = 9, 31
"""Modules and functions of the service that are entered for a list of a new user."""
MAX_ALL = 36, 150
"""The same with inference, components and kernels."""


def test_a_recommendation_takes_a_short_walk(
    asking: Asking, user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, recording = set[CodeType](), threading.Event()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name[0] == "<":
            return
        if recording.is_set():
            entered.add(code)

    monkeypatch.setattr("cfnade.server.model_registry._WARM_UP_DELAY", 3600.0)
    headers = {"x-api-key": "a key of this test"}
    threading.setprofile(note)  # of the event loop and of workers, which begin below
    try:
        with asking(user_model, api_key=headers["x-api-key"]) as client:
            for seed in range(3):  # the first ones fill caches
                if seed == 2:
                    recording.set()
                body = {"ratings": rated(history(seed=seed))}
                answer = client.post("/recommendations", json=body, headers=headers)
                assert answer.status_code == 200
            recording.clear()
    finally:
        threading.setprofile(None)
    for (max_modules, max_functions), package in ((MAX_SERVER, "/server/"), (MAX_ALL, "/")):
        own = [code for code in entered if code.co_filename.startswith(ROOT + package)]
        modules = sorted({code.co_filename.removeprefix(ROOT) for code in own})
        assert "/server/routers/inference.py" in modules
        assert len(modules) <= max_modules, modules
        assert len(own) <= max_functions, sorted(code.co_qualname for code in own)
