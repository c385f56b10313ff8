"""Predictor: raw ids, titles and histories in, distributions and lists out.

Probabilities are calibrated, which keeps their mean. A rating that is known is predicted from the
other ratings, never from itself. What the model has never met follows the rule of unseen.py; the
columns known_of_user and known_of_item, 0 there, tell.
A Predictor does not change, apart from what it computes once and keeps, under a lock: any number of
threads may ask the same one. Questions about a few people run serially on the thread that asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

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
from cfnade.inference import refusals, results
from cfnade.inference.active_learning import Interview
from cfnade.inference.baseline import Baseline
from cfnade.inference.catalog import Catalog, IdIndex, listed, paired
from cfnade.inference.explain import explanation
from cfnade.inference.histories import (
    History,
    NewItems,
    UserHistory,
    parse_history,
    parse_new_items,
    user_entities,
)
from cfnade.inference.objectives import How
from cfnade.inference.query import Entities, Query
from cfnade.inference.ranking_options import Wishes
from cfnade.inference.results import Predictions, UserTopN
from cfnade.inference.scorer import Scorer, means_of
from cfnade.inference.unknown_ids import Unknown, check_unknown, with_unknown
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import option
from cfnade.utils.validation import check_scalar

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PIECE = 1 << 18
"""So many pairs of new users are answered at once."""


class Beside(TypedDict, total=False):
    """What Predictor.predict and its like take beside users and items."""

    histories: Mapping[Any, History] | None
    new_items: NewItems | None
    times: Any
    unknown: Unknown | None


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
        self._wishes = Wishes(self._scorer, self._calibrator, self.catalog)

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
        refusals.require_histories(self.fitted)
        if isinstance(history, UserHistory):
            return history
        return parse_history(history, self.catalog, self.scale)

    def user_entities(self, user: Any = None, *, history: History | None = None) -> Entities:
        """Return one user of the training data, or a new one, as a query has them."""
        return self._one(user, history)

    def new_items(self, given: NewItems | None) -> dict[Any, Entities]:
        """Read the ratings of new items, to use them often."""
        if given:
            refusals.require_context(self.fitted)
        return parse_new_items(given, self.catalog, self.users, self.scale)

    # -- given cells --------------------------------------------------------------------------

    def predict_proba(self, users: Any, items: Any, **beside: Unpack[Beside]) -> FloatArray:
        """The distribution of each (user, item), over the scale's values. Returns (n, K).

        A single user goes with all items, and the other way round; items are ids or titles.
        histories gives people by any name; where users contains that name, their history counts
        and nothing else. new_items does the same for items: {name: {user id: stars}}, what known
        users said of it so far. A model that knows time needs the times of the ratings, whole
        seconds since 1970, one for all or one for each, and takes neither. `unknown` says what
        happens to ids that the model does not know: "mean" (the default) predicts means, "nan"
        NaN, "raise" raises an error, None predicts means with a warning.
        """
        cells = paired(users, items)
        return self._cells(*cells, beside, honest=True).probabilities

    def predict(self, users: Any, items: Any, **beside: Unpack[Beside]) -> FloatArray:
        """The expected rating of each (user, item), in stars. Returns (n,)."""
        cells = paired(users, items)
        return self._cells(*cells, beside, honest=False).predictions

    def predict_frame(self, users: Any, items: Any, **beside: Unpack[Beside]) -> pl.DataFrame:
        """user, item, title, prediction, std, p_…, known_of_user, known_of_item of each cell."""
        cells = paired(users, items)
        answers = self._cells(*cells, beside, honest=True)
        return results.cell_frame(self.fitted.context, (self.users, self.items), cells, answers)

    def predicted(
        self,
        items: IntArray,
        user: Any = None,
        *,
        history: History | None = None,
        times: Any = None,
    ) -> Predictions:
        """As predict_frame, for one person, of items by index and as arrays: for a service."""
        refusals.require_ratings(self.fitted)
        refusals.check_who(user, history)
        if history is None:
            refusals.check_times(self.fitted, None, times)
            users = np.full(len(items), self.users.index(user))
            return self._stored_pairs(users, items, times)
        refusals.require_lists(self.fitted)
        person = user_entities([self.person(history)], self.fitted.context)
        zeros = np.zeros(len(items), np.int64)
        query = Query.of_users(self.fitted.context, person, zeros, items, serial=True)
        return self._answer(query)

    def predicted_of_new(
        self, item: Entities, user: Any = None, *, history: History | None = None
    ) -> Predictions:
        """The same of a new item, which `new_items` read: one pair."""
        refusals.require_ratings(self.fitted)
        refusals.check_who(user, history)
        refusals.check_times(self.fitted, None, None, new_items=[item])
        if history is None:
            refusals.require_context(self.fitted)
            users = self._scorer.stored_users(self.users.indices([user]))
        else:
            users = user_entities([self.person(history)], self.fitted.context)
        zero = np.zeros(1, np.int64)
        return self._answer(Query(self.fitted.context, users, item, zero, zero))

    def _cells(self, users: Any, items: Any, beside: Beside, *, honest: bool) -> Predictions:
        """Of users and items by raw id, or by a name in what is given. If honest, calibrated."""
        refusals.check_names("predict", beside, Beside)
        refusals.require_ratings(self.fitted)
        histories, given = beside.get("histories"), beside.get("new_items")
        times = beside.get("times")
        refusals.check_times(self.fitted, histories, times, given)
        check_unknown(unknown := beside.get("unknown", "mean"))
        people = {name: self.person(history) for name, history in (histories or {}).items()}
        new_items = self.new_items(given) if given else {}
        if not people and not new_items:
            user, item = self.users.indices(users), self._indices(items)
            answers = self._stored_pairs(user, item, times, honest=honest)
            return with_unknown(answers, (users, items), (user < 0, item < 0), unknown)
        new_user, new_item = _places_in(people, users), _places_in(new_items, items)
        user, item = np.full(len(new_user), -1), np.full(len(new_item), -1)
        stored_users, stored_items = np.flatnonzero(new_user < 0), np.flatnonzero(new_item < 0)
        user[stored_users] = self.users.indices([users[i] for i in stored_users])
        item[stored_items] = self._indices([items[i] for i in stored_items])
        if len(stored_users) or new_items:
            refusals.require_context(self.fitted)
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
                        own = Entities.joined(list(new_items.values()))
                        query = replace(query, items=own, item=new_item[some])
                    parts.append((some, self._answer(query, honest=honest)))
        order = np.argsort(np.concatenate([some for some, _ in parts]), kind="stable")
        columns = zip(*(answers for _, answers in parts), strict=True)
        answers = Predictions(*(np.concatenate(column)[order] for column in columns))
        masks = (user < 0) & (new_user < 0), (item < 0) & (new_item < 0)
        return with_unknown(answers, (users, items), masks, unknown)

    def _stored_pairs(
        self, users: IntArray, items: IntArray, times: Any = None, *, honest: bool = True
    ) -> Predictions:
        """Of users and items of the data, by index."""
        refusals.require_context(self.fitted)
        if times is not None and np.ndim(times) == 0:
            times = np.full(len(users), times)
        return self._answer(Query.of_pairs(self.fitted.context, users, items, times), honest=honest)

    def _answer(self, query: Query, *, honest: bool = True) -> Predictions:
        probabilities = self._scorer.rating_probabilities(query)
        means = means_of(probabilities, self.scale.array())  # which calibration does not move
        if honest:
            probabilities = self._calibrator.apply(probabilities, query)
        items, new = query.item_index, query.items.index[:1] < 0
        known = (
            query.items.counts()[query.item] if new.all() else self._scorer.known_of("item", items)
        )
        of_users = query.users.counts()[query.user]
        return Predictions(items, means, probabilities, of_users, known)

    def _indices(self, items: Any) -> IntArray:
        return self.catalog.indices(listed(items)[0])

    # -- all items ----------------------------------------------------------------------------

    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        histories: Mapping[Any, History] | None = None,
        n: int = 10,
        exclude_seen: bool = True,
        **how: Unpack[How],
    ) -> pl.DataFrame:
        """The n best items, for known users, one person's history, or many people's by any name.

        rank says what best is: "picked", the highest chance of being picked next and rated
        `threshold` or more, for a model that knows what people pick, where it is the default
        (`taste` weighs the two: 0 is picks alone, 0.5 both, 1 ratings alone); "expected", the
        highest expected rating; "at_least", the highest chance of a rating of `threshold` or more
        (a rating in the upper quarter of the scale if not given); "quantile", the highest such
        quantile of the rating: a low one (0.2, the default) is careful, a high one adventurous.

        items and without name items that alone may be listed, and that may not; genres the genres
        of which an item must have one, where the data name them. diversity, from 0 to 1, is how
        much unlike each other listed items should be. Items with fewer than min_ratings known
        ratings are left out (None: `default_min_ratings`, but none by "picked"; 0: none are).

        Columns user (not for a history), rank, item, title, score (what it is ranked by), pick
        (the chance to be picked next, if it is by "picked"), prediction, std, p_… (if the data have
        ratings), known_of_user, known_of_item, and hidden: how many more items could be listed but
        for min_ratings. Of equal scores the item of the lower id comes first.
        """
        raws, people = self._people(users, history, histories)
        lists = self._wishes.rankings(people, n, exclude_seen, how)
        picks = self._wishes.tells_picks(how)
        return results.list_frame(self.fitted.context, raws, lists, picks=picks)

    def lists_of(
        self,
        users: Any = None,
        people: Sequence[UserHistory] | None = None,
        *,
        n: int = 10,
        exclude_seen: bool = True,
        **how: Unpack[How],
    ) -> pl.DataFrame:
        """As recommend, of known users or people that were read; `user` is a place among them.

        Nobody's list depends on who else is asked about, not in its last bits either.
        """
        _, asked = self._people(users, None, None if people is None else dict(enumerate(people)))
        lists = self._wishes.rankings(asked, n, exclude_seen, how, evenly=True)
        places, picks = np.arange(len(lists.hidden)), self._wishes.tells_picks(how)
        frame = results.list_frame(self.fitted.context, places, lists, picks=picks)
        return frame.filter(pl.col("user") < len(asked))

    def ranked(
        self,
        user: Any = None,
        *,
        history: History | None = None,
        n: int = 10,
        exclude_seen: bool = True,
        **how: Unpack[How],
    ) -> UserTopN:
        """As recommend, for one person and as arrays: for a service that writes its own answers."""
        lists = self._wishes.rankings(self._one(user, history), n, exclude_seen, how)
        counts = int(lists.known_of_users[0]), int(lists.hidden[0]), self._wishes.least(how)
        top = lists.top
        picks = top.picks if self._wishes.tells_picks(how) else None
        return UserTopN(*top[1:5], lists.known_of_items, *counts, picks)

    @property
    def item_counts(self) -> IntArray:
        """How many ratings of each item are known. Returns (items,)."""
        return self._scorer.known("item")

    @property
    def default_min_ratings(self) -> int:
        """How many ratings an item needs to be recommended, if min_ratings is not given."""
        return self._wishes.usual_least

    @property
    def genres(self) -> dict[str, Any]:
        """The items (M,) of each genre that the data name."""
        return self._wishes.genres

    def similar_items(self, item: Any, *, n: int = 10) -> pl.DataFrame:
        """The items most like one: rank, item, title, similarity, known_of_item.

        With a model that knows what people pick, those that somebody who picked this item picks
        more than others do, and `similarity` is how many times more; else the cosine of vectors.
        """
        return self._wishes.similar(self.catalog.known(item), n)

    def ask(
        self, user: Any = None, *, history: History | None = None, n: int = 10, without: Any = ()
    ) -> pl.DataFrame:
        """What to ask somebody next: the items whose ratings would tell most of them.

        Columns rank, item, title, reduction, known_of_item. reduction is by how much the answer is
        expected to reduce what is unknown of the person (1: all of what is unknown of a stranger),
        given answers to those before and how many people can answer at all. It is null, and the
        best known come first, where no side of the model says what it knows of people. `without`
        names items that are not asked about.
        """
        return self.interview.frame(self._one(user, history), n, self._indices(without))

    @locked_cached_property
    def interview(self) -> Interview:
        """Who knows what to ask next, by index."""
        return Interview(self._scorer)

    @locked_cached_property
    def usual(self) -> FloatArray:
        """How people rated each item, whoever asks: what is said to a stranger. Returns (M, K)."""
        return Baseline(self.fitted).frequencies()

    @property
    def item_vectors(self) -> ScoreArray:
        """A vector of unit length for each item. Returns (items, D)."""
        return self._wishes.likeness

    # -- titles -------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> pl.DataFrame:
        """Items whose titles are nearest to a text: item, title, known_of_item, distance.

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
        of: Literal["rating", "pick"] | None = None,
    ) -> pl.DataFrame:
        """How each known rating moved the prediction of one item, the strongest first.

        of="pick" (the default where there are no ratings) explains the chance to be picked next: a
        line for each thing that is known of the person: item, title, rating, pick, the chance
        `without` it, and `times`, how many times likelier it made the item.
        of="rating" explains the rating.
        A model that reads what people rated: a line for each rating of the person: item, title,
        rating, prediction, what it would be `without` that rating, and the difference `change`.
        One that reads items alone: a line for each level at which others rated the item: rating,
        count, prediction, `without` all of these, and the difference `change`.
        """
        who, index = self._one(user, history), self.catalog.known(item)
        if history is None and who.index[0] < 0:
            raise PredictionError(
                f"user {user!r} is unknown to the model, so no rating moved the prediction; "
                f"give {option('history')} to explain it for a new person"
            )
        of_pick = refusals.explains_picks(self.fitted, of)
        return explanation(self._scorer, who, index, of_pick=of_pick)

    # -- shared -------------------------------------------------------------------------------

    def _one(self, user: Any, history: History | None) -> Entities:
        """The one person that a question is about."""
        return self._people(None if user is None else [user], history)[1].take(np.zeros(1, int))

    def _people(
        self, users: Any, history: History | None, histories: Mapping[Any, History] | None = None
    ) -> tuple[Any, Entities]:
        """Raw ids (names of histories, None for a single one), and who they are."""
        refusals.check_who(users, history, histories)
        refusals.require_lists(self.fitted)
        context = self.fitted.context
        if histories is not None:
            read = [self.person(one) for one in histories.values()]
            return [*histories], user_entities(read, context)
        if history is not None:
            return None, user_entities([self.person(history)], context)
        refusals.require_context(self.fitted)
        raws, _ = listed(users)
        return raws, self._scorer.stored_users(self.users.indices(raws))


def _places_in(named: Mapping[Any, Any], names: Any) -> IntArray:
    """Which of those named each name is, -1 for none. Returns (n,)."""
    places = {name: place for place, name in enumerate(named)}
    plain = (raw.item() if isinstance(raw, np.generic) else raw for raw in names)
    return np.array([places.get(raw, -1) for raw in plain], np.int64)
