"""Which items may be listed: candidates, exclusions, genres, minimum numbers of ratings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import Catalog, listed
from cfnade.inference.query import BoolArray
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.scorer import Scorer
from cfnade.inference.top_n import Candidates
from cfnade.utils.caching import locked_cached_property

_MAX_SHOWN = 5  # items in an error message

MAX_MIN_RATINGS, MAX_HIDDEN = 20, 0.25
"""Largest default of `min_ratings`, and the largest fraction of ratings that it hides."""


class ItemFilters:
    """Items of a model by genre and number of ratings."""

    def __init__(self, scorer: Scorer, catalog: Catalog) -> None:
        self._scorer, self._catalog = scorer, catalog

    @locked_cached_property
    def default_min_ratings(self) -> int:
        """Ratings that an item needs in a list that is ranked by ratings."""
        return default_min_ratings(self._scorer.known("item"))

    @locked_cached_property
    def genres(self) -> dict[str, BoolArray]:
        """The items (M,) of each genre in the data, in alphabetical order."""
        texts = self._scorer.fitted.context.genres
        if texts is None:
            return {}
        members: dict[str, list[int]] = {}
        for item, text in enumerate(texts.tolist()):
            for name in text.split("|"):
                if name.strip() and not name.startswith("("):  # "(no genres listed)"
                    members.setdefault(name.strip(), []).append(item)
        masks = {name: np.zeros(len(texts), bool) for name in sorted(members)}
        for name, mask in masks.items():
            mask[members[name]] = True
        return masks

    def candidates(self, options: RankingOptions) -> Candidates:
        """Return the items that resolved options allow."""
        enough = self._scorer.known("item") >= self.min_ratings(options)
        return Candidates(self._allowed(options), enough, options.exclude_seen)

    def min_ratings(self, options: RankingOptions) -> int:
        """Return how many ratings an item needs by resolved options."""
        if options.min_ratings is not None:
            return options.min_ratings
        # Items that are hardly ever taken up do not get into lists by interactions anyway.
        by_interactions = options.uses_interactions and options.balance != 1
        return 0 if by_interactions else self.default_min_ratings

    def indices(self, items: Any, name: str) -> IntArray:
        """Return the indices of items by id or title; `name` is the option that names them."""
        if isinstance(items, str) or not isinstance(items, Iterable):
            raise PredictionError(f"{name} (={items!r}) must be a list of items, by id or title")
        raw = listed(items)[0]
        indices = self._catalog.indices(raw)
        raw = raw.tolist() if isinstance(raw, np.ndarray) else raw
        unknown = [item for item, index in zip(raw, indices, strict=True) if index < 0]
        if unknown:
            names = ", ".join(map(repr, unknown[:_MAX_SHOWN])) + (
                ", …" if unknown[_MAX_SHOWN:] else ""
            )
            raise PredictionError(
                f"{name} contains items that are unknown to the model: {names}; leave them out "
                "(find_items searches by title)"
            )
        return indices

    def _allowed(self, options: RankingOptions) -> BoolArray:
        allowed = np.ones(self._scorer.fitted.context.n_items, bool)
        if options.candidate_items is not None:
            allowed[:] = False
            allowed[self.indices(options.candidate_items, "candidate_items")] = True
        if options.exclude_items is not None:
            allowed[self.indices(options.exclude_items, "exclude_items")] = False
        if options.genres is not None:
            allowed &= self._of_genres(options.genres)
        return allowed

    def _of_genres(self, genres: Any) -> BoolArray:
        """Return which items have any of these genres, (M,)."""
        if not isinstance(genres, Iterable):
            raise PredictionError(f"genres (={genres!r}) must be a genre or a list of genres")
        genre_names = [genres] if isinstance(genres, str) else list(genres)
        masks = self.genres
        if not masks:
            reason = "the data of this model have no genres; leave it out"
            message = f"genres: {reason}"
            raise PredictionError(message, field="genres", value=genre_names, reason=reason)
        names = {name.casefold(): name for name in masks}
        for name in genre_names:
            if not isinstance(name, str) or name.casefold() not in names:
                raise PredictionError(
                    f"genres: unknown genre {name!r}; the data have {', '.join(masks)}"
                )
        if not genre_names:
            raise PredictionError(f"genres is empty; give one of {', '.join(masks)}")
        return np.asarray(
            np.logical_or.reduce([masks[names[name.casefold()]] for name in genre_names])
        )


def default_min_ratings(n_ratings: IntArray) -> int:
    """Return the default of `min_ratings`: 1 to 20, as many as hide at most a quarter of ratings.

    Args:
        n_ratings: Ratings of each item, (items,). docs/reference/python.md has the reasons.
    """
    ordered = np.sort(n_ratings)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    for least in range(MAX_MIN_RATINGS, 1, -1):
        below = int(np.searchsorted(ordered, least))
        if sums[below] <= MAX_HIDDEN * sums[-1]:
            return least
    return 1
