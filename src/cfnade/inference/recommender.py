"""Top-n lists and similar items of a model, by its ranking options."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from annotated_types import Ge

from cfnade.calibration.per_user import Calibrator
from cfnade.exceptions import PredictionError
from cfnade.implicit.base import ScoreArray
from cfnade.inference.baseline import Baseline
from cfnade.inference.catalog import Catalog
from cfnade.inference.item_filters import ItemFilters
from cfnade.inference.objectives import FloatArray
from cfnade.inference.query import Entities
from cfnade.inference.ranking_options import RankingOptions
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
    InteractionRanker,
    Ranker,
    RatingRanker,
    even_step,
    filled,
    rankings,
    with_picks,
)
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.validation import check_scalar


class Recommender:
    """Ranks the items of a model for users."""

    def __init__(self, scorer: Scorer, calibrator: Calibrator, catalog: Catalog) -> None:
        self._scorer, self._calibrator = scorer, calibrator
        self.filters = ItemFilters(scorer, catalog)

    def recommend(
        self, users: Entities, options: RankingOptions, *, equal_batches: bool = False
    ) -> TopN:
        """Return the lists of users.

        Args:
            users: Known and new users.
            options: Resolved options.
            equal_batches: Rank all batches with the same number of users, the last one repeated.
                Matrix products of other sizes may have other last bits; with this, a list does not
                depend on the other users.
        """
        lengthened = options.n * LONGER if options.diversity else options.n
        ranker = self._ranker(options, lengthened)
        step = even_step(ranker) if equal_batches else None
        users = users if step is None else filled(users, step)
        lists = rankings(ranker, self._scorer, users, step)
        if options.diversity:
            top = varied(
                lists.top,
                options.n,
                self.item_vectors,
                options.diversity,
                chances=options.rank_by != "prediction",
            )
            lists = lists.of_top(top, self._scorer)
        if not options.uses_interactions:
            return lists
        return with_picks(lists, self._scorer, users, left_out=options.exclude_seen)

    def _ranker(self, options: RankingOptions, n: int) -> Ranker:
        model = self._scorer.fitted
        objective = options.objective(model.context.scale)
        parts, candidates = (self._scorer, self._calibrator), self.filters.candidates(options)
        if options.personalization is not None:
            objective = replace(
                objective,
                personalization=options.personalization,
                averages=self.baseline @ model.context.scale.array(),
            )
        only_liked = options.balance == 1 and model.predicts_ratings
        if not options.uses_interactions or only_liked:
            return RatingRanker(*parts, objective, n, candidates)
        assert model.interaction_model is not None
        assert options.balance is not None
        return InteractionRanker(
            *parts,
            model.interaction_model,
            objective,
            options.balance,
            n,
            candidates,
            options.popularity_penalty,
        )

    @locked_cached_property
    def baseline(self) -> FloatArray:
        """Rating frequencies of each item: the prediction for users without ratings. (M, K)."""
        return Baseline(self._scorer.fitted).frequencies()

    def similar(self, item: int, n: int) -> pl.DataFrame:
        """Return the items that are most similar to one."""
        n = check_scalar("n", n, int, Ge(1), error=PredictionError)
        model = self._scorer.fitted.interaction_model
        if model is not None:
            return similar_by_picks(self._scorer, model, item, n)
        return similar_by_vectors(self._scorer, self.item_vectors, item, n)

    @locked_cached_property
    def item_vectors(self) -> ScoreArray:
        """A vector of unit length for each item, (M, D)."""
        model = self._scorer.fitted.interaction_model
        vectors = None if model is None else model.item_vectors()
        return unit_vectors(self._scorer.fitted) if vectors is None else vectors
