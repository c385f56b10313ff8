"""How far a question and a training walk through our own code: functions called, files touched.

    python benchmarks/walks.py [--parts]

(a) POST /predict with five ratings, through the whole ASGI application, once all is warm;
(b) a CSV file up to the first step of training. Files under src/cfnade count and nothing else, of
all threads. Set PYTHONPATH to another copy's src to count there. --parts lists what was called.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import cfnade
from cfnade.fitting import EpochLines

ROOT = str(Path(cfnade.__file__).parent)
PEOPLE, FILMS, GIVEN = 60, 40, 5
WITHIN = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>")
"""Parts of a function, and imports: no functions of their own."""


class Walk:
    """Counts calls of our own functions while it is on."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._is_on = False
        self._frames: set[FrameType] = set()  # a coroutine that goes on is no other call
        threading.setprofile(self._see)  # threads that begin from now on
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._is_on or event != "call" or frame in self._frames:
            return
        self._frames.add(frame)
        code = frame.f_code
        if code.co_filename.startswith(ROOT) and code.co_name not in WITHIN:
            self.calls[code.co_filename.removeprefix(ROOT + "/"), code.co_qualname] += 1

    def count(self, act: Callable[[], Any]) -> None:
        self._is_on = True
        try:
            act()
        finally:
            self._is_on = False

    def figures(self) -> str:
        files = {file for file, _ in self.calls}
        return f"{self.calls.total()} calls of {len(self.calls)} functions in {len(files)} files"


class FirstStepDone(BaseException):
    """Ends a training; nothing on the way catches it."""


def ratings_file(folder: Path) -> Path:
    made = cfnade.synthetic(PEOPLE, FILMS, 1_200, seed=1).ratings
    lines = zip(made.users + 1, made.items + 1, made.values, strict=True)
    path = folder / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{r:g}\n" for u, i, r in lines))
    return path


def request_walk(model: Path) -> Walk:
    """POST /predict with five ratings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

    from cfnade.server.app import create_app
    from cfnade.server.model_registry import ModelRegistry

    walk = Walk()
    models = ModelRegistry(model)
    models.load()
    for thread in threading.enumerate():  # what warms the model up is no part of a question
        if isinstance(thread, threading.Timer):
            thread.join()
    ratings = [{"item": item + 1, "rating": 1 + item % 5} for item in range(GIVEN)]
    body = {"ratings": ratings, "items": [FILMS]}
    with TestClient(create_app(models)) as client:

        def ask() -> None:
            assert client.post("/predict", json=body).status_code == 200

        ask()
        walk.count(ask)
    return walk


def training_walk(path: Path) -> Walk:
    """From a file to the first step."""

    def end(*_: Any) -> None:
        raise FirstStepDone

    walk = Walk()
    EpochLines.step = end  # type: ignore[method-assign,assignment]
    with suppress(FirstStepDone):
        walk.count(lambda: trainer().fit(path))
    return walk


def trainer() -> cfnade.CFNADE:
    return cfnade.CFNADE(hidden=(8,), epochs=1, verbose=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", action="store_true", help="list every function")
    parts = parser.parse_args().parts
    with tempfile.TemporaryDirectory() as scratch:
        path, model = ratings_file(Path(scratch)), Path(scratch) / "model"
        trainer().fit(path).save(model)
        walks = {
            "POST /predict": request_walk(model),
            "CSV to first step": training_walk(path),
        }
    for name, walk in walks.items():
        print(f"{name}: {walk.figures()}")
        for (file, function), calls in sorted(walk.calls.items()) if parts else ():
            print(f"    {file:32} {function:40} {calls}")


if __name__ == "__main__":
    main()
