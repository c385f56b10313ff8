from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cfnade.data.synthetic import synthetic


@pytest.fixture
def data(tmp_path: Path) -> Path:
    ratings = synthetic(60, 40, 900, seed=1).ratings
    path = tmp_path / "ratings.csv"
    lines = zip(ratings.users, ratings.items, ratings.values, strict=True)
    path.write_text("user,item,rating\n" + "".join(f"u{u},i{i},{r}\n" for u, i, r in lines))
    return path


class InThisProcess:
    """Stands for a process pool: here nothing needs memory of its own."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Any, *arguments: Any) -> Any:
        found = function(*arguments)

        class Done:
            def result(self) -> Any:
                return found

        return Done()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.runner.ProcessPoolExecutor", InThisProcess)
