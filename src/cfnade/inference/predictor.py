"""Predictor: raw ids, titles and histories in, arrays out. The estimator and the service use it.

Probabilities are calibrated, which keeps their mean. A known rating is predicted from the other
ratings, never from itself. For unknown users and items, predictions are means (baseline.py), and
n_user_ratings and n_item_ratings are 0.

A Predictor does not change, apart from what it computes once and caches under a lock: any number of
threads may use it. Queries about few users run serially on the calling thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from annotated_types import Ge

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.checkpoint import load
from cfnade.checkpoint.validate import validate_model
from cfnade.exceptions import ModelError, PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit.base import ScoreArray
from cfnade.inference import similarity
from cfnade.inference.active_learning import ItemsToRate, Uncertainty, suggest_items_to_rate
from cfnade.inference.baseline import Baseline
from cfnade.inference.catalog import Catalog, IdIndex, as_ids, pair_ids
from cfnade.inference.explain import Target, explain
from cfnade.inference.histories import (
    History,
    NewItems,
    UserHistory,
    parse_history,
    parse_new_items,
    user_entities,
)
from cfnade.inference.query import BoolArray, Entities, Query
from cfnade.inference.ranking_options import (
    RankingOptions,
    allowed_items,
    default_min_ratings,
    genre_masks,
)
from cfnade.inference.results import Predictions, TopN, item_columns
from cfnade.inference.scorer import Scorer, expected_ratings
from cfnade.inference.top_n import Candidates, top_n
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import count_of, option
from cfnade.utils.validation import check_choice, check_scalar

FloatArray = npt.NDArray[np.float64]

Unknown = Literal["mean", "nan", "raise"]
"""For unknown users and items: predict means, predict NaN, or raise an error."""


class Predictor:
    """Predictions, recommendations and explanations of a fitted model."""

    def __init__(self, fitted: FittedModel, *, is_valid: bool = False) -> None:
        """Create a predictor; the parts of the model are validated unless they are known to fit."""
        if not is_valid:
            try:
                validate_model(fitted, weights=True)
            except ModelError as error:
                raise PredictionError(f"the model cannot be used: {error}") from error
        self.fitted = fitted
        self.scale = fitted.context.scale
        self.users = IdIndex("user", fitted.context.user_ids)
        self.items = IdIndex("item", fitted.context.item_ids)
        self.scorer, self._calibrator = Scorer(fitted), Calibrator(fitted)
        self.catalog = Catalog(self.items, fitted.context, lambda: self.item_counts)

    def __reduce__(self) -> tuple[type[Predictor], tuple[FittedModel]]:
        """Pickle the model alone; other processes create caches of their own."""
        return Predictor, (self.fitted,)

    @classmethod
    def load(cls, folder: str | Path) -> Predictor:
        """Load a checkpoint folder."""
        return cls(load(folder), is_valid=True)

    # -- users and items ----------------------------------------------------------------------

    def parse_history(self, history: History) -> UserHistory:
        """Check the ratings of a new user and look up their items."""
        self.fitted.require("histories")
        if self.fitted.needs_times:
            raise _untimed_error("histories")
        return parse_history(history, self.catalog, self.scale)

    def parse_new_items(self, new_items: NewItems) -> dict[Any, Entities]:
        """Check the ratings of new items and look up their users."""
        self.fitted.require("context")
        if self.fitted.needs_times:
            raise _untimed_error("new items")
        return parse_new_items(new_items, self.catalog, self.users, self.scale)

    def resolve_users(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        histories: Mapping[Any, History] | None = None,
    ) -> tuple[Any, Entities]:
        """Return users of the training data, a new one, or several new ones.

        Returns:
            The ids, or the names of histories, or None for a single history; and the users.
        """
        count = sum(argument is not None for argument in (users, history, histories))
        if count == 0:
            raise PredictionError(
                f"give users, or {option('history')} (or histories=) for new users"
            )
        if count > 1:
            raise PredictionError("give either users or a history, not both")
        if users is not None:
            self.fitted.require("context")
            ids, _ = as_ids(users)
            return ids, self.scorer.stored_users(self.users.indices(ids))
        if histories is None:
            assert history is not None
            return None, user_entities([self.parse_history(history)], self.fitted.context)
        parsed = [self.parse_history(ratings) for ratings in histories.values()]
        return list(histories), user_entities(parsed, self.fitted.context)

    def resolve_user(self, user: Any = None, *, history: History | None = None) -> Entities:
        """Return one user of the training data, or a new one."""
        return self.resolve_users(None if user is None else [user], history=history)[1]

    def require_known(self, user: Any) -> None:
        """Raise an error for a user who is not in the training data."""
        if self.users.index(user) < 0:
            raise PredictionError(
                f"user {user!r} is unknown to the model and has no ratings; give "
                f"{option('history')} for a new user"
            )

    # -- predictions --------------------------------------------------------------------------

    def predict(
        self,
        users: Any,
        items: Any,
        *,
        histories: Mapping[Any, History] | None = None,
        new_items: NewItems | None = None,
        timestamp: Any = None,
        unknown: Unknown | None = "mean",
        calibrated: bool = True,
    ) -> Predictions:
        """Predict the rating of each pair of a user and an item.

        Args:
            users: Raw ids, or names in `histories`; or one for all items.
            items: Raw ids or titles, or names in `new_items`; or one for all users.
            histories: New users by name, which replaces an equal id.
            new_items: New items by name: {name: {user id: rating}}.
            timestamp: Seconds since 1970, one for all pairs or one for each, if the model needs it.
            unknown: What to return for unknown ids. None: means, with a warning.
            calibrated: Whether probabilities are calibrated; expected ratings are the same.
        """
        self.fitted.require("ratings")
        if unknown is not None:
            check_choice("unknown", unknown, get_args(Unknown), error=PredictionError)
        user_ids, item_ids = pair_ids(users, items)
        histories = {} if histories is None else histories
        new_users = {name: self.parse_history(ratings) for name, ratings in histories.items()}
        new = self.parse_new_items(new_items) if new_items else {}
        user, new_user = _find(user_ids, new_users, self.users.indices)
        item, new_item = _find(item_ids, new, self.catalog.indices)
        if new or not (new_user >= 0).all() or not new_users:
            self.fitted.require("context")
        query = Query.of_pairs(self.fitted.context, user, item, self._check_timestamp(timestamp))
        if len(query) and (new_users or new):
            queries = self._queries_with_new(query, new_users, new_user, new, new_item)
            parts = [self._predict_query(part, calibrated=calibrated) for _, part in queries]
            predictions = Predictions.concat(parts, np.concatenate([p for p, _ in queries]))
        else:
            predictions = self._predict_query(query, calibrated=calibrated)
        predictions = replace(predictions, user_ids=user_ids, item_ids=item_ids)
        unknown_user, unknown_item = (user < 0) & (new_user < 0), (item < 0) & (new_item < 0)
        return _apply_unknown(predictions, unknown_user, unknown_item, unknown)

    def predict_items(
        self, user: Entities, items: IntArray, timestamp: int | None = None
    ) -> Predictions:
        """Predict the ratings of items by one user, by index."""
        self.fitted.require("ratings")
        times = self._check_timestamp(timestamp)
        zeros, is_serial = np.zeros(len(items), np.int64), times is None
        query = Query.of_users(self.fitted.context, user, zeros, items, times, serial=is_serial)
        return self._predict_query(query)

    def predict_new_item(self, user: Entities, item: Entities) -> Predictions:
        """Predict the rating of a new item, from `parse_new_items`, by one user."""
        self.fitted.require("ratings")
        zero = np.zeros(1, np.int64)
        return self._predict_query(Query(self.fitted.context, user, item, zero, zero))

    def _predict_query(self, query: Query, *, calibrated: bool = True) -> Predictions:
        probabilities = self.scorer.rating_probabilities(query)
        means = expected_ratings(probabilities, self.scale.array())  # calibration keeps them
        if calibrated:
            probabilities = self._calibrator.apply(probabilities, query)
        items = query.item_index
        if query.items.index[0] < 0:  # new items
            n_item_ratings = query.items.counts_of(query.item)
        else:
            n_item_ratings = self.scorer.rating_counts("item", items)
        n_user_ratings = query.users.counts_of(query.user)
        return Predictions(
            self.fitted.context, items, means, probabilities, n_user_ratings, n_item_ratings
        )

    def _queries_with_new(
        self,
        query: Query,
        histories: Mapping[Any, UserHistory],
        new_user: IntArray,
        new_items: Mapping[Any, Entities],
        new_item: IntArray,
    ) -> list[tuple[IntArray, Query]]:
        """Split a query into pairs of stored and of new users and items, with their places.

        new_user and new_item (n,) are places in the mappings, or -1 for a user or item in `query`.
        """
        kinds, queries = 2 * (new_user >= 0) + (new_item >= 0), []
        for kind in np.unique(kinds).tolist():
            places = np.flatnonzero(kinds == kind)
            part = query.take(places)
            if kind & 2:
                users = user_entities(list(histories.values()), self.fitted.context)
                part = replace(part, users=users, user=new_user[places])
            if kind & 1:
                items = Entities.concat(list(new_items.values()))
                part = replace(part, items=items, item=new_item[places])
            queries.append((places, part))
        return queries

    def _check_timestamp(self, timestamp: Any) -> Any:
        if timestamp is not None and not self.fitted.needs_times:
            raise PredictionError(
                "the predictions of this model do not depend on time; omit timestamp"
            )
        return timestamp

    # -- lists and explanations ---------------------------------------------------------------

    def recommend(
        self, users: Entities, options: RankingOptions, *, equal_batches: bool = False
    ) -> TopN:
        """Return the best items for users.

        Args:
            users: Known and new users.
            options: Options of the lists.
            equal_batches: Whether a list must not depend on the other users, not even in its last
                bits.
        """
        self.fitted.require("lists")
        options = options.resolve(self.fitted)
        min_ratings = options.min_ratings
        if min_ratings is None:
            # Items with few interactions hardly get into lists that are ranked by interactions.
            is_liked = options.rank_by != "interaction" or options.balance == 1
            min_ratings = self.default_min_ratings if is_liked else 0
        genres = self.genres if options.genres is not None else {}
        candidates = Candidates(
            allowed_items(options, self.catalog, genres),
            self.scorer.rating_counts("item"),
            min_ratings,
            options.exclude_seen,
        )
        averages = None
        if options.personalization is not None:
            averages = self.baseline @ self.scale.array()
        return top_n(
            self.scorer,
            self._calibrator,
            users,
            options,
            candidates,
            averages=averages,
            item_vectors=self.item_vectors if options.diversity else None,
            equal_batches=equal_batches,
        )

    def explain(self, user: Entities, item: int, target: Target | None = None) -> pl.DataFrame:
        """Return the effect of each of a user's ratings on the prediction of an item."""
        self.fitted.require("lists")
        return explain(self.scorer, user, item, target)

    def similar_items(self, item: int, n: int = 10) -> pl.DataFrame:
        """Return the items most similar to an item."""
        by_interactions = self.fitted.interaction_model is not None
        vectors = None if by_interactions else self.item_vectors
        return similarity.similar_items(self.scorer, vectors, item, n)

    def suggest_items_to_rate(self, user: Entities, n: int, exclude_items: IntArray) -> ItemsToRate:
        """Return the items whose ratings would tell most about a user."""
        self.fitted.require("lists")
        return suggest_items_to_rate(self.scorer, self._uncertainty, user, n, exclude_items)

    def search(self, text: str, n: int = 10) -> pl.DataFrame:
        """Return the items with the closest titles: item, title, n_item_ratings, distance."""
        n = check_scalar("n", n, int, Ge(1), error=PredictionError)
        items, distances = self.catalog.search(text, n)
        columns = item_columns(self.fitted.context, items)
        counts = self.scorer.rating_counts("item", items)
        return pl.DataFrame({**columns, "n_item_ratings": counts, "distance": distances})

    # -- tables -------------------------------------------------------------------------------

    @property
    def item_counts(self) -> IntArray:
        """Number of known ratings of each item, (M,)."""
        return self.scorer.rating_counts("item")

    @locked_cached_property
    def default_min_ratings(self) -> int:
        """Ratings that an item needs to be recommended, unless `min_ratings` is given."""
        return default_min_ratings(self.item_counts)

    @locked_cached_property
    def genres(self) -> dict[str, BoolArray]:
        """The items (M,) of each genre in the data, in alphabetical order."""
        return genre_masks(self.fitted.context)

    @locked_cached_property
    def baseline(self) -> FloatArray:
        """Rating frequencies of each item: the prediction for users without ratings, (M, K)."""
        return Baseline(self.fitted).frequencies()

    @locked_cached_property
    def item_vectors(self) -> ScoreArray:
        """A vector of length 1 for each item, (M, D)."""
        return similarity.item_vectors(self.fitted)

    @locked_cached_property
    def _uncertainty(self) -> Uncertainty | None:
        return Uncertainty.of_model(self.fitted)


def _untimed_error(noun: str) -> PredictionError:
    return PredictionError(
        f"the predictions of this model depend on time, and {noun} have none; train a model "
        "without timestamps for that"
    )


def _find(
    ids: Any, new: Mapping[Any, Any], indices: Callable[[Any], IntArray]
) -> tuple[IntArray, IntArray]:
    """Return the index of each id in the model, and its place among new names; -1 for none."""
    if not new:
        return indices(ids), np.full(len(ids), -1)
    places = {name: place for place, name in enumerate(new)}
    names = (raw.item() if isinstance(raw, np.generic) else raw for raw in ids)
    new_places = np.array([places.get(name, -1) for name in names], np.int64)
    stored = np.flatnonzero(new_places < 0)
    index = np.full(len(new_places), -1)
    index[stored] = indices([ids[place] for place in stored])
    return index, new_places


def _apply_unknown(
    predictions: Predictions,
    unknown_user: BoolArray,
    unknown_item: BoolArray,
    unknown: Unknown | None,
) -> Predictions:
    """Return predictions as `unknown` says; the masks (n,) are True for unknown users and items."""
    affected = unknown_user | unknown_item
    if unknown == "mean" or not affected.any():
        return predictions
    if unknown == "nan":
        means, probabilities = predictions.predictions.copy(), predictions.probabilities.copy()
        means[affected] = probabilities[affected] = np.nan
        return replace(predictions, predictions=means, probabilities=probabilities)
    subjects = [
        *_describe_unknown("user", predictions.user_ids, unknown_user),
        *_describe_unknown("item", predictions.item_ids, unknown_item),
    ]
    subject = f"unknown to the model: {' and '.join(subjects)}"
    mean, nan = option("unknown", "mean"), option("unknown", "nan")
    if unknown == "raise":
        raise PredictionError(f"{subject}; {mean} predicts means, {nan} returns NaN")
    warnings.warn(
        f"{subject}; {count_of(int(affected.sum()), 'prediction')} based on means. Use {mean} to "
        f'accept this, or {nan} or "raise"',
        stacklevel=5,  # the caller of CFNADE.predict and others
    )
    return predictions


def _describe_unknown(noun: str, ids: Any, mask: BoolArray) -> list[str]:
    unknown = (ids[place] for place in np.flatnonzero(mask).tolist())
    names = dict.fromkeys(raw.item() if isinstance(raw, np.generic) else raw for raw in unknown)
    if len(names) <= 1:
        return [f"{noun} {name!r}" for name in names]
    return [f"{count_of(len(names), noun)} (such as {next(iter(names))!r})"]
