"""Without a server the page gets the answers that the service would give, question by question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser
from tests.browser.films import GENRES, ITEM
from tests.browser.test_static_page import handed_out
from tests.server.conftest import asking as asking  # the fixture
from tests.server.given import Asking

from cfnade import checkpoint
from cfnade.inference.predictor import Predictor
from cfnade.integrations.static_site import write_web

CALL = """async ([path, body]) => {
  const { call } = await import("./page/api.js");
  return call(path, body ? { body } : {});
}"""
MINE = [
    {"item": ITEM["Alien (1979)"], "rating": 5},
    {"item": ITEM["Amélie (2001)"], "rating": 2},
    {"item": ITEM["Brazil (1985)"], "rating": 4},
]
RATED: dict[str, Any] = {"ratings": MINE}
NOBODY: dict[str, Any] = {"ratings": []}
SOME = [ITEM["Alien (1979)"], ITEM["Metropolis (1926)"], 99_999]
ASKED: dict[str, tuple[str, dict[str, Any] | None]] = {
    "what it is": ("model", None),
    "a list": ("recommendations", RATED),
    "a list for a stranger": ("recommendations", NOBODY),
    "a short list": ("recommendations", RATED | {"n": 3}),
    "everybody's": ("recommendations", RATED | {"personalization": 0.0}),
    "what is special": ("recommendations", RATED | {"personalization": 5.0}),
    "of a genre": ("recommendations", RATED | {"genres": ["Comedy", "Romance"], "min_ratings": 0}),
    "of a decade": ("recommendations", RATED | {"decades": [1970, 1990]}),
    "not some": ("recommendations", RATED | {"exclude_items": [ITEM["Matrix, The (1999)"]]}),
    "of some, rated ones too": (
        "recommendations",
        RATED | {"candidate_items": SOME, "n": 3, "exclude_seen": False, "min_ratings": 0},
    ),
    "why": ("explanations", RATED | {"item": ITEM["Solaris (Solyaris) (1972)"]}),
    "why one that is rated": ("explanations", RATED | {"item": ITEM["Alien (1979)"]}),
    "why a stranger": ("explanations", NOBODY | {"item": ITEM["Alien (1979)"]}),
    "more like it": (f"items/{ITEM['Alien (1979)']}/similar?n=6", None),
    "the first question": ("items-to-rate", NOBODY | {"n": 1}),
    "the next question": (
        "items-to-rate",
        RATED | {"n": 1, "exclude_items": [ITEM["Solaris (Solyaris) (1972)"]]},
    ),
    "the map": ("item-map", None),
    "by a part of a title": ("items?q=harry+met&limit=8", None),
    "by nothing": ("items?q=&limit=8", None),
    "from elsewhere": (
        "items/match",
        {
            "items": [
                {"title": "The Matrix", "year": 1999},
                {"title": "Solyaris", "year": 1972},
                {"title": "AMELIE"},
                {"title": "Alien", "year": 1986},
            ]
        },
    ),
}


@pytest.fixture(scope="module")
def both(
    films: Path, asking: Asking, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """A function that asks the service and the static page the same."""
    folder, static = tmp_path_factory.mktemp("with_genres"), tmp_path_factory.mktemp("static")
    fitted = checkpoint.load(films)
    genres = np.array([GENRES[item] for item in fitted.context.item_ids.tolist()], object)
    named = replace(fitted, context=fitted.context.replace(genres=genres))
    checkpoint.save(named, folder)
    write_web(Predictor(named), static)
    context = browser.new_context()
    page = context.new_page()
    with handed_out(static) as address, asking(folder) as client:
        page.goto(address)

        def ask(path: str, body: Any) -> tuple[Any, Any]:
            answer = client.post(f"/{path}", json=body) if body else client.get(f"/{path}")
            assert answer.status_code == 200, answer.text
            return answer.json(), page.evaluate(CALL, [path, body])

        yield ask
    context.close()


@pytest.mark.parametrize("name", ASKED)
def test_the_answer_is_the_services(name: str, both: Any) -> None:
    """All that the static page says; it may say less, where the page does not look."""
    served, static = both(*ASKED[name])
    for of_its_own in ("is_local", "name", "limits"):
        static.pop(of_its_own, None)
    compare(static, served, name)


def compare(static: Any, served: Any, where: str) -> None:
    if isinstance(static, dict):
        for key, value in static.items():
            compare(value, served[key], f"{where}.{key}")
    elif isinstance(static, list):
        assert len(static) == len(served), where
        for at, (one, other) in enumerate(zip(static, served, strict=True)):
            compare(one, other, f"{where}[{at}]")
    elif isinstance(served, float):
        assert static == pytest.approx(served, abs=2e-4), where
    else:
        assert static == served, where
