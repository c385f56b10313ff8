"""Items by their titles."""

from __future__ import annotations

from difflib import get_close_matches

from cfnade.data.ratings import Ratings
from cfnade.errors import PredictionError


def item_named(text: str, ratings: Ratings) -> int:
    """The index of the item with this title, ignoring case; part of a title will do if only one
    title contains it."""
    if ratings.titles is None:
        raise PredictionError(
            f"{text!r} is not an item id, and this model knows no titles; give an id"
        )
    wanted = text.strip().casefold()
    titles = [str(title).casefold() for title in ratings.titles]
    exact = [at for at, title in enumerate(titles) if title == wanted]
    found = exact or [at for at, title in enumerate(titles) if wanted and wanted in title]
    if len(found) == 1:
        return found[0]
    if found:
        some = "; ".join(str(ratings.titles[at]) for at in found[:5])
        raise PredictionError(f"{text!r} is in {len(found)} titles, say which one: {some}")
    near = get_close_matches(wanted, titles, 3, 0.5)
    hint = "; ".join(str(ratings.titles[titles.index(title)]) for title in near)
    hint = f"; did you mean: {hint}" if hint else ""
    raise PredictionError(f"{text!r} is neither an item id nor part of a title{hint}")
