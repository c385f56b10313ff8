# mypy: ignore-errors
"""How the golden values reach the package at the commit before the restructuring. Frozen.

`now.py` has the same functions for the working tree. Types are not checked: the modules that are
imported here are those of the earlier commit.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, "np.ndarray[Any, Any]"]

# -- data ------------------------------------------------------------------------------------------


def load(path: Path, options: Mapping[str, Any]) -> Any:
    """Ratings or interactions of a file."""
    from cfnade.data.loader import load

    return load(path, cache=False, **options)


def synthetic(users: int, items: int, ratings: int, seed: int) -> Any:
    from cfnade.data.synthetic import synthetic

    return synthetic(users, items, ratings, seed=seed, times=True).ratings


def synthetic_interactions(users: int, items: int, per_user: int, seed: int) -> Any:
    from cfnade.data.synthetic_picks import synthetic_picks

    return synthetic_picks(users, items, per_user, seed).ratings


def fingerprint(ratings: Any) -> str:
    return str(ratings.fingerprint)


def columns(ratings: Any) -> Arrays:
    """Indices of users and items, levels, times and weights of each rating, and the id tables."""
    names = ("users", "items", "levels", "times", "weights", "user_ids", "item_ids", "titles")
    found = {name: getattr(ratings, name) for name in names}
    return {name: np.asarray(one) for name, one in found.items() if one is not None}


def split(path: Path, name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The fingerprint of a split, and its parts."""
    from cfnade.data.loader import load_split

    done = load_split(path, name, cache=False, **options)
    return done.fingerprint, done.parts()


# -- the command line ------------------------------------------------------------------------------


def option(name: str, value: Any) -> list[str]:
    """A command-line option; `name` is as it was before the restructuring."""
    text = "--" + name.replace("_", "-")
    return [text] if value is True else [text, str(value)]


def recipe(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a recipe."""
    return content


def arguments(command: list[str]) -> list[str]:
    """The arguments of a command."""
    return command


def run(command: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process. Returns its exit code and what it printed."""
    from cfnade.cli import main

    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["cfnade", *command]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def fixed_blend(weights: Mapping[str, float]) -> Iterator[None]:
    """Train implicit models whose components have these weights, which are not searched for."""
    from cfnade.training import choice_run

    searched, choice_run.blended = choice_run.blended, lambda *_: (dict(weights), {"ndcg": 0.0})
    try:
        yield
    finally:
        choice_run.blended = searched


# -- models ----------------------------------------------------------------------------------------


def opened(folder: Path) -> Any:
    """A saved model, to be asked."""
    from cfnade.predictor import Predictor

    return Predictor.load(folder)


def weights(folder: Path) -> Arrays:
    """All arrays of a saved model, by any name: names are not compared."""
    from cfnade.checkpoint import load

    model = load(folder)
    found: Arrays = {}
    for number, member in enumerate(model.members):
        found |= {f"{number}.{name}": table for name, table in member.tables().items()}
        for name, side in member.sides.items():
            found |= {f"{number}.{name}.{key}": array for key, array in side.arrays().items()}
    if model.choice is not None:
        for name, path in model.choice.sides.items():
            found |= {f"choice.{name}.{key}": array for key, array in path.tables().items()}
    return {name: np.asarray(array) for name, array in found.items()}


def numbers(folder: Path) -> dict[str, Any]:
    """What else a model has learned: ensemble weights, calibration, weights of the blend."""
    from cfnade.checkpoint import load

    model = load(folder)
    found: dict[str, Any] = {"ensemble": [list(pair) for pair in model.shares]}
    for name in ("calibration", "calibration_of_new"):
        fitted = getattr(model, name)
        if fitted is not None:
            found[name] = [fitted.temperature, *fitted.log_weights, fitted.personal]
    if model.choice is not None:
        found["blend"] = dict(model.choice.weights)
    return found


def probabilities(model: Any, users: list[int], items: list[int], when: int | None) -> Any:
    """The distribution of each pair."""
    return model.predict_proba(users, items, **({} if when is None else {"times": when}))


def probabilities_of_new(model: Any, history: Mapping[int, float], items: list[int]) -> Any:
    """The same for a new person."""
    return model.predict_proba("new", items, histories={"new": dict(history)})


def expected(model: Any, users: list[int], items: list[int], when: int | None) -> Any:
    """The expected rating of each pair, without calibration."""
    return model.predict(users, items, **({} if when is None else {"times": when}))


def top(model: Any, users: list[int], n: int) -> list[dict[str, Any]]:
    """Lists of known users, as rows."""
    rows: list[dict[str, Any]] = model.recommend(users, n=n).to_dicts()
    return rows


def top_of_new(model: Any, history: Any, n: int) -> list[dict[str, Any]]:
    """The list of a new person."""
    rows: list[dict[str, Any]] = model.recommend(history=history, n=n).to_dicts()
    return rows


def estimator(frame: Any, seed: int) -> Any:
    """A model that the public estimator fits to a frame: user-based, 8 hidden units, 2 epochs."""
    from cfnade import CFNADE

    model = CFNADE(side="user", hidden=(8,), epochs=2, batch_rows=16, threads=1, seed=seed, ridge=0)
    return model.fit(frame)


# -- the service -----------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(folder: Path, store: str | None, key: str) -> Iterator[Any]:
    """A client of the service of a model, with a store."""
    from cfnade.serve.app import create_app
    from cfnade.serve.loading import Models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    app = create_app(Models(folder), key=key, store=store)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def request(method: str, path: str, body: Any, query: Any) -> tuple[str, str, Any, Any]:
    """A request."""
    return method, path, body, query


# -- answers ---------------------------------------------------------------------------------------


def answer(case: str, value: Any) -> Any:
    """An answer with the names of fields and values from before the restructuring.

    `case` is such as "http near explain new", "cli evaluate" or "predictions near".
    """
    del case
    return value
