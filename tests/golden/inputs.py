"""Fixed inputs of the golden values: files, models, pairs and requests.

Names are those of the commit before the restructuring; the adapters translate them. Change nothing
here without need: the values of the earlier commit are then computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "data"

# -- data and splits -------------------------------------------------------------------------------

TABLES: dict[str, dict[str, Any]] = {
    "stars/ratings.csv": {},
    "halves.tsv": {"scale": "0.5-5/0.5"},
    "clicks.csv": {},
    "plays.csv": {"weight": "plays"},
    "repeats.csv": {"repeats": "last"},
}
"""Files in data/, and the arguments of load()."""

TABLES_AS = {
    "plays logarithmic": ("plays.csv", {"weight": "plays", "weights": "log"}),
    "stars as interactions": ("stars/ratings.csv", {"likes": 4.0}),
    "repeats mean": ("repeats.csv", {"repeats": "mean", "bins": 5}),
    "stars without times": ("stars/ratings.csv", {"time": "-"}),
}
"""The same files, read otherwise."""

SPLITS = {
    "stars/ratings.csv": [
        *("paper:0", "paper:7", "authors:1234", "authors-code:1234", "kfold:5:2", "kfold:3:0:9"),
        *("time:0.1", "time:0.25", "users:1:10", "users:2:3", "last:1", "last:2", "liang:10"),
        "liang:12:5",
    ],
    "halves.tsv": ["paper:1", "authors:1", "kfold:4:1", "users:0:2"],
    "clicks.csv": ["paper:0", "last:1", "liang:8", "time:0.1"],
    "plays.csv": ["paper:0", "liang:8", "users:3:2"],
}
MOVIELENS_SPLITS = ["u1", "u5", "ua", "ub", "paper:0", "authors-code:1234", "time:0.1"]

# -- models ----------------------------------------------------------------------------------------

STARS, CLICKS, PLAYS, MOVIELENS = "stars/ratings.csv", "clicks.csv", "plays.csv", "ml-100k.zip"


@dataclass(frozen=True)
class Model:
    """How `cfnade train` makes it: a recipe by name or by content, and options."""

    data: str = STARS
    recipe: str | dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    n_threads: int = 1
    times: bool = False  # whether a prediction needs one


_FAST = {"epochs": 3, "batch_rows": 16, "learning_rate": 5e-3}
_BLOCKS = {"epochs": 3, "passes": 2, "learning_rate": 5e-3, "schedule": "constant"}


def _kind(side: str, *, blocks: bool = False, **model: Any) -> Model:
    training = dict(_BLOCKS if blocks else _FAST)
    return Model(recipe={"side": side, "model": {"hidden": [12], **model}, "training": training})


KINDS = {
    "nade user": _kind("user"),
    "nade item": _kind("item"),
    "nade deep factored": Model(
        recipe={
            "side": "user",
            "model": {"hidden": [8, 6], "factors": 4, "context_scale": "sqrt"},
            "training": dict(_FAST),
        }
    ),
    "both": _kind("both", blocks=True),
    "ridge user": _kind("user-ridge+user", ridge=4),
    "ridge item": _kind("item-ridge+item", ridge=4),
    "factors user": _kind("user-factors", factors=4),
    "factors item": _kind("item-factors", factors=4),
    "near": _kind("near", blocks=True),
    "near user": _kind("user+user-near"),
    "near item": _kind("item+item-near"),
    "samples": _kind("user-samples", factors=4),
    "time": Model(
        recipe={"side": "both", "model": {"hidden": [12]}, "training": dict(_BLOCKS)},
        options={"know-time": True},
        times=True,
    ),
    "implicit and ratings": Model(
        recipe={"side": "user", "model": {"hidden": [12]}, "training": dict(_FAST)},
        options={"lists": True},
    ),
    "implicit": Model(data=CLICKS, options={"split": "paper:0"}),
    "implicit weighted": Model(data=PLAYS, options={"weight": "plays", "split": "paper:0"}),
    "two seeds": Model(
        recipe={"side": "user", "model": {"hidden": [6]}, "training": dict(_FAST)},
        options={"seeds": 2},
        n_threads=2,
    ),
}
"""One model for each kind of component, of a small file."""

BLEND = {"nade": 1.0, "linear": 4.0, "posterior": 4.0}
"""Weights of implicit components: the search for them has changed, so answers are not to depend on
it."""

_SMALL: dict[str, Any] = {"epochs": 2, "hidden": "32"}
RECIPES = {
    "default": Model(recipe="default", options=_SMALL),
    "default-both with time": Model(
        recipe="default-both", options=_SMALL | {"know-time": True}, times=True
    ),
    "ml-1m-near": Model(recipe="ml-1m-near", options=_SMALL),
    "netflix-near": Model(recipe="netflix-near", options=_SMALL | {"factors": 8}),
}
"""Recipes that are trained on ML-100K and on the small file."""

# -- questions -------------------------------------------------------------------------------------

USERS = [1, 2, 3, 5, 8, 13, 21, 34, 55, 60]
ITEMS = [101, 103, 107, 109, 113, 119, 127, 131, 137, 140]
MOVIELENS_USERS, MOVIELENS_ITEMS = [1, 42, 500, 900], [1, 50, 181, 313]
WHEN = 1_000_400_000
HISTORY = {101: 5.0, 105: 1.0, 111: 4.0, 118: 2.0, 130: 5.0}
CLICKED = [101, 105, 111, 118, 130]

_RATINGS = [{"item": item, "rating": rating} for item, rating in HISTORY.items()]
_NEW = {"ratings": _RATINGS}
_TITLED = {"ratings": [{"title": "Film Keke 01, The (1951)", "rating": 5.0}]}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: dict[str, Any] | None = None
    query: dict[str, Any] | None = None
    status_only: bool = False


def _post(path: str, **body: Any) -> Request:
    return Request("POST", path, body)


_ASKED = {
    "model": Request("GET", "/model"),
    "version": Request("GET", "/version"),
    "health": Request("GET", "/health"),
    "map": Request("GET", "/map"),
    "items popular": Request("GET", "/items", query={"limit": 5}),
    "items search": Request("GET", "/items", query={"q": "film", "limit": 7}),
    "match": _post("/match", films=[{"title": "Film Nunu 04", "year": 1954}, {"title": "Nil"}]),
    "similar": _post("/similar", item=107, n=5),
    "page": Request("GET", "/", status_only=True),
    "docs": Request("GET", "/docs", status_only=True),
    "openapi": Request("GET", "/openapi.json", status_only=True),
    "metrics": Request("GET", "/metrics", status_only=True),
    "no such item": Request("POST", "/similar", {"item": 9999}, status_only=True),
    "misspelt": Request("POST", "/similar", {"item": 101, "m": 3}, status_only=True),
}
_RATED = {
    "predict new": _post("/predict", items=ITEMS, **_NEW),
    "predict titled": _post("/predict", items=["Film Keke 01, The (1951)", 120], **_TITLED),
    "predict user": _post("/predict", items=ITEMS, user=8),
    "predict new items": _post(
        "/predict",
        items=["new", 101],
        user=8,
        new_items=[
            {"item": "new", "ratings": [{"user": 5, "rating": 4}, {"user": 9, "rating": 2}]}
        ],
    ),
    "recommend expected": _post("/recommend", n=5, rank="expected", **_NEW),
    "recommend user": _post("/recommend", n=5, rank="expected", user=13),
    "recommend at_least": _post("/recommend", n=5, rank="at_least", threshold=4, **_NEW),
    "recommend quantile": _post("/recommend", n=5, rank="quantile", quantile=0.3, **_NEW),
    "recommend own": _post("/recommend", n=5, rank="expected", own=2.0, **_NEW),
    "recommend genres": _post("/recommend", n=5, rank="expected", genres=["Drama"], **_NEW),
    "recommend decades": _post("/recommend", n=5, rank="expected", decades=[1960], **_NEW),
    "recommend diverse": _post("/recommend", n=5, rank="expected", diversity=0.5, **_NEW),
    "recommend only": _post("/recommend", n=5, rank="expected", items=ITEMS, **_NEW),
    "recommend without": _post("/recommend", n=5, rank="expected", without=ITEMS, **_NEW),
    "recommend all": _post(
        "/recommend", n=5, rank="expected", min_ratings=0, exclude_seen=False, **_NEW
    ),
    "explain new": _post("/explain", item=120, **_NEW),
    "explain user": _post("/explain", item=107, user=8),
    "ask new": _post("/ask", n=4, **_NEW),
    "ask user": _post("/ask", n=4, user=8, without=[101]),
}
_PICKED = {
    "recommend picked": _post("/recommend", n=5, rank="picked", **_NEW),
    "recommend taste": _post("/recommend", n=5, rank="picked", taste=0.8, **_NEW),
    "recommend taste 0": _post("/recommend", n=5, rank="picked", taste=0.0, user=13),
    "explain pick": _post("/explain", item=120, of="pick", **_NEW),
    "explain pick user": _post("/explain", item=107, of="pick", user=8),
}
_CLICKED = {
    "recommend": _post("/recommend", n=5, picked=CLICKED),
    "recommend user": _post("/recommend", n=5, user=13),
    "explain": _post("/explain", item=120, picked=CLICKED),
    "ask": _post("/ask", n=4, picked=CLICKED),
}
_PERSON = {
    "put": Request("PUT", "/people/ann/ratings/105", {"rating": 4}),
    "put again": Request("PUT", "/people/ann/ratings/111", {"rating": 1}),
    "put third": Request("PUT", "/people/ann/ratings/130", {"rating": 5}),
    "withdraw": Request("DELETE", "/people/ann/ratings/111"),
    "person": Request("GET", "/people/ann"),
    "list": Request("GET", "/people/ann/recommendations", query={"n": 5, "rank": "expected"}),
    "token": _post("/people/ann/token", seconds=60),
}
_TIMED = {"predict at": _post("/predict", items=ITEMS, user=8, time=WHEN)}

SERVED = {
    "implicit and ratings": _ASKED | _RATED | _PICKED | _PERSON,
    "implicit": _ASKED | _CLICKED,
    "nade item": {
        name: _RATED[name]
        for name in ("predict user", "predict new items", "recommend user", "explain user")
    },
    "near": _RATED,
    "time": _TIMED,
}
"""Requests by the model that is served."""

# -- command line ----------------------------------------------------------------------------------

_LIKED = ["Film Keke 01, The (1951)=5", "Film Nunu 04, The (1954)=2"]
COMMANDS: dict[str, tuple[str | None, list[str]]] = {
    "evaluate": ("implicit and ratings", ["evaluate", "{model}", "--json"]),
    "evaluate near": ("near", ["evaluate", "{model}", "--json"]),
    "evaluate lists": (
        "implicit and ratings",
        ["evaluate", "{model}", "--lists", "--k", "5,10", "--threshold", "4", "--json"],
    ),
    "evaluate implicit": ("implicit", ["evaluate", "{model}", "--lists", "--k", "5", "--json"]),
    "evaluate file": ("nade item", ["evaluate", "{model}", "{files}/stars/extra.csv", "--json"]),
    "recommend titles": (
        "implicit and ratings",
        ["recommend", "{model}", *_LIKED, "-n", "5", "--json"],
    ),
    "recommend user": (
        "implicit and ratings",
        ["recommend", "{model}", "--user", "13", "-n", "5", "--rank", "expected", "--json"],
    ),
    "recommend quantile": (
        "near",
        ["recommend", "{model}", *_LIKED, "--rank", "quantile", "--quantile", "0.7", "--json"],
    ),
    "recommend taste": (
        "implicit and ratings",
        ["recommend", "{model}", "--user", "13", "--taste", "0.8", "--genre", "Drama", "--json"],
    ),
    "recommend implicit": (
        "implicit",
        ["recommend", "{model}", "--user", "13", "-n", "5", "--json"],
    ),
    "similar": ("implicit and ratings", ["similar", "{model}", "107", "-n", "5", "--json"]),
    "similar near": ("near", ["similar", "{model}", "107", "-n", "5", "--json"]),
    "explain": ("implicit and ratings", ["explain", "{model}", "120", *_LIKED, "--json"]),
    "explain user": ("nade item", ["explain", "{model}", "107", "--user", "8", "--json"]),
    "explain pick": (
        "implicit and ratings",
        ["explain", "{model}", "107", "--user", "8", "--of", "pick", "--json"],
    ),
    "data info": (None, ["data", "info", "{files}/stars/ratings.csv", "--json"]),
    "data info plays": (None, ["data", "info", "{files}/plays.csv", "--weight", "plays", "--json"]),
    "store info": (None, ["store", "info", "{store}", "--json"]),
}
SLOW_COMMANDS: dict[str, tuple[str | None, list[str]]] = {
    "compare": (
        None,
        [
            *("compare", "{files}/stars/ratings.csv", "--models", "means,biasmf"),
            *("--threads", "1", "--json"),
        ],
    ),
}
PREDICTED = {"implicit and ratings": [], "time": ["--at", str(WHEN)]}
"""Models whose pairs `cfnade predict` writes to a file, and further options."""

ITEM_BASED = frozenset(["nade item", "ridge item", "factors item", "near item"])
"""Models that take no history of a new person."""

_VOLATILE = frozenset(["loaded_at", "token", "python", "cfnade", "fingerprint", "store", "load"])


def is_volatile(field: str, value: Any) -> bool:
    """Whether a field has another value in every run."""
    return (
        field in _VOLATILE
        or field.endswith(("seconds", "_mb"))
        or (field == "at" and isinstance(value, int))  # when a rating came
    )
