"""The page with the films of MovieLens 1M, as the demonstration serves it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.server.given import serving

from cfnade import checkpoint
from cfnade.config import TrainingConfig
from cfnade.data.load import load_split
from cfnade.training.plan import plan_side
from cfnade.training.train import train

pytestmark = pytest.mark.realdata

_LETTERBOXD = """Date,Name,Year,Letterboxd URI,Rating
2024-01-02,The Godfather,1972,u,5
2024-01-02,Amélie,2001,u,4
2024-01-02,Léon: The Professional,1994,u,4.5
2024-01-02,Seven Samurai,1954,u,5
2024-01-02,The Matrix,1999,u,3.5
"""


@pytest.fixture(scope="module")
def movielens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model of five quick epochs: enough to tell science fiction from romance."""
    data = load_split("ml-1m", "authors:1234")
    settings = TrainingConfig(epochs=5, batch_rows=64, learning_rate=3e-3, seed=0)
    done = train(data, plan_side("user", {"hidden": (32,)}, settings))
    folder = tmp_path_factory.mktemp("models") / "ml-1m"
    checkpoint.save(done.model, folder)
    with serving(folder) as url:
        yield url


def test_a_visit_to_movielens(visit_to: Open, real_data: Path, movielens: str) -> None:
    assert real_data.is_dir()
    visit = visit_to(movielens)
    visit.arrive()
    page = visit.page
    chips = page.locator("#chips button")
    assert chips.count() >= 3
    firsts = []
    for place in range(chips.count()):
        chips.nth(place).click()
        visit.settled()
        firsts.append(visit.listed()[0])
    assert len(set(firsts)) > 1  # tastes differ, so do lists
    expect(page.locator("#genre-chips button")).to_have_count(18)
    asked = visit.changing(page.locator("#genre-chips button", has_text="Horror").click)
    assert asked["genres"] == ["Horror"]
    page.click("#no-chips")
    visit.settled()
    visit.picture("movielens")

    assert "The Matrix" in visit.find("the matirx").first.inner_text()
    page.keyboard.press("Escape")
    told = visit.upload("ratings.csv", _LETTERBOXD)
    assert re.match(r"[345] ratings imported from Letterboxd", told), told
    mine = visit.mine()
    assert {"The Godfather 1972", "The Matrix 1999"} <= set(mine)
    assert mine["The Matrix 1999"] == "4"  # 3.5 of 0.5 to 5 is 3.67 of 1 to 5
    expect(page.locator("#hidden-text")).to_contain_text("films are hidden")
    page.set_viewport_size({"width": 320, "height": 700})
    assert visit.fits()
