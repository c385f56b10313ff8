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
from tests.exports.given import HISTORIES, KINDS, asked, predictor_of
from tests.serve.browser.films import LOVE

from cfnade import Predictor
from cfnade.exports.portable import portable
from cfnade.exports.static_page import write_web

ASK = """async (histories) => {
  const { loadModel } = await import("./model.js");
  const model = await loadModel(".");
  return histories.map((history) => {
    const said = model.person(history);
    const chances = [...said.expected.keys()].map((item) => [...said.chances(item)]);
    return { expected: [...said.expected], chances };
  });
}"""


FILES = {"", "page.js", "model.js", "style.css", "icon.svg", "model.json", "weights.bin"}


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
    items, stars = portable(predictor.fitted).items, predictor.scale.array()
    cells = [asked(predictor, items, history) for history in histories]
    said = page.evaluate(ASK, [pairs for pairs, _, _ in cells])
    worst = 0.0
    for (_, rest, ids), history, found in zip(cells, histories, said, strict=True):
        new = {"new": history}
        expected, chances = np.array(found["expected"])[rest], np.array(found["chances"])[rest]
        for ours, theirs in (
            (predictor.predict("new", ids, histories=new), expected),
            (predictor.predict_proba("new", ids, histories=new), chances),
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
    films: Path, page: Page, tmp_path: Path, pictures: Path, width: int
) -> None:
    """Rating changes the list without a single request, and is there after a reload."""
    write_web(Predictor.load(films), tmp_path)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.set_viewport_size({"width": width, "height": 844})
    with handed_out(tmp_path) as url:
        page.goto(url)
        expect(page.locator("#list li")).to_have_count(20)
        before = page.locator("#list li .title").all_inner_texts()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        for title, stars in (("amelie", "5"), ("casablanca", "5"), ("alien", "1")):
            page.fill("#search", title)
            page.locator("#found li").first.get_by_role("button", name=stars).click()
        expect(page.locator("#rated li")).to_have_count(3)
        after = page.locator("#list li .title").all_inner_texts()
        assert after != before
        assert after[0] in LOVE
        page.screenshot(path=str(pictures / f"static-{width}.png"), full_page=True)
        assert requests == []
        page.reload()
        expect(page.locator("#rated li")).to_have_count(3)
        assert page.locator("#list li .title").all_inner_texts() == after
        page.get_by_role("button", name="Forget all").click()
        expect(page.locator("#rated li")).to_have_count(0)
        assert {url.rpartition("/")[2] for url in requests} <= FILES
    assert faults == []
