"""Half stars, ten stars, a hundred points: the page follows the model's scale."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.browser.films import trained
from tests.browser.visit import Visit
from tests.server.given import serving

from cfnade.data.scale import parse_scale


@pytest.fixture(scope="module")
def half_stars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(trained(tmp_path_factory.mktemp("films") / "halves", "0.5-5/0.5")) as url:
        yield url


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(trained(tmp_path_factory.mktemp("films") / "hundred", "1-100")) as url:
        yield url


def _arrived(visit_to: Open, url: str) -> Visit:
    visit = visit_to(url)
    visit.arrive()
    visit.changing(lambda: visit.page.click("#clear"))
    return visit


def test_half_stars(visit_to: Open, half_stars: str) -> None:
    visit = _arrived(visit_to, half_stars)
    asked = visit.changing(lambda: visit.rate("Alien", 3.5))
    assert [rated["rating"] for rated in asked["ratings"]] == [3.5]
    row = visit.page.locator("#rated li").first
    expect(row.locator("label")).to_have_count(10)
    expect(row.locator("label.on")).to_have_count(7)
    assert visit.mine() == {"Alien 1979": "3.5"}
    assert "3 ratings" in visit.upload("r.csv", LETTERS)
    assert visit.mine() == {
        "Casablanca 1942": "4.5",
        "Brazil 1985": "0.5",
        "Annie Hall 1977": "3",
        "Alien 1979": "3.5",
    }
    visit.picture("half-stars")


LETTERS = """Date,Name,Year,Letterboxd URI,Rating
2024-01-02,Casablanca,1942,u,4.5
2024-01-02,Brazil,1985,u,0.5
2024-01-02,Annie Hall,1977,u,3
"""


def test_a_hundred_points_are_a_slider_and_a_number(visit_to: Open, hundred: str) -> None:
    visit = _arrived(visit_to, hundred)
    page = visit.page
    visit.find("Alien").first.click()
    row = page.locator("#rated li").first
    number = row.get_by_role("spinbutton")
    expect(number).to_be_focused()
    number.fill("73")
    asked = visit.changing(lambda: number.press("Tab"))
    assert [rated["rating"] for rated in asked["ratings"]] == [73]
    slider = row.get_by_role("slider")
    assert slider.get_attribute("aria-valuetext") == "73 of 100"
    asked = visit.changing(lambda: slider.press("ArrowRight"))
    assert [rated["rating"] for rated in asked["ratings"]] == [74]
    expect(number).to_have_value("74")
    expect(page.locator(".item-card").first.locator(".bars i")).to_have_count(20)
    number.fill("1000")
    asked = visit.changing(lambda: number.press("Tab"))
    assert [rated["rating"] for rated in asked["ratings"]] == [100]
    visit.picture("hundred-points")
    page.set_viewport_size({"width": 320, "height": 640})
    assert visit.fits()


def test_mapping_is_linear_and_to_the_nearest_level(visit: Visit) -> None:
    script = """async ([values, given, low, high]) => {
        const { makeScale } = await import("/page/format.js");
        return given.map((x) => makeScale(
            { capabilities: { ratings: true }, scale: values },
        ).from(x, low, high));
    }"""
    scales = ["1-5", "0.5-5/0.5", "1-10", "1-100", "0-4"]
    for scale, (low, high, step) in product(scales, [(0.5, 5, 0.5), (1, 10, 1), (0, 100, 1)]):
        given = np.arange(low, high + step / 2, step)
        values = parse_scale(scale).array()
        found = visit.page.evaluate(script, [values.tolist(), given.tolist(), low, high])
        exact = values[0] + (given - low) / (high - low) * (values[-1] - values[0])
        away = np.abs(values - exact[:, None])  # (given, levels)
        assert np.allclose(np.abs(found - exact), away.min(1))
        assert (np.diff(found) >= 0).all()
        assert (found[0], found[-1]) == (values[0], values[-1])


def test_shapes_of_scales(visit: Visit) -> None:
    script = """async (scales) => {
        const { shapesOf } = await import("/page/rating_input.js");
        return scales.map((values) => shapesOf(values)?.map((sides) => sides.join(" ")) ?? null);
    }"""
    whole = "left right"
    scales = [[1, 2, 3], [0.5, 1, 1.5], [0, 1, 2], [1, 1.5, 2], [10, 20, 40], [-1, 0, 1]]
    assert visit.page.evaluate(script, scales) == [
        [whole] * 3,
        ["left", "right", "left"],
        ["", whole, whole],
        [whole, "left", "right"],
        [whole] * 3,
        [whole] * 3,
    ]
    assert visit.page.evaluate(script, [list(range(1, 101))]) == [None]


def test_long_scales_share_bars_and_lose_no_probability(visit: Visit) -> None:
    script = """async (values) => {
        const { bars } = await import("/page/format.js");
        const same = values.map(() => 1 / values.length);
        return bars(values, same, same);
    }"""
    drawn = visit.page.evaluate(script, list(range(1, 101)))
    assert len(drawn) == 20
    assert drawn[0]["label"] == "1 to 5"
    assert drawn[-1]["label"] == "96 to 100"
    assert sum(bar["chance"] for bar in drawn) == pytest.approx(1)
