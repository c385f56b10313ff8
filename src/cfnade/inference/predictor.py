"""Predictor: raw ids, titles and histories in, distributions and lists out.

Probabilities are calibrated, which keeps their mean. A rating that is known is predicted from the
other ratings, never from itself. What the model has never met follows the rule of unseen.py; the
columns n_user_ratings and n_item_ratings, 0 there, tell.
A Predictor does not change, apart from what it computes once and keeps, under a lock: any number of
threads may ask the same one. Questions about a few people run serially on the thread that asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from annotated_types import Ge

from cfnade.calibration.per_user import Calibrator
from cfnade.checkpoint import load
from cfnade.checkpoint.validate import validate_model
from cfnade.components.base import What, Who
from cfnade.exceptions import ModelError, PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit.base import ScoreArray
from cfnade.inference import results
from cfnade.inference.active_learning import Interview
from cfnade.inference.catalog import Catalog, IdIndex, listed, paired
from cfnade.inference.cells import Cells, CellsAsked
from cfnade.inference.explain import Target, explanation
from cfnade.inference.histories import (
    History,
    NewItems,
    UserHistory,
    check_users,
    parse_history,
    parse_new_items,
)
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.recommender import Recommender
from cfnade.inference.results import Predictions, TopN, UserTopN
from cfnade.inference.scorer import Scorer
from cfnade.inference.unknown_ids import Unknown, check_unknown, with_unknown
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import option
from cfnade.utils.validation import check_scalar

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Predictor:
    """Answers questions from a fitted model; nothing else is needed."""

    def __init__(self, fitted: FittedModel, *, trusted: bool = False) -> None:
        """Of a model whose parts fit together: asked, unless whoever gives it has."""
        if not trusted:
            try:
                validate_model(fitted, weights=True)
            except ModelError as error:
                raise PredictionError(f"the model cannot be used: {error}") from error
        self.fitted = fitted
        self.scale = fitted.context.scale
        self.users = IdIndex("user", fitted.context.user_ids)
        self.items = IdIndex("item", fitted.context.item_ids)
        self._scorer, self._calibrator = Scorer(fitted), Calibrator(fitted)
        self._cells_of = Cells(self._scorer, self.users, self._calibrator)
        raw = Calibrator(replace(fitted, calibration=None, calibration_of_new=None))
        self._raw_cells = Cells(self._scorer, self.users, raw)
        self.catalog = Catalog(self.items, fitted.context, lambda: self._scorer.known("item"))
        """The items by id and title."""
        self._recommender = Recommender(self._scorer, self._calibrator, self.catalog)

    def __reduce__(self) -> tuple[type[Predictor], tuple[FittedModel]]:
        """For other processes: the model alone, because locks and what they guard stay here."""
        return Predictor, (self.fitted,)

    @property
    def scorer(self) -> Scorer:
        """What it asks: users and items by index."""
        return self._scorer

    @classmethod
    def load(cls, folder: str | Path) -> Predictor:
        """From a checkpoint folder."""
        return cls(load(folder), trusted=True)

    def person(self, history: History) -> UserHistory:
        """Read a history once, to use it often and to see which of its items are `unknown`."""
        self.fitted.require("histories")
        if isinstance(history, UserHistory):
            return history
        return parse_history(history, self.catalog, self.scale)

    def who(self, user: Any) -> Who:
        """A user of the training data, with what they rated."""
        self.fitted.require("context")
        return self._scorer.person(int(self.users.indices([user])[0]))

    def new_items(self, given: NewItems | None) -> dict[Any, What]:
        """Read the ratings of new items, to use them often."""
        if given:
            self.fitted.require("context")
        return parse_new_items(given, self.catalog, self.users, self.scale)

    # -- given cells --------------------------------------------------------------------------

    def predict_proba(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = "mean",
    ) -> FloatArray:
        """Return the distribution of each (user, item) over the values of the scale, (n, K).

        Args:
            users: Raw ids, or one for all items.
            items: Raw ids or titles, or one for all users.
            histories: New users by any name: where `users` contains it, this history alone counts.
            new_items: New items by any name: {name: {user id: rating}}.
            timestamp: Seconds since 1970, one for all or one for each, if the model needs it.
            unknown: What is returned for unknown ids; None: means, with a warning.
        """
        pairs = paired(users, items)
        return self._cells(pairs, histories, new_items, timestamp, unknown).probabilities

    def predict(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = "mean",
    ) -> FloatArray:
        """Return the expected rating of each (user, item), (n,). Arguments as `predict_proba`."""
        pairs = paired(users, items)
        answers = self._cells(pairs, histories, new_items, timestamp, unknown, calibrated=False)
        return answers.predictions

    def predict_frame(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = "mean",
    ) -> pl.DataFrame:
        """Return user, item, title, prediction, std, p_…, n_user_ratings and n_item_ratings.

        Arguments as `predict_proba`.
        """
        pairs = paired(users, items)
        answers = self._cells(pairs, histories, new_items, timestamp, unknown)
        return results.cell_frame(self.fitted.context, (self.users, self.items), pairs, answers)

    def predicted(
        self,
        items: IntArray,
        user: Any = None,
        *,
        history: History | None = None,
        timestamp: Any = None,
    ) -> Predictions:
        """As predict_frame, for one person, of items by index and as arrays: for a service."""
        self.fitted.require("ratings")
        check_users(user, history)
        if history is not None:
            self.fitted.require("lists")
            return self._cells_of.history(self.person(history), items)
        self._check_timestamp(timestamp)
        users = np.full(len(items), self.users.index(user))
        return self._cells_of.users(users, items, timestamp)

    def predicted_of_new(
        self, item: What, user: Any = None, *, history: History | None = None
    ) -> Predictions:
        """The same of a new item, which `new_items` read: one cell."""
        self.fitted.require("ratings")
        check_users(user, history)
        self._check_timestamp(new_items=True)
        if history is not None:
            return self._cells_of.pair(self.person(history), item)
        return self._cells_of.new_item(item, self.users.indices([user]))

    def _cells(
        self,
        pairs: tuple[Any, Any],
        histories: Mapping[Any, History] | None,
        new_items: NewItems | None,
        timestamp: Any,
        unknown: Unknown | None,
        *,
        calibrated: bool = True,
    ) -> Predictions:
        """Of users and items by raw id, or by a name in what is given."""
        users, items = pairs
        self.fitted.require("ratings")
        self._check_timestamp(timestamp, histories=bool(histories), new_items=bool(new_items))
        people = {name: self.person(history) for name, history in (histories or {}).items()}
        things = self.new_items(new_items)
        cells = self._cells_of if calibrated else self._raw_cells
        check_unknown(unknown)
        if not people and not things:
            user, item = self.users.indices(users), self._indices(items)
            answers = cells.users(user, item, timestamp)
            return with_unknown(answers, (users, items), (user < 0, item < 0), unknown)
        asked = CellsAsked.of((users, items), people, things, self._indices)
        stored = np.flatnonzero(asked.people < 0)
        strangers = np.zeros(len(asked.people), bool)
        strangers[stored] = self.users.indices([users[place] for place in stored.tolist()]) < 0
        masks = strangers, (asked.items < 0) & (asked.things < 0)
        answers = cells.mixed(asked, list(people.values()), list(things.values()))
        return with_unknown(answers, (users, items), masks, unknown)

    def _check_timestamp(
        self, timestamp: Any = None, *, histories: bool = False, new_items: bool = False
    ) -> None:
        """Refuse times that do not matter, and what has none where they do."""
        if not self.fitted.needs_times and timestamp is not None:
            raise PredictionError(
                "the predictions of this model do not depend on time; omit timestamp"
            )
        for name, is_given in (("histories", histories), ("new items", new_items)):
            if self.fitted.needs_times and is_given:
                raise PredictionError(
                    f"the predictions of this model depend on time, and {name} have none; train "
                    "one without timestamps for that"
                )

    def _indices(self, items: Any) -> IntArray:
        return self.catalog.indices(listed(items)[0])

    # -- all items ----------------------------------------------------------------------------

    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        histories: Mapping[Any, History] | None = None,
        **options: Any,
    ) -> pl.DataFrame:
        """Return the best items of known users, of a new one, or of several new ones.

        Args:
            users: Raw ids.
            history: The ratings of a new user.
            histories: The ratings of several new users, by any name.
            **options: Fields of `RankingOptions`.

        Returns:
            A frame with the columns user (not for a history), rank, item, title, score (what items
            are ranked by), interaction_probability (if that is part of it), prediction, std, p_…
            (if the data have ratings), n_user_ratings, n_item_ratings, and n_hidden_items: items
            that are missing because of `min_ratings`. Items of equal score are in order of id.
        """
        raws, people = self._people(users, history, histories)
        resolved = self._resolved(options)
        lists = self._recommender.recommend(people, resolved)
        return self._list_frame(raws, lists, resolved)

    def lists_of(
        self,
        users: Any = None,
        people: Sequence[UserHistory] | None = None,
        **options: Any,
    ) -> pl.DataFrame:
        """As recommend, of known users or people that were read; `user` is a place among them.

        Nobody's list depends on who else is asked about, not in its last bits either.
        """
        _, asked = self._people(users, None, None if people is None else dict(enumerate(people)))
        resolved = self._resolved(options)
        lists = self._recommender.recommend(asked, resolved, equal_batches=True)
        frame = self._list_frame(np.arange(len(lists.n_hidden_items)), lists, resolved)
        return frame.filter(pl.col("user") < len(asked))

    def _resolved(self, options: Mapping[str, Any]) -> RankingOptions:
        return RankingOptions.from_dict(options).resolve(self.fitted)

    def _list_frame(self, users: Any, lists: TopN, options: RankingOptions) -> pl.DataFrame:
        interactions = options.uses_interactions
        return results.list_frame(self.fitted.context, users, lists, interactions=interactions)

    def ranked(
        self, user: Any = None, *, history: History | None = None, **options: Any
    ) -> UserTopN:
        """As recommend, for one person and as arrays: for a service that writes its own answers."""
        users, resolved = [self._one(user, history)], self._resolved(options)
        lists = self._recommender.recommend(users, resolved)
        top, min_ratings = lists.top, self._recommender.filters.min_ratings(resolved)
        return UserTopN(
            *top[1:5],
            lists.n_item_ratings,
            int(lists.n_user_ratings[0]),
            int(lists.n_hidden_items[0]),
            min_ratings,
            top.picks if resolved.uses_interactions else None,
        )

    @property
    def item_counts(self) -> IntArray:
        """How many ratings of each item are known. Returns (items,)."""
        return self._scorer.known("item")

    @property
    def default_min_ratings(self) -> int:
        """How many ratings an item needs to be recommended, if min_ratings is not given."""
        return self._recommender.filters.default_min_ratings

    @property
    def genres(self) -> dict[str, Any]:
        """The items (M,) of each genre that the data name."""
        return self._recommender.filters.genres

    def similar_items(self, item: Any, *, n: int = 10) -> pl.DataFrame:
        """The items most like one: rank, item, title, similarity, n_item_ratings.

        With a model that knows what people pick, those that somebody who picked this item picks
        more than others do, and `similarity` is how many times more; else the cosine of vectors.
        """
        return self._recommender.similar(self.catalog.known(item), n)

    def suggest_items_to_rate(
        self,
        user: Any = None,
        *,
        history: History | None = None,
        n: int = 10,
        exclude_items: Any = (),
    ) -> pl.DataFrame:
        """Return the items whose ratings would tell most about a user.

        Columns rank, item, title, reduction and n_item_ratings. `reduction` is the expected
        reduction of what is unknown of the user (1: all that is unknown of a user without ratings),
        given ratings of the items before, and weighted by how many users can rate the item at all.
        It is null, and the items with most ratings come first, where no component of the model has
        a measure of uncertainty. Items in `exclude_items` are left out.
        """
        return self.interview.frame(self._one(user, history), n, self._indices(exclude_items))

    @locked_cached_property
    def interview(self) -> Interview:
        """Who knows what to ask next, by index."""
        return Interview(self._scorer)

    @property
    def baseline(self) -> FloatArray:
        """Rating frequencies of each item, which are predicted for users without ratings. (M, K)"""
        return self._recommender.baseline

    @property
    def item_vectors(self) -> ScoreArray:
        """A vector of unit length for each item. Returns (items, D)."""
        return self._recommender.item_vectors

    # -- titles -------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> pl.DataFrame:
        """Items whose titles are nearest to a text: item, title, n_item_ratings, distance.

        Case, accents, typos and "The" are forgiven; the last word may be unfinished. Of equally
        near ones the item with more ratings comes first.
        """
        most = check_scalar("limit", limit, int, Ge(1), error=PredictionError)
        return results.search_frame(self._scorer, *self.catalog.search(text, most))

    def match(self, title: str, year: int | None = None) -> Any:
        """The raw id of the item that a title from elsewhere means; None if that is not certain."""
        index = self.catalog.match(title, year)
        return None if index is None else self.items.raw(index)

    # -- why ----------------------------------------------------------------------------------

    def explain(
        self,
        *,
        item: Any,
        user: Any = None,
        history: History | None = None,
        target: Target | None = None,
    ) -> pl.DataFrame:
        """Return how each known rating changes the prediction of one item, strongest first.

        With target "interaction" (the default without ratings) a row for each item of the user:
        item, title, rating, interaction_probability, the probability `without` the item, and
        `lift`, their ratio. With "rating" (the default) a row for each rating of the user: item,
        title, rating, prediction, the prediction `without` that rating, and the difference
        `change`. An item-based model has a row for each level at which others rated the item:
        rating, count, prediction, `without` all of these, `change`, and `mean_change` of leaving
        out one.
        """
        who, index = self._one(user, history), self.catalog.known(item)
        if history is None and who.user < 0:
            raise PredictionError(
                f"user {user!r} is unknown to the model, so no rating moved the prediction; "
                f"give {option('history')} to explain it for a new person"
            )
        return explanation(self._scorer, who, index, target)

    # -- shared -------------------------------------------------------------------------------

    def _one(self, user: Any, history: History | None) -> Who:
        """The one person that a question is about."""
        return self._people(None if user is None else [user], history)[1][0]

    def _people(
        self, users: Any, history: History | None, histories: Mapping[Any, History] | None = None
    ) -> tuple[Any, list[Who]]:
        """Raw ids (names of histories, None for a single one), and who they are."""
        check_users(users, history, histories)
        self.fitted.require("lists")
        if histories is not None:
            return [*histories], [self.person(one).who() for one in histories.values()]
        if history is not None:
            return None, [self.person(history).who()]
        self.fitted.require("context")
        raws, _ = listed(users)
        return raws, [self._scorer.person(user) for user in self.users.indices(raws).tolist()]
