"""Files of the page, the documentation, and the sample profiles."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.server.given import TestClient

from cfnade import checkpoint
from cfnade.inference.predictor import Predictor
from cfnade.server.app import PAGE
from cfnade.server.middleware import DOCS_POLICY
from cfnade.server.sample_profiles import PROFILES, sample_profiles


def test_every_file_of_the_page_is_served_as_it_is(client: TestClient) -> None:
    files = [path.name for path in PAGE.iterdir()]
    assert {"index.html", "app.js", "style.css"} <= set(files)
    for name in files:
        answer = client.get(f"/page/{name}")
        assert answer.content == (PAGE / name).read_bytes()
        assert answer.headers.get("content-encoding") == "gzip" or len(answer.content) < 500
        assert answer.headers["cache-control"] == "no-cache"
    assert client.get("/").content == (PAGE / "index.html").read_bytes()
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    script = client.get("/page/app.js").headers["content-type"]
    assert script.startswith("text/javascript")  # browsers refuse modules of other types


def test_a_file_that_the_client_has_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/page/app.js")
    again = client.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = client.get("/page/app.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content


def test_responses_are_compressed_for_clients_that_accept_it(client: TestClient) -> None:
    body = {"ratings": [], "n": 20, "min_ratings": 0}
    packed = client.post("/recommendations", json=body, headers={"accept-encoding": "gzip"})
    plain = client.post("/recommendations", json=body, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert len(gzip.compress(plain.content, 1)) < len(plain.content) / 2


def test_the_documentation_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-security-policy"] == DOCS_POLICY
    assert "http" not in DOCS_POLICY
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(files) == 3
    for path in files:
        assert not path.startswith(("http", "//"))
        assert client.get(f"/{path}").status_code == 200


@pytest.fixture(scope="module")
def cinema(user_model: Path) -> Predictor:
    """A catalog with all films of the sample profiles, written as MovieLens does."""
    films = sorted({film for profile in PROFILES.values() for film in profile})
    titles = {}
    for at, (title, year) in enumerate(films[:40]):
        rest = title.removeprefix("The ")
        titles[101 + at] = f"{rest}, The ({year})" if rest != title else f"{title} ({year})"
    fitted = checkpoint.load(user_model)
    named = np.array([titles.get(101 + at, "") for at in range(40)], object)
    return Predictor(replace(fitted, context=fitted.context.replace(titles=named)))


def test_profiles_are_films_with_their_years() -> None:
    assert PROFILES["Science fiction"]["Alien", 1979] == 1.0
    assert PROFILES["Romantic comedy"]["When Harry Met Sally...", 1989] == 1.0
    assert all(0 <= liking <= 1 for profile in PROFILES.values() for liking in profile.values())


def test_profiles_are_found_in_a_catalogue_that_has_their_films(cinema: Predictor) -> None:
    found = sample_profiles(cinema, cinema.item_counts)
    assert {sample["name"] for sample in found} == set(PROFILES)
    for sample in found:
        assert len(sample["ratings"]) >= 6
        names = {re.sub(r"\W", "", title) for title, _ in PROFILES[sample["name"]]}
        for rating in sample["ratings"]:
            plain = re.sub(r"(, The)? \(\d+\)$", "", rating["title"])
            assert {re.sub(r"\W", "", plain), "The" + re.sub(r"\W", "", plain)} & names
        assert {rating["rating"] for rating in sample["ratings"]} <= set(cinema.scale.values)
        assert {1.0, 2.0} & {rating["rating"] for rating in sample["ratings"]}
        assert 5.0 in {rating["rating"] for rating in sample["ratings"]}


def test_without_them_the_most_rated_items_are_a_profile(predictor: Predictor) -> None:
    (sample,) = sample_profiles(predictor, predictor.item_counts)
    counts = np.bincount(predictor.fitted.context.items)
    assert [counts[one["item"] - 101] for one in sample["ratings"]] == sorted(counts)[::-1][:4]
    assert {one["rating"] for one in sample["ratings"]} == {5.0}
