"""Options of the service, and limits of one request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from cfnade.exceptions import CfnadeError
from cfnade.utils.threads import available_threads

KEY_VARIABLE = "CFNADE_API_KEY"
ANY = "*"
LogFormat = Literal["plain", "json"]

MAX_RATINGS = 5_000
"""Ratings in the history of a user."""
MAX_N = 500
"""Items in one list of recommendations."""
MAX_ITEMS = 1_000
"""Items in one prediction, filter or match, and ratings that are stored at once."""
MAX_NEW_ITEMS = 20
"""Items that the model does not know, in one prediction."""
MAX_NEW_ITEM_RATINGS = 1_000
"""Ratings of one such item."""
MAX_GENRES = 100
MAX_SEARCH_RESULTS = 50
MAX_ITEMS_TO_RATE = 50
MAX_MAP_ITEMS = 500
MAX_TEXT = 300
"""Characters of a title, an id or a query."""
MAX_TOKEN_SECONDS = 86_400
MAX_FIELDS = 50
"""Fields of one object of a body; no valid one has as many."""
MAX_COLONS = 85_000
"""In one body: those of all fields of the largest valid one, and 30,000 in titles."""
MAX_VALUES = 30_000
"""Arrays and objects of one body, more than any valid one has."""

_ITEM_NAME = re.compile(r"[^\W\d_]([^\W\d_]|[ -])*")


class Limits(BaseModel, frozen=True):
    """Limits of one process; the defaults suit a page and a few programs on two cores."""

    body_bytes: int = 1 << 20
    header_bytes: int = 1 << 14
    body_seconds: float = 10.0
    """For a request to arrive: headers and body each."""
    write_seconds: float = 30.0
    """For a client to read a response."""
    work_seconds: float = 10.0
    """For a response, waiting included."""
    threads: int = Field(default_factory=available_threads)
    waiting: int = 64
    """Requests that wait for a thread; the next one gets 503."""
    connections: int = 512
    """Open connections; beyond, the one that has been idle longest is closed."""


class ServerSettings(BaseModel, frozen=True):
    """Options of `cfnade serve`, sent to workers."""

    model_dir: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    api_key: str | None = None
    allow_origins: tuple[str, ...] = ()
    """Other origins whose pages may send requests; "*" for any."""
    allow_hosts: tuple[str, ...] = ()
    """Names of the service besides its own; "*" for any."""
    watch: float | None = None
    """Seconds between checks for a new model."""
    access_log: LogFormat | None = None
    store_url: str | None = None
    item_name: str | None = None
    """What the page calls an item, such as "book"; None: what the data suggest."""
    limits: Limits = Field(default_factory=Limits)

    def check_exposure(self) -> None:
        """Refuse to open stored ratings to every web page: an error if no key protects them."""
        if self.store_url is None or self.api_key is not None:
            return
        options = {"--allow-origin": self.allow_origins, "--allow-host": self.allow_hosts}
        for option, values in options.items():
            if ANY in values:
                raise CfnadeError(
                    f"{option} {ANY} with --store and without a key lets every web page that you "
                    f"open read and change the stored ratings; set {KEY_VARIABLE}, or name the "
                    f"{option.removeprefix('--allow-')}s"
                )


def validate_item_name(text: str | None) -> str | None:
    """Return a name of items from the command line, a word or two."""
    if text is None or (len(text) <= 30 and _ITEM_NAME.fullmatch(text.strip())):
        return text and text.strip().lower()
    raise CfnadeError(
        f"--item-name {text}: is no word for one item; give one such as film, book or song"
    )
