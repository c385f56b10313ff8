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
from cfnade.exceptions import ModelError, PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit.base import ScoreArray
from cfnade.inference import results
from cfnade.inference.active_learning import Interview
from cfnade.inference.catalog import Catalog, IdIndex, listed, paired
from cfnade.inference.explain import Target, explanation
from cfnade.inference.histories import (
    History,
    NewItems,
    UserHistory,
    check_users,
    parse_history,
    parse_new_items,
    user_entities,
)
from cfnade.inference.objectives import means_of
from cfnade.inference.query import Entities, Query
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

PIECE = 1 << 18
"""So many pairs of new users are answered at once."""


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
        return parse_history(history, self.catalog, self.scale)

    def user_entities(self, user: Any = None, *, history: History | None = None) -> Entities:
        """Return one user of the training data, or a new one, as a query has them."""
        return self._one(user, history)

    def new_items(self, given: NewItems | None) -> dict[Any, Entities]:
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
        if history is None:
            self._check_timestamp(timestamp)
            users = np.full(len(items), self.users.index(user))
            return self._stored_pairs(users, items, timestamp)
        self.fitted.require("lists")
        person = user_entities([self.person(history)], self.fitted.context)
        zeros = np.zeros(len(items), np.int64)
        query = Query.of_users(self.fitted.context, person, zeros, items, serial=True)
        return self._answer(query)

    def predicted_of_new(
        self, item: Entities, user: Any = None, *, history: History | None = None
    ) -> Predictions:
        """The same of a new item, which `new_items` read: one pair."""
        self.fitted.require("ratings")
        check_users(user, history)
        self._check_timestamp(new_items=True)
        if history is None:
            self.fitted.require("context")
            users = self._scorer.stored_users(self.users.indices([user]))
        else:
            users = user_entities([self.person(history)], self.fitted.context)
        zero = np.zeros(1, np.int64)
        return self._answer(Query(self.fitted.context, users, item, zero, zero))

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
        check_unknown(unknown)
        people = {name: self.person(history) for name, history in (histories or {}).items()}
        things = self.new_items(new_items) if new_items else {}
        if not people and not things:
            user, item = self.users.indices(users), self._indices(items)
            answers = self._stored_pairs(user, item, timestamp, calibrated=calibrated)
            return with_unknown(answers, (users, items), (user < 0, item < 0), unknown)
        new_user, new_item = _places_in(people, users), _places_in(things, items)
        user, item = np.full(len(new_user), -1), np.full(len(new_item), -1)
        stored_users, stored_items = np.flatnonzero(new_user < 0), np.flatnonzero(new_item < 0)
        user[stored_users] = self.users.indices([users[i] for i in stored_users])
        item[stored_items] = self._indices([items[i] for i in stored_items])
        if len(stored_users) or things:
            self.fitted.require("context")
        context = self.fitted.context
        person = user_entities(list(people.values()), context)
        parts = []
        for is_new_user in (False, True):
            for is_new_item in (False, True):
                kind = ((new_user >= 0) == is_new_user) & ((new_item >= 0) == is_new_item)
                places = np.flatnonzero(kind)
                which = new_user[places] if is_new_user else user[places]
                places = places[np.argsort(which, kind="stable")]
                for first in range(0, len(places), PIECE):  # flat memory, however many there are
                    some = places[first : first + PIECE]
                    query = Query.of_pairs(context, user[some], item[some])
                    if is_new_user:
                        query = replace(query, users=person, user=new_user[some])
                    if is_new_item:
                        own = Entities.joined(list(things.values()))
                        query = replace(query, items=own, item=new_item[some])
                    parts.append((some, self._answer(query, calibrated=calibrated)))
        order = np.argsort(np.concatenate([some for some, _ in parts]), kind="stable")
        columns = zip(*(answers for _, answers in parts), strict=True)
        answers = Predictions(*(np.concatenate(column)[order] for column in columns))
        masks = (user < 0) & (new_user < 0), (item < 0) & (new_item < 0)
        return with_unknown(answers, (users, items), masks, unknown)

    def _stored_pairs(
        self, users: IntArray, items: IntArray, times: Any = None, *, calibrated: bool = True
    ) -> Predictions:
        """Of users and items of the data, by index."""
        self.fitted.require("context")
        if times is not None and np.ndim(times) == 0:
            times = np.full(len(users), times)
        return self._answer(
            Query.of_pairs(self.fitted.context, users, items, times), calibrated=calibrated
        )

    def _answer(self, query: Query, *, calibrated: bool = True) -> Predictions:
        probabilities = self._scorer.rating_probabilities(query)
        means = means_of(probabilities, self.scale.array())  # which calibration does not move
        if calibrated:
            probabilities = self._calibrator.apply(probabilities, query)
        items, new = query.item_index, query.items.index[:1] < 0
        known = (
            query.items.counts_of(query.item) if new.all() else self._scorer.known_of("item", items)
        )
        of_users = query.users.counts_of(query.user)
        return Predictions(items, means, probabilities, of_users, known)

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
        users, resolved = self._one(user, history), self._resolved(options)
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
        if history is None and who.index[0] < 0:
            raise PredictionError(
                f"user {user!r} is unknown to the model, so no rating moved the prediction; "
                f"give {option('history')} to explain it for a new person"
            )
        return explanation(self._scorer, who, index, target)

    # -- shared -------------------------------------------------------------------------------

    def _one(self, user: Any, history: History | None) -> Entities:
        """The one person that a question is about."""
        return self._people(None if user is None else [user], history)[1].take(np.zeros(1, int))

    def _people(
        self, users: Any, history: History | None, histories: Mapping[Any, History] | None = None
    ) -> tuple[Any, Entities]:
        """Raw ids (names of histories, None for a single one), and who they are."""
        check_users(users, history, histories)
        self.fitted.require("lists")
        context = self.fitted.context
        if histories is not None:
            read = [self.person(one) for one in histories.values()]
            return [*histories], user_entities(read, context)
        if history is not None:
            return None, user_entities([self.person(history)], context)
        self.fitted.require("context")
        raws, _ = listed(users)
        return raws, self._scorer.stored_users(self.users.indices(raws))


def _places_in(named: Mapping[Any, Any], names: Any) -> IntArray:
    """Which of those named each name is, -1 for none. Returns (n,)."""
    places = {name: place for place, name in enumerate(named)}
    plain = (raw.item() if isinstance(raw, np.generic) else raw for raw in names)
    return np.array([places.get(raw, -1) for raw in plain], np.int64)
