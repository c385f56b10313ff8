"""How the golden values reach the package of the working tree.

When a module, an option, a field or a value gets another name, change it here, and nowhere else in
this folder: every function takes and returns what its twin in `before.py` does. FIELDS and VALUES
translate names in answers back to those of before.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

FIELDS: dict[str, dict[str, str]] = {
    "*": {
        "n_item_ratings": "known_of_item",
        "n_user_ratings": "known_of_user",
        "n_hidden_items": "hidden",
        "interaction_probability": "pick",
        "lift": "times",
        "prediction_without": "without",
        "difference": "change",
        "uncertainty_reduction": "reduction",
    },
    "*data info*": {"min": "least", "max": "most"},
    "cli evaluate*": {"n_users": "people", "n_skipped_users": "without", "by_k": "at"},
    "cli store info": {
        **{f"n_{name}": name for name in ("events", "items", "ratings", "withdrawals")},
        **{"n_users": "people", "n_interactions": "picks", "n_erased_users": "forgotten"},
        "online_error": "online",
    },
}
"""By pattern of cases: {field now: field before}. Every pattern that fits a case counts."""

VALUES: dict[str, dict[str, str]] = {
    "*near*": {
        "neighborhood": "near",
        "user+user-neighborhood": "user+user-near",
        "item+item-neighborhood": "item+item-near",
    },
    "*samples*": {"user-factors": "user-samples"},
}
"""By pattern of cases: {text now: text before}, for values such as names of components."""

Arrays = dict[str, "np.ndarray[Any, Any]"]

# -- data ------------------------------------------------------------------------------------------


def load(path: Path, options: Mapping[str, Any]) -> Any:
    """Ratings or interactions of a file."""
    from cfnade.data.load import load

    return load(path, cache=False, **load_options(options))


def load_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of load() under their present names."""
    names = {"repeats": "duplicates", "likes": "min_rating", "weights": "weighting"}
    renamed = {names.get(name, name): value for name, value in options.items()}
    if renamed.get("rating") == "-":
        renamed = {**renamed, "rating": None, "implicit": True}
    return {
        name: False if name in ("time", "weight") and value == "-" else value
        for name, value in renamed.items()
    }


def synthetic(users: int, items: int, ratings: int, seed: int) -> Any:
    from cfnade.data.synthetic import synthetic

    return synthetic(users, items, ratings, seed=seed, times=True).ratings


def synthetic_interactions(users: int, items: int, per_user: int, seed: int) -> Any:
    from cfnade.data.synthetic import synthetic_interactions

    return synthetic_interactions(users, items, per_user, seed).interactions


def fingerprint(ratings: Any) -> str:
    return str(ratings.fingerprint)


def columns(ratings: Any) -> Arrays:
    """Indices of users and items, levels, times and weights of each rating, and the id tables."""
    names = ("users", "items", "levels", "times", "weights", "user_ids", "item_ids", "titles")
    found = {name: getattr(ratings, name) for name in names}
    return {name: np.asarray(one) for name, one in found.items() if one is not None}


def split(path: Path, name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The fingerprint of a split, and its parts."""
    from cfnade.data.load import load_split

    done = load_split(path, name, cache=False, **load_options(options))
    parts = done.parts()
    parts["given"] = parts.pop("fold_in")
    return done.fingerprint, parts


# -- the command line ------------------------------------------------------------------------------


def option(name: str, value: Any) -> list[str]:
    """A command-line option; `name` is as it was before the restructuring."""
    text = "--" + OPTIONS.get(name, name).replace("_", "-")
    if name == "lists" and value is False:
        return ["--no-learn-interactions"]
    if name == "recipe":
        value = str(value).replace("ml-1m-near", "ml-1m-neighborhood")
        value = value.replace("netflix-near", "netflix-neighborhood")
    return [text] if value is True else [text, str(value)]


OPTIONS = {
    "threads": "n_threads",
    "seeds": "n_seeds",
    "lists": "learn_interactions",
    "minutes": "time_budget",
    "know-time": "use_timestamps",
    "know_time": "use_timestamps",
    "ordinal": "ordinal_weight",
}
"""Options of `cfnade train` with other names than before."""
_WORDS = {
    "--rank": "--rank-by",
    "--taste": "--balance",
    "--of": "--target",
    "--at": "--timestamp",
    "--lists": "--ranking",
    "--threads": "--n-threads",
    "expected": "prediction",
    "pick": "interaction",
    "init": "create",
}


def recipe(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a recipe."""
    training = dict(content.get("training", {}))
    sparse = [training.pop(name, False) for name in ("rowwise", "touched_only")]
    if any(sparse):
        training["optimizer"] = "sparse_adam"
    content = content | {"side": content["side"].replace("near", "neighborhood")}
    if content["side"] == "user-samples":
        content = {**content, "side": "user-factors", "model": {**content["model"], "samples": 10}}
    return content | {"training": training} if "training" in content else content


def arguments(command: list[str]) -> list[str]:
    """The arguments of a command. Without the criterion "quantile", items are ranked as usual."""
    if "quantile" in command:
        start = command.index("--rank")
        command = [*command[:start], *command[start + 4 :]]
    return [_WORDS.get(word, word) for word in command]


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


def fixed_blend(_: Mapping[str, float]) -> contextlib.AbstractContextManager[None]:
    """Interaction models have other components than before, so there is no blend to fix."""
    return contextlib.nullcontext()


# -- models ----------------------------------------------------------------------------------------


def opened(folder: Path) -> Any:
    """A saved model, to be asked."""
    from cfnade import CFNADE

    return CFNADE.load(folder)


def weights(folder: Path) -> Arrays:
    """All arrays of a saved model, by any name: names are not compared."""
    from cfnade.checkpoint import load

    model = load(folder)
    found: Arrays = {}
    for number, member in enumerate(model.members):
        found |= {f"{number}/{name}": array for name, array in member.arrays().items()}
    return {name: np.asarray(array) for name, array in found.items()}


def numbers(folder: Path) -> dict[str, Any]:
    """What else a model has learned: ensemble weights, calibration, weights of the blend."""
    from cfnade.checkpoint import load

    model = load(folder)
    found: dict[str, Any] = {"ensemble": [list(pair) for pair in model.member_weights]}
    for name in ("calibration", "calibration_of_new"):
        fitted = getattr(model, name)
        if fitted is not None:
            found[name] = [fitted.temperature, *fitted.log_weights, fitted.user_weight]
    return found


def probabilities(model: Any, users: list[int], items: list[int], when: int | None) -> Any:
    """The distribution of each pair."""
    times = {} if when is None else {"timestamp": when}
    return model.predict_proba(users, items, unknown="mean", **times)


def probabilities_of_new(model: Any, history: Mapping[int, float], items: list[int]) -> Any:
    """The same for a new person."""
    return model.predict_proba("new", items, histories={"new": dict(history)}, unknown="mean")


def expected(model: Any, users: list[int], items: list[int], when: int | None) -> Any:
    """The expected rating of each pair, without calibration."""
    times = {} if when is None else {"timestamp": when}
    return model.predict(users, items, unknown="mean", **times)


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

    model = CFNADE(
        side="user", hidden=(8,), epochs=2, batch_rows=16, n_threads=1, seed=seed, ridge=0
    )
    return model.fit(frame)


# -- the service -----------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(folder: Path, store: str | None, key: str) -> Iterator[Any]:
    """A client of the service of a model, with a store."""
    from cfnade.server.app import create_app
    from cfnade.server.model_registry import ModelRegistry
    from cfnade.server.settings import ServerSettings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    settings = ServerSettings(
        model_dir=folder, api_key=key, store_url=store, allow_hosts=("testserver",)
    )
    app = create_app(ModelRegistry(folder), settings)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def request(method: str, path: str, body: Any, query: Any) -> tuple[str, str, Any, Any]:
    """A request with the present paths and fields."""
    if path == "/similar":
        others = {name: value for name, value in body.items() if name != "item"}
        return "GET", f"/items/{body['item']}/similar", None, others
    if path.startswith("/people/"):
        path = path.replace("/people/", "/users/").replace("/token", "/tokens")
        path += "/ratings" * (path.count("/") == 2)
    names = dict(_REQUEST_FIELDS)
    if path == "/recommend":
        names["items"] = "candidate_items"
    path = _PATHS.get(path, path)
    body, query = (
        one
        and {
            name: _RANKS.get(value, value) if name == "rank_by" else value
            for name, value in _renamed(one, names, {}).items()
        }
        for one in (body, query)
    )
    if body and body.get("target") == "pick":
        body["target"] = "interaction"
    return method, path, body, query


_PATHS = {
    "/predict": "/predictions",
    "/recommend": "/recommendations",
    "/explain": "/explanations",
    "/ask": "/items-to-rate",
    "/match": "/items/match",
    "/map": "/item-map",
}
_REQUEST_FIELDS = {
    "user": "user_id",
    "picked": "interactions",
    "rank": "rank_by",
    "taste": "balance",
    "own": "personalization",
    "without": "exclude_items",
    "of": "target",
    "time": "timestamp",
    "films": "items",
    "seconds": "expires_in",
}
_RANKS = {"picked": "interaction", "expected": "prediction", "at_least": "threshold"}
_RESPONSE_FIELDS = {
    "prediction": "expected",
    "baseline": "usual",
    "interaction_probability": "pick",
    "n_item_ratings": "ratings",
    "n_hidden_items": "hidden",
    "n_user_ratings": "used",
    "unknown_items": "unknown",
    "uncertainty": "unknown",
    "uncertainty_reduction": "reduction",
    "contributions": "moved",
    "prediction_without": "without",
    "difference": "change",
    "lift": "times",
    "metric": "by",
    "timestamp": "at",
    "user_id": "person",
    "in_training_data": "known",
}


# -- answers ---------------------------------------------------------------------------------------


def answer(case: str, value: Any) -> Any:
    """An answer with the names of fields and values from before the restructuring."""
    if case.startswith("http ") and isinstance(value.get("answer"), dict):
        value = value | {"answer": _http_answer(case, value["answer"])}
    return _renamed(value, _table(FIELDS, case), _table(VALUES, case))


def _http_answer(case: str, found: dict[str, Any]) -> dict[str, Any]:
    """The answer of a route; `prediction` of an explanation is an object, and keeps its name."""
    if " ask" in case:
        found = {name: value for name, value in found.items() if name != "unknown_items"}
    old: dict[str, Any] = _renamed(found, _RESPONSE_FIELDS, {"lift": "times"})
    if "contributions" in found:
        old["prediction"] = old.pop("expected")
    return old


def _table(tables: Mapping[str, Mapping[str, str]], case: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern, table in tables.items():
        if fnmatchcase(case, pattern):
            found |= table
    return found


def _renamed(value: Any, fields: Mapping[str, str], values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            fields.get(name, name): _renamed(one, fields, values) for name, one in value.items()
        }
    if isinstance(value, list):
        return [_renamed(one, fields, values) for one in value]
    return values.get(value, value) if isinstance(value, str) else value
