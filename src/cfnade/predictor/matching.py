"""Which item a film from elsewhere is, by title and year. A wrong film is worse than none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from cfnade.predictor.titles import Title, parse

_LEAST_LETTERS = 4  # of a part of a title that may stand for the whole
_BESIDES = ("bonusmaterial", "makingof", "behindthescenes")  # films about a film, by their parts


class TitleMatch:
    """Items by the keys of their names, and of the parts of these."""

    def __init__(self, parsed: list[Title]) -> None:
        self._parsed = parsed
        self._by_name: dict[str, set[int]] = defaultdict(set)
        self._by_part: dict[str, set[int]] = defaultdict(set)
        for item, title in enumerate(parsed):
            for name in title.names:
                self._by_name[name.key].add(item)
                if not any(part.startswith(_BESIDES) for part in name.parts):
                    for part in name.parts:
                        self._by_part[part].add(item)

    def match(self, text: str, year: int | None = None) -> int | None:
        """The one item that is meant, or None.

        Names must be equal but for case, accents, punctuation, spaces and articles, and years a
        year apart at most. With the very same year one side may be a part of the other before or
        after a colon or dash: "Star Wars" is "Star Wars: Episode IV - A New Hope".
        """
        title = parse(text)
        year = title.year if year is None else year
        named = self._named(title)
        if year is None:
            return _only(named)
        same, near = self._in_year(named, year, 0), self._in_year(named, year, 1)
        if same or near:
            return _only(same or near)
        undated = {item for item in named if self._parsed[item].year is None}
        return _only(undated) if undated else _only(self._in_year(self._partly(title), year, 0))

    def named(self, text: str) -> list[int]:
        """All items of this name; of this year, if the text has one."""
        title = parse(text)
        named = self._named(title)
        return sorted(named if title.year is None else self._in_year(named, title.year, 0))

    def _named(self, title: Title) -> set[int]:
        """By the main name if an item has it, otherwise by the others."""
        for name in title.names:
            if found := self._by_name.get(name.key):
                return found
        return set()

    def _partly(self, title: Title) -> set[int]:
        found: set[int] = set()
        for name in title.names:
            if len(name.key) >= _LEAST_LETTERS:
                found |= self._by_part.get(name.key, set())
            for part in name.parts:
                if len(part) >= _LEAST_LETTERS:
                    found |= self._by_name.get(part, set())
        return found

    def _in_year(self, items: Iterable[int], year: int, apart: int) -> set[int]:
        years = ((item, self._parsed[item].year) for item in items)
        return {item for item, own in years if own is not None and abs(own - year) <= apart}


def _only(items: set[int]) -> int | None:
    return next(iter(items)) if len(items) == 1 else None
