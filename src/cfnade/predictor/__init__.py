"""Predictor: raw ids, titles and histories in, distributions and lists out.

Probabilities are calibrated, which keeps their mean. A rating that is known is predicted from the
other ratings of its row, never from itself. What the model has never met follows the rule "mean" of
models/unseen.py; the columns known_of_user and known_of_item, 0 there, tell.
A Predictor does not change, apart from what it computes once and keeps, under a lock: any number of
threads may ask the same one. Questions about a few people run serially on the thread that asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.bundle import Bundle
from cfnade.checkpoint import load
from cfnade.checkpoint.faults import fault_of
from cfnade.errors import PredictionError
from cfnade.predictor import frames
from cfnade.predictor.catalogue import Catalogue
from cfnade.predictor.cells import Answers, answers, timed_answers
from cfnade.predictor.explain import by_item, by_level
from cfnade.predictor.histories import History, Person, read_history
from cfnade.predictor.ids import Ids, listed, paired
from cfnade.predictor.once import once
from cfnade.predictor.ranking import Rank, RankBy, Ranking, best, calibrated, means_of, rank_by
from cfnade.predictor.scoring import Row, row_of
from cfnade.predictor.thin import default_min_ratings
from cfnade.predictor.together import known_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Predictor:
    """Answers questions from a bundle; nothing else is needed."""

    def __init__(self, bundle: Bundle) -> None:
        if reason := fault_of(bundle):
            raise PredictionError(f"the model cannot be used: {reason}")
        self.bundle = bundle
        self.scale = bundle.context.scale
        self.users = Ids("user", bundle.context.user_ids)
        self.items = Ids("item", bundle.context.item_ids)
        self._known = known_of(bundle)
        self._values = self.scale.array()
        self.catalogue = Catalogue(self.items, bundle.context, lambda: self._known.of_all_items)
        """The items by id and title."""

    @classmethod
    def load(cls, folder: str | Path) -> Predictor:
        """From a checkpoint folder."""
        return cls(load(folder))

    def person(self, history: History) -> Person:
        """Read a history once, to use it often and to see which of its items are `unknown`."""
        self._require_user_based()
        return read_history(history, self.catalogue, self.scale)

    # -- given cells --------------------------------------------------------------------------

    def predict_proba(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        times: Any = None,
    ) -> FloatArray:
        """The distribution of each (user, item), over the scale's values. Returns (n, K).

        A single user goes with all items, and the other way round; items are ids or titles.
        histories gives people by any name; where users contains that name, their history counts
        and nothing else. A model that knows time needs the times of the ratings, whole seconds
        since 1970, one for all or one for each, and takes no histories.
        """
        said = self._answers(*paired(users, items), histories, times)
        return calibrated(said.probabilities, self._values, self.bundle.calibration)

    def predict(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        times: Any = None,
    ) -> FloatArray:
        """The expected rating of each (user, item), in stars. Returns (n,)."""
        said = self._answers(*paired(users, items), histories, times)
        return means_of(said.probabilities, self._values)

    def predict_frame(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        times: Any = None,
    ) -> pl.DataFrame:
        """user, item, title, prediction, std, p_…, known_of_user, known_of_item of each cell."""
        users, items = paired(users, items)
        said = self._answers(users, items, histories, times)
        indices = self.catalogue.indices(items)
        means = means_of(said.probabilities, self._values)
        chances = calibrated(said.probabilities, self._values, self.bundle.calibration)
        return pl.DataFrame(
            {
                "user": frames.id_series(users, texts=self.users.are_texts),
                "item": frames.item_series(self.items, items, indices),
                "title": frames.title_series(self.bundle.context, indices),
                **frames.distribution_columns(chances, means, self.scale),
                "known_of_user": said.known_of_user,
                "known_of_item": said.known_of_item,
            }
        )

    # -- all items ----------------------------------------------------------------------------

    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        n: int = 10,
        exclude_seen: bool = True,
        rank: Rank = "expected",
        threshold: float | None = None,
        quantile: float | None = None,
        min_ratings: int | None = None,
    ) -> pl.DataFrame:
        """The n best items, for known users or for one person's history.

        rank says what best is: "expected", the highest expected rating; "at_least", the highest
        chance of a rating of `threshold` or more (a rating in the upper quarter of the scale if
        not given); "quantile", the highest such quantile of the rating: a low one (0.2, the
        default) is careful, a high one adventurous. Items with fewer than min_ratings known
        ratings are left out (None: `default_min_ratings`; 0: none are).

        Columns user (not for a history), rank, item, title, score (what it is ranked by),
        prediction, std, p_…, known_of_user, known_of_item, and hidden: how many more items could
        be listed but for min_ratings. Of equal scores the item of the lower id comes first.
        """
        raws, indices, rows = self._people(users, history)
        by, length = rank_by(rank, threshold, quantile, self.scale), _whole("n", n, 1)
        lists = self._rankings(indices, rows, by, length, exclude_seen, min_ratings)
        return frames.list_frame(self.bundle.context, raws, lists)

    def ranked(
        self,
        user: Any = None,
        *,
        history: History | None = None,
        n: int = 10,
        exclude_seen: bool = True,
        rank: Rank = "expected",
        threshold: float | None = None,
        quantile: float | None = None,
        min_ratings: int | None = None,
    ) -> Ranking:
        """As recommend, for one person and as arrays: for a service that writes its own answers."""
        _, indices, rows = self._people(None if user is None else [user], history)
        by, length = rank_by(rank, threshold, quantile, self.scale), _whole("n", n, 1)
        return self._rankings(indices, rows, by, length, exclude_seen, min_ratings)[0]

    @once
    def default_min_ratings(self) -> int:
        """How many ratings an item needs to be recommended, if min_ratings is not given."""
        return default_min_ratings(self._known.of_all_items)

    def _rankings(
        self,
        indices: IntArray,
        rows: list[Row],
        by: RankBy,
        n: int,
        exclude_seen: bool,
        min_ratings: int | None,
    ) -> list[Ranking]:
        least = self.default_min_ratings if min_ratings is None else min_ratings
        least = _whole("min_ratings", least, 0)
        counts = self._known.of_all_items
        enough = counts >= least
        lines = self._known.scores(rows, indices, leave_out=not exclude_seen)
        of_users = self._of_users(indices, rows)
        found = []
        for row, of_user, scores in zip(rows, of_users, lines, strict=True):
            allowed = np.ones(len(counts), bool)
            if exclude_seen:
                allowed[row.columns] = False
            hidden = int((allowed & ~enough).sum())
            top = best(scores, allowed & enough, n, by, self.bundle.calibration)
            found.append(Ranking(*top, counts[top.items], of_user, hidden, least))
        return found

    # -- titles -------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> pl.DataFrame:
        """Items whose titles are nearest to a text: item, title, known_of_item, distance.

        Case, accents, typos and "The" are forgiven; the last word may be unfinished. Of equally
        near ones the item with more ratings comes first.
        """
        found, distance = self.catalogue.search(text, _whole("limit", limit, 1))
        return pl.DataFrame(
            {
                "item": frames.id_series(self.items.table[found], texts=self.items.are_texts),
                "title": frames.title_series(self.bundle.context, found),
                "known_of_item": self._known.of_items(found),
                "distance": distance,
            }
        )

    def match(self, title: str, year: int | None = None) -> Any:
        """The raw id of the item that a title from elsewhere means; None if that is not certain."""
        at = self.catalogue.match(title, year)
        return None if at is None else self.items.raw(at)

    # -- why ----------------------------------------------------------------------------------

    def explain(
        self, *, item: Any, user: Any = None, history: History | None = None
    ) -> pl.DataFrame:
        """How each known rating moved the prediction of one item, the strongest first.

        User-based, and side "both": a line for each rating of the person: item, title, rating,
        prediction, what it would be `without` that rating, and the difference `change`.
        Item-based: a line for each level at which others rated the item: rating, count,
        prediction, `without` all of these, `change`, and `mean_change` of leaving out just one.
        """
        _, indices, rows = self._people(None if user is None else [user], history)
        at = self.catalogue.index(item)
        if at < 0:
            raise PredictionError(f"item {item!r} is unknown to the model; nothing moves it")
        if history is None and indices[0] < 0:
            raise PredictionError(
                f"user {user!r} is unknown to the model, so no rating moved the prediction; "
                "give history= to explain it for a new person"
            )
        if self.bundle.side == "item":
            return by_level(self._known, row_of(self._known.rows, at), int(indices[0]))
        return by_item(self._known, rows[0], int(indices[0]), at)

    # -- shared -------------------------------------------------------------------------------

    def _answers(
        self, users: Any, items: Any, histories: Mapping[Any, History] | None, times: Any
    ) -> Answers:
        if self.bundle.knows_time or times is not None:
            indices = self.catalogue.indices(items)
            return timed_answers(self._known, self.users, users, indices, histories, times)
        people = {name: self.person(history) for name, history in (histories or {}).items()}
        if not self.bundle.has_context and not all(user in people for user in users):
            self._require_context()
        return answers(self._known, self.users, users, self.catalogue.indices(items), people)

    def _people(self, users: Any, history: History | None) -> tuple[Any, IntArray, list[Row]]:
        """Raw ids (None for a history), indices, and the items that each rated."""
        if (users is None) == (history is None):
            raise PredictionError("give either users or a history, and not both")
        if self.bundle.knows_time:
            raise PredictionError(
                "this model knows time: it predicts given ratings at given times, and makes no "
                "lists or explanations; train one without time features for these"
            )
        if history is not None:
            person = self.person(history)
            return None, np.array([-1]), [Row(person.items, person.levels)]
        self._require_context()
        raws, _ = listed(users)
        indices = self.users.indices(raws)
        rows = [row_of(self._known.by_user, user) for user in indices.tolist()]
        return raws, indices, rows

    def _of_users(self, indices: IntArray, rows: list[Row]) -> list[int]:
        """How many ratings the answers for these people rest on."""
        if self.bundle.side == "item":
            return [int(count) for count in self._known.of_users(indices)]
        return [len(row.columns) for row in rows]

    def _require_user_based(self) -> None:
        if self.bundle.side == "item":
            raise PredictionError(
                "this model is item-based: it knows the users of its training data only and takes "
                'no history of another person; train one with side="user" (on the command line: '
                "--side user) for that"
            )

    def _require_context(self) -> None:
        if not self.bundle.has_context:
            instead = "give a history, or use" if self.bundle.side == "user" else "use"
            raise PredictionError(
                "this model was saved without the ratings that it conditions on, so it knows no "
                f"user and nothing about anyone; {instead} a copy saved with its context"
            )


def _whole(name: str, given: Any, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < least:
        raise PredictionError(f"{name} (={given!r}) must be a whole number of at least {least}")
    return int(given)
