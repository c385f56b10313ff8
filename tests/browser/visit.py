"""A visit to the page: what tests do and see there, and what must never happen meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, FilePayload, Locator, Page, Request, expect

_WITHOUT_OTHER_NAMES = """headings => headings.map((heading) =>
  [...heading.childNodes].filter((node) => node.nodeName !== "SMALL")
    .map((node) => node.textContent).join(""))"""

_TIMERS = """{
  const [set, clear] = [setTimeout, clearTimeout];
  window.due = new Set(); // what the page is about to do
  window.setTimeout = (work, wait = 0, ...given) => {
    const timer = set(() => { due.delete(timer); work(...given); }, wait);
    if (wait < 1000) due.add(timer);
    return timer;
  };
  window.clearTimeout = (timer) => { due.delete(timer); clear(timer); };
}"""
_SETTLED = """() => due.size === 0 && !document.querySelector(".skeleton")
  && document.querySelector("#films[aria-busy=false]")"""
_STILL = """() => document.getAnimations().every((one) =>
  one.playState !== "running" || one.effect.getComputedTiming().endTime === Infinity)"""


class Visit:
    """One visitor with a browser profile of their own."""

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self.page, self.url, self.pictures = page, url, pictures
        self.faults: list[str] = []
        self.hosts: set[str] = set()
        self.refusals_expected = False
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self._hear(said.type, said.text))
        page.on("request", self._note)

    def _hear(self, kind: str, text: str) -> None:
        refused = self.refusals_expected and text.startswith("Failed to load resource")
        if kind in ("error", "warning") and not refused:
            self.faults.append(f"{kind}: {text}")

    def _note(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.hosts.add(urlsplit(request.url).netloc)

    def forget(self) -> None:
        """End the visit; the profile is as new."""
        asking = self.page.context.new_cdp_session(self.page)
        asking.send("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        asking.send("Network.clearBrowserCache")
        self.page.close()

    def check_manners(self) -> None:
        """No error in the console, no word to another host."""
        assert not self.faults, self.faults
        assert self.hosts <= {urlsplit(self.url).netloc}, self.hosts

    # -- doing ---------------------------------------------------------------------------------

    def arrive(self, *, fresh: bool = False) -> None:
        """Open the page; unless fresh, begin with its first sample taste."""
        self.page.goto(self.url)
        self.settled()
        samples = self.page.locator("#chips button")
        if not fresh and samples.count():
            samples.first.evaluate("node => node.click()")  # on a phone it is folded away
            self.settled()

    def settled(self) -> None:
        """Until the list answers the latest change."""
        self.page.wait_for_function(_SETTLED, polling=20)

    def find(self, text: str) -> Locator:
        """Type into the search; the options found."""
        self.page.fill("#search", text)
        options = self.page.get_by_role("option")
        expect(options.first).to_be_visible()
        return options

    def more(self, name: str, card: Locator | None = None) -> Locator:
        """Open the menu of a card, the first if none is given; the button that begins so."""
        card = card or self.page.locator(".item-card").first
        if not card.locator(".menu").is_visible():
            card.locator(".menu-button").click()
        return card.locator(".menu").get_by_role("button", name=re.compile(f"^{re.escape(name)}"))

    def rate(self, text: str, rating: float, of: float = 5) -> None:
        """Find a film, take the first and give it stars, by pointer."""
        self.find(text).first.click()
        row = self.page.locator("#rated li").first
        row.get_by_role("radio", name=f"{rating:g} of {of:g}", exact=True).check()
        self.settled()

    def changing(self, act: Callable[[], Any]) -> dict[str, Any]:
        """What the page asks /recommend after an act."""
        with self.page.expect_request("**/recommendations") as asked:
            act()
        self.settled()
        return sent(asked.value)

    def upload(self, name: str, content: str | bytes) -> str:
        """Import a file; the page's report."""
        data = content.encode() if isinstance(content, str) else content
        file = FilePayload(name=name, mimeType="text/csv", buffer=data)
        report = self.page.locator("#report")
        self.page.evaluate("document.getElementById('report').replaceChildren()")
        self.page.set_input_files("#file", files=[file])
        expect(report).not_to_have_text(re.compile("^(Reading.*)?$"))
        self.settled()
        return report.inner_text()

    def still(self) -> None:
        """Until films that change places have arrived."""
        self.page.wait_for_function(_STILL)

    def picture(self, name: str, *, whole: bool = False) -> None:
        self.still()
        self.page.screenshot(path=self.pictures / f"{name}.png", full_page=whole)

    # -- seeing --------------------------------------------------------------------------------

    def listed(self) -> list[str]:
        """The films of the list, best first."""
        texts = self.page.locator(".item-card h3").evaluate_all(_WITHOUT_OTHER_NAMES)
        return [str(text).strip() for text in texts]

    def scores(self) -> dict[str, float]:
        numbers = [float(_first(text)) for text in self.page.locator(".score").all_inner_texts()]
        return dict(zip(self.listed(), numbers, strict=True))

    def mine(self) -> dict[str, str]:
        """The visitor's films with the rating shown beside each."""
        rows = self.page.locator("#rated li").all()
        shown = [row.locator("output, input[type=number]").first for row in rows]
        texts = [each.evaluate("node => node.value || node.textContent") for each in shown]
        names = [row.locator("> span").inner_text().strip() for row in rows]
        return dict(zip(names, texts, strict=True))

    def fits(self) -> bool:
        """Whether nothing sticks out sideways."""
        script = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        return bool(self.page.evaluate(script))


def sent(request: Request) -> dict[str, Any]:
    """The JSON that a request carries."""
    body = request.post_data_json
    assert isinstance(body, dict)
    return body


def _first(text: str) -> str:
    found = re.match(r"\d+(\.\d+)?", text)
    assert found, text
    return found[0]


def new_profile(browser: Browser, **options: Any) -> BrowserContext:
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    context.set_default_timeout(60_000)
    context.add_init_script(_TIMERS)
    expect.set_options(timeout=60_000)
    return context
