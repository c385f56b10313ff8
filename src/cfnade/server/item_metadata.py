"""What the page tells of items besides predictions: genres, decades, how people rated them, and
what they are called."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.exceptions import CfnadeError
from cfnade.inference.predictor import Predictor

_DATED = 0.8
"""The share of titles with a year from which a catalog is taken for one of films."""
_YEAR = re.compile(r"\((\d{4})\)\s*$")
_NOUN = re.compile(r"[^\W\d_]([^\W\d_]|[ -])*")


@dataclass(frozen=True, eq=False)
class ItemMetadata:
    """By item, if not said otherwise."""

    genres: list[list[str]]
    years: npt.NDArray[np.int64]
    """0 where the title has none."""
    decades: list[dict[str, int]]
    """Those with items, the latest first."""
    noun: str
    """What one item is: film where titles have years, else item."""

    def of_decades(self, decades: list[int]) -> npt.NDArray[np.int64]:
        """Indices of the items of any of these."""
        wanted = np.isin(self.years // 10 * 10, decades) & (self.years > 0)
        return np.flatnonzero(wanted)


def item_metadata(predictor: Predictor) -> ItemMetadata:
    """What can be told of a model's items."""
    n, titles = len(predictor.items.table), predictor.catalog.titles
    genres: list[list[str]] = [[] for _ in range(n)]
    for name, mask in predictor.genres.items():
        for item in np.flatnonzero(mask).tolist():
            genres[item].append(name)
    named = [""] * n if titles is None else [str(title) for title in titles]
    matches = [_YEAR.search(title) for title in named]
    years = np.array([int(year[1]) if year else 0 for year in matches], np.int64)
    counted = Counter((years[years > 0] // 10 * 10).tolist())
    decades = [{"decade": decade, "items": counted[decade]} for decade in sorted(counted)[::-1]]
    dated = np.count_nonzero(years) >= _DATED * n
    return ItemMetadata(genres, years, decades, "film" if dated else "item")


def validate_item_name(text: str | None) -> str | None:
    """What items are called, as given on the command line: a word or two."""
    if text is None or (len(text) <= 30 and _NOUN.fullmatch(text.strip())):
        return text and text.strip().lower()
    raise CfnadeError(
        f"--item-name {text}: is no word for one item; give one such as film, book or song"
    )


def asked_items(
    metadata: ItemMetadata, predictor: Predictor, only: Any, decades: list[int] | None
) -> Any:
    """Raw ids that a list may be of: those given, of the decades given; None for all."""
    if decades is None:
        return only
    raws = predictor.items.table[metadata.of_decades(decades)].tolist()
    return raws if only is None else [raw for raw in raws if raw in set(only)]
