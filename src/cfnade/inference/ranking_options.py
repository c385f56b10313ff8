"""What a list is asked to be: by what it is ranked, of which items, how varied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from annotated_types import Ge, Le

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.exceptions import PredictionError
from cfnade.implicit.base import ScoreArray
from cfnade.inference.catalog import Catalog, listed
from cfnade.inference.objectives import How, Objective, RankBy, resolve_objective
from cfnade.inference.query import BoolArray, Entities
from cfnade.inference.refusals import check_names
from cfnade.inference.results import TopN
from cfnade.inference.scorer import Scorer
from cfnade.inference.similarity import (
    LONGER,
    similar_by_picks,
    similar_by_vectors,
    unit_vectors,
    varied,
)
from cfnade.inference.top_n import (
    TASTE,
    Candidates,
    InteractionRanker,
    Ranker,
    RatingRanker,
    even_step,
    filled,
    rankings,
    with_picks,
)
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import option
from cfnade.utils.validation import check_scalar

_SHOWN = 5  # items in a refusal

MOST, SHARE = 20, 0.25
"""An item needs at most so many ratings to be listed; what is hidden has at most such a share."""


@dataclass(frozen=True)
class Wishes:
    """Checks what is asked of lists, and says who makes them."""

    scorer: Scorer
    calibrator: Calibrator
    catalog: Catalog

    @locked_cached_property
    def usual_least(self) -> int:
        """Ratings that an item needs to be listed by what is said of ratings."""
        return default_min_ratings(self.scorer.known("item"))

    @locked_cached_property
    def genres(self) -> dict[str, BoolArray]:
        """The items (M,) of each genre that the data name."""
        return genres_of(self.scorer)

    def rankings(
        self, people: Entities, n: int, exclude_seen: bool, how: How, *, evenly: bool = False
    ) -> TopN:
        """The lists of these people; `evenly` of these and perhaps of the last one again.

        Matrix products of another size may have other last bits. If all steps are alike, nobody's
        list depends on how many others are asked about.
        """
        check_names("recommend", how, How)
        share = check_scalar(
            "diversity", how.get("diversity", 0.0), float, Ge(0), Le(1), error=PredictionError
        )
        n = check_scalar("n", n, int, Ge(1), error=PredictionError)
        lister = self.lister(n * (LONGER if share else 1), exclude_seen, how)
        step = even_step(lister) if evenly else None
        people = people if step is None else filled(people, step)
        lists = rankings(lister, self.scorer, people, step)
        if share:
            chances = self._rank(how) in ("picked", "at_least")
            top = varied(lists.top, n, self.likeness, share, chances=chances)
            lists = lists.of_top(top, self.scorer)
        if not self.tells_picks(how):
            return lists
        return with_picks(lists, self.scorer, people, left_out=exclude_seen)

    def tells_picks(self, how: How) -> bool:
        """Whether lists say how likely items are picked: those by ratings are made without it."""
        return self._rank(how) == "picked"

    def similar(self, item: int, n: int) -> pl.DataFrame:
        """The items most like one."""
        n = check_scalar("n", n, int, Ge(1), error=PredictionError)
        choice = self.scorer.fitted.interaction_model
        if choice is not None:
            return similar_by_picks(self.scorer, choice, item, n)
        return similar_by_vectors(self.scorer, self.likeness, item, n)

    @locked_cached_property
    def likeness(self) -> ScoreArray:
        """A vector of unit length for each item. Returns (M, D)."""
        choice = self.scorer.fitted.interaction_model
        vectors = None if choice is None else choice.item_vectors()
        return unit_vectors(self.scorer.fitted) if vectors is None else vectors

    def lister(self, n: int, exclude_seen: bool, how: How) -> Ranker:
        """Who makes such lists of n items."""
        fitted, rank = self.scorer.fitted, self._rank(how)
        by = resolve_objective(
            rank, how.get("threshold"), how.get("quantile"), fitted.context.scale
        )
        taste = self._taste(rank, how.get("taste"))
        enough = self.scorer.known("item") >= self.least(how)
        allowed = Candidates(self._items(how), enough, exclude_seen)
        parts = self.scorer, self.calibrator
        by_ratings = rank != "picked" or (taste == 1 and fitted.rates)
        if by_ratings and self._popularity_penalty(how):
            raise PredictionError(
                "popularity_penalty goes with rank='picked' and a taste below 1; leave one out"
            )
        if rank != "picked":
            return RatingRanker(*parts, by, n, allowed)
        if by_ratings:
            liked = Objective("at_least", by.scale, by.threshold, by.quantile)
            return RatingRanker(*parts, liked, n, allowed)
        assert fitted.interaction_model is not None
        model, penalty = fitted.interaction_model, self._popularity_penalty(how)
        return InteractionRanker(*parts, model, by, taste, n, allowed, penalty)

    def least(self, how: How) -> int:
        """How many ratings an item must have to be listed."""
        least = how.get("min_ratings")
        if least is None:
            picked = self._rank(how) == "picked" and how.get("taste") != 1
            least = 0 if picked else self.usual_least  # what nobody picks is not listed anyway
        return check_scalar("min_ratings", least, int, Ge(0), error=PredictionError)

    def _rank(self, how: How) -> RankBy:
        fitted, rank = self.scorer.fitted, how.get("rank")
        if rank is None:
            return "picked" if fitted.interaction_model is not None else "expected"
        if rank == "picked" and fitted.interaction_model is None:
            raise PredictionError(
                "rank='picked' needs a model that knows what people pick; train one with "
                f"{option('lists', True)}"
            )
        if rank != "picked" and not fitted.rates:
            raise PredictionError(
                f"rank={rank!r} needs ratings, and this model was trained on interactions without "
                "any; leave rank out"
            )
        return rank

    def _taste(self, rank: RankBy, taste: Any) -> float:
        if taste is None:
            return TASTE
        if rank != "picked":
            raise PredictionError(
                f"taste (={taste!r}) goes with rank='picked', not with {rank!r}; leave one out"
            )
        if not self.scorer.fitted.rates:
            raise PredictionError(
                f"taste (={taste!r}) weighs picks against ratings, and this model knows no "
                "ratings; leave it out"
            )
        return check_scalar("taste", taste, float, Ge(0), Le(1), error=PredictionError)

    def _popularity_penalty(self, how: How) -> float:
        penalty = how.get("popularity_penalty", 0.0)
        name = "popularity_penalty"
        return check_scalar(name, penalty, float, Ge(0), Le(1), error=PredictionError)

    # -- which items --------------------------------------------------------------------------

    def _items(self, how: How) -> BoolArray:
        """Those that the filters leave. Returns (M,)."""
        M = self.scorer.fitted.context.n_items
        allowed = np.ones(M, bool)
        if (only := how.get("items")) is not None:
            allowed[:] = False
            allowed[self._indices(only, "items")] = True
        if (without := how.get("without")) is not None:
            allowed[self._indices(without, "without")] = False
        if (genres := how.get("genres")) is not None:
            allowed &= self.of_genres(genres)
        return allowed

    def _indices(self, given: Any, name: str) -> Any:
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise PredictionError(f"{name} (={given!r}) must be a list of items, by id or title")
        named = listed(given)[0]
        indices = self.catalog.indices(named)
        raws = named.tolist() if isinstance(named, np.ndarray) else named
        unknown = [raw for raw, place in zip(raws, indices, strict=True) if place < 0]
        if unknown:
            some = ", ".join(map(repr, unknown[:_SHOWN])) + (", …" if unknown[_SHOWN:] else "")
            raise PredictionError(
                f"{name} names {some}, unknown to the model; leave out what it does not know "
                "(search finds items by title)"
            )
        return indices

    def of_genres(self, genres: Any) -> BoolArray:
        """Items with any of these genres. Returns (M,)."""
        if not isinstance(genres, Iterable):
            raise PredictionError(f"genres (={genres!r}) must be a genre or a list of them")
        asked = [genres] if isinstance(genres, str) else list(genres)
        masks = self.genres
        if not masks:
            raise PredictionError("genres: this model's data name no genres; leave it out")
        names = {name.casefold(): name for name in masks}
        for one in asked:
            if not isinstance(one, str) or one.casefold() not in names:
                raise PredictionError(
                    f"genres: {one!r} is none of the data's; known are {', '.join(masks)}"
                )
        if not asked:
            raise PredictionError(f"genres is empty; name one of {', '.join(masks)}")
        return np.asarray(np.logical_or.reduce([masks[names[one.casefold()]] for one in asked]))


# -- what is known of items -----------------------------------------------------------------------


def genres_of(scorer: Scorer) -> dict[str, BoolArray]:
    """The items (M,) of each genre that the data name, genres in the order of the alphabet."""
    texts = scorer.fitted.context.genres
    if texts is None:
        return {}
    members: dict[str, list[int]] = {}
    for item, text in enumerate(texts.tolist()):
        for name in text.split("|"):
            if name.strip() and not name.startswith("("):  # "(no genres listed)"
                members.setdefault(name.strip(), []).append(item)
    masks = {}
    for name in sorted(members):
        masks[name] = np.zeros(len(texts), bool)
        masks[name][members[name]] = True
    return masks


def default_min_ratings(counts: IntArray) -> int:
    """At least 1, at most 20; as many as hide no more than a quarter of all ratings.

    counts (items,) are the ratings of each. docs/python.md says why.
    """
    ordered = np.sort(counts)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    for least in range(MOST, 1, -1):
        below = int(np.searchsorted(ordered, least))
        if sums[below] <= SHARE * sums[-1]:
            return least
    return 1
