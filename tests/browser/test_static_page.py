"""The exported page: the numbers of Python in the browser, and ratings that never leave it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import Open
from tests.browser.films import LOVE
from tests.integrations.exported import HISTORIES, KINDS, asked, predictor_of

import cfnade
from cfnade.inference.predictor import Predictor
from cfnade.integrations.fold_in_export import fold_in_tables
from cfnade.integrations.static_site import write_web

ASK = """async (histories) => {
  const { loadModel } = await import("./page/model.js");
  const model = await loadModel(".");
  return histories.map((history) => {
    const said = model.person(history);
    const chances = [...said.expected.keys()].map((item) => [...said.chances(item)]);
    return { expected: [...said.expected], chances };
  });
}"""


SOURCE = Path(cfnade.__file__).parent
FOLDERS = SOURCE / "server" / "page", SOURCE / "integrations" / "static_site"
PAGE = {
    f"page/{one.name}"
    for folder in FOLDERS
    for one in folder.iterdir()
    if one.is_file() and one.suffix != ".py"
}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def handed_out(folder: Path) -> Iterator[str]:
    """A web server that knows nothing but files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def differences(page: Page, predictor: Predictor, histories: list[dict[Any, float]]) -> float:
    """The largest, of expected ratings and of chances, between the page and Python."""
    items, stars = fold_in_tables(predictor.fitted).items, predictor.scale.array()
    cells = [asked(predictor, items, history) for history in histories]
    said = page.evaluate(ASK, [pairs for pairs, _, _ in cells])
    worst = 0.0
    for (_, rest, ids), history, found in zip(cells, histories, said, strict=True):
        new = {"new": history}
        predictions = predictor.predict("new", ids, histories=new)
        expected, chances = np.array(found["expected"])[rest], np.array(found["chances"])[rest]
        for ours, theirs in (
            (predictions.predictions, expected),
            (predictions.probabilities, chances),
            (expected, chances @ stars),
        ):
            worst = max(worst, float(np.abs(ours - theirs).max()))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_the_browser_has_the_numbers_of_python(kind: str, page: Page, tmp_path: Path) -> None:
    predictor = predictor_of(kind)
    write_web(predictor, tmp_path)
    with handed_out(tmp_path) as url:
        page.goto(url)
        assert differences(page, predictor, HISTORIES) < 2e-5


@pytest.mark.parametrize("width", [390, 1280])
def test_ratings_stay_in_the_browser(
    films: Path, visit_to: Open, tmp_path: Path, width: int
) -> None:
    """Rating changes the list without a single request, and is there after a reload."""
    write_web(Predictor.load(films), tmp_path)
    with handed_out(tmp_path) as url:
        visit = visit_to(url, viewport={"width": width, "height": 844})
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.url.removeprefix(url)))
        visit.arrive(fresh=True)
        assert set(asked) <= {"", "model.json", "weights.bin", *PAGE}
        expect(visit.page.locator("#ask-count")).to_contain_text("Question 1 of 10")
        asked.clear()
        before = visit.listed()
        for title, stars in (("amelie", 5), ("casablanca", 5), ("alien", 1)):
            visit.rate(title, stars)
        after = visit.listed()
        assert after != before
        assert after[0] in {title.replace(" (", " ").removesuffix(")") for title in LOVE}
        visit.more("Why").click()
        expect(visit.page.locator(".moves li")).to_have_count(3)
        visit.picture(f"static-{width}")
        visit.page.get_by_role("button", name="Map", exact=True).click()
        expect(visit.page.locator("#map-bright li")).not_to_have_count(0)
        assert asked == []
        visit.page.reload()
        visit.settled()
        expect(visit.page.locator("#rated li")).to_have_count(3 if width > 400 else 1)  # folded
        assert visit.listed() == after
