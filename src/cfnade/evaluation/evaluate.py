"""Scores of a fitted model on test data: of its predicted ratings and of its ranked lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.data.dataset import Dataset, match_ids
from cfnade.data.scale import Scale
from cfnade.data.split_protocols import choose_positions
from cfnade.evaluation import rating_metrics
from cfnade.evaluation.ranking_metrics import (
    METRICS,
    BoolArray,
    Coverage,
    Estimate,
    FloatArray,
    mean_estimate,
    novelty,
    ranked_hits,
)
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.predictor import Predictor
from cfnade.inference.query import Query
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.scorer import Scorer
from cfnade.utils.text import option
from cfnade.utils.validation import check_scalar

BUCKET_BOUNDS = (0, 1, 5, 20, 100)
"""Numbers of ratings at which the buckets begin; the last one has no end."""
DEFAULT_K = (10, 20, 100)
_BATCH_SIZE = 200_000  # list entries that are evaluated together, about
_SEED = 0  # of the sample of users: every model gets the same one


# -- ratings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bucket:
    """Test ratings of the users (or items) with low..high ratings in the model's context."""

    low: int
    high: int | None
    n: int
    rmse: float | None
    """None without ratings."""

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.high == self.low else f"{self.low}–{self.high}"


@dataclass(frozen=True)
class RatingScores:
    """Errors are in rating units, likelihoods in nats; names with `raw` are before calibration.

    Calibration does not change the mean, so there is one RMSE. The absolute error is that of the
    median of the calibrated distribution, which minimizes it.
    """

    n: int
    rmse: float
    mae_of_medians: float
    nll: float
    nll_raw: float
    calibration_error: float
    calibration_error_raw: float
    rps: float
    rps_raw: float
    unseen_users: int
    """Test users without ratings in the model."""
    unseen_items: int
    unseen_ratings: int
    """Test ratings of such a user or item."""
    by_user: tuple[Bucket, ...]
    by_item: tuple[Bucket, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and dicts, for JSON."""
        return asdict(self) | {
            name: [{"known": str(bucket)} | asdict(bucket) for bucket in getattr(self, name)]
            for name in ("by_user", "by_item")
        }


def evaluate(
    fitted: FittedModel, test: Dataset, *, cold_start_rating: float | None = None
) -> RatingScores:
    """Score the predictions of test ratings.

    Args:
        fitted: A model of ratings, with its context.
        test: Ratings on the model's scale, none of which is in its context. Users and items are
            matched by id; unknown ones are counted.
        cold_start_rating: Predict this rating where no rating of the user, or none of the item,
            is known; the paper predicts 3. None: as the model predicts.
    """
    if not fitted.predicts_ratings:
        raise PredictionError(
            "this model was trained on interactions, which have no ratings to score; score its "
            "lists with evaluate_ranking()"
        )
    scorer = Scorer(fitted)
    users, items = match_test(scorer, test)
    values, scale = test.values, fitted.context.scale.array()
    raw = scorer.probabilities(users, items, test.times)  # (n, K)
    calibrated = Calibrator(fitted).apply(raw, Query.of_pairs(fitted.context, users, items))
    if cold_start_rating is not None:
        user, item = _without_ratings(scorer, users, items)
        certain = _certain(cold_start_rating, fitted.context.scale)
        raw, calibrated = raw.copy(), calibrated.copy()
        raw[user | item] = calibrated[user | item] = certain
    squares = np.square(values - raw @ scale)  # (n,)
    return RatingScores(
        n=len(test),
        rmse=float(np.sqrt(squares.mean())),
        mae_of_medians=rating_metrics.mae(values, rating_metrics.medians(calibrated, scale)),
        nll=rating_metrics.nll(calibrated, test.levels),
        nll_raw=rating_metrics.nll(raw, test.levels),
        calibration_error=rating_metrics.calibration_error(calibrated, test.levels),
        calibration_error_raw=rating_metrics.calibration_error(raw, test.levels),
        rps=rating_metrics.rps(calibrated, test.levels, scale),
        rps_raw=rating_metrics.rps(raw, test.levels, scale),
        **_count_unseen(scorer, test, users, items),
        by_user=tuple(_buckets(scorer.rating_counts("user", users), squares)),
        by_item=tuple(_buckets(scorer.rating_counts("item", items), squares)),
    )


def _certain(rating: float, scale: Scale) -> FloatArray:
    """Return the distribution of one rating, (K,)."""
    if rating not in scale.values:
        raise PredictionError(
            f"cold_start_rating (={rating:g}) is not on the scale {scale} of the model"
        )
    return np.array([float(value == rating) for value in scale.values])


def match_test(
    scorer: Scorer, test: Dataset, *, repeats: bool = False
) -> tuple[IntArray, IntArray]:
    """Return the test's users and items by the model's index, -1 for unknown ones.

    Raise if the model cannot be evaluated on the test, or if its context holds test ratings, unless
    `repeats` are what is evaluated.
    """
    context = scorer.fitted.context
    if not scorer.fitted.has_context:
        raise PredictionError(
            "this model was saved without the ratings that it conditions on, so it cannot be "
            "evaluated; use the model as trained, or save it with its context"
        )
    if len(test) == 0:
        raise PredictionError("there are no ratings to evaluate on; give at least one")
    if test.scale.values != context.scale.values:
        raise PredictionError(
            f"the test ratings are on the scale {test.scale}, the model was trained on "
            f"{context.scale}; load the test with that scale"
        )
    users = _match_ids("user", test.user_ids, context.user_ids)[test.users]
    items = _match_ids("item", test.item_ids, context.item_ids)[test.items]
    if not repeats:
        _require_held_out(scorer, test, users, items)
    return users, items


def _match_ids(axis: str, ids: npt.NDArray[Any], model_ids: npt.NDArray[Any]) -> IntArray:
    """Return the place of each id among those of the model, -1 if it is missing. Both rise."""
    if ids is model_ids:
        return np.arange(len(ids))
    if ids.dtype.kind != model_ids.dtype.kind:
        words = {True: "text", False: "whole numbers"}
        raise PredictionError(
            f"{axis} ids of the test are {words[ids.dtype.kind == 'O']}, those of the model are "
            f"{words[model_ids.dtype.kind == 'O']}; load the test as the training data was loaded"
        )
    return match_ids(model_ids, ids)


def _require_held_out(scorer: Scorer, test: Dataset, users: IntArray, items: IntArray) -> None:
    leaked = np.flatnonzero(Query.of_pairs(scorer.fitted.context, users, items).user_levels >= 0)
    if len(leaked):
        first, again = leaked[0], option("exclude_seen", False)
        raise PredictionError(
            f"{len(leaked):,} of {len(test):,} test ratings are among the ratings that the model "
            f"conditions on, first user {test.user_ids[test.users[first]]} item "
            f"{test.item_ids[test.items[first]]}; evaluate on ratings held out from training"
            + (f", or rank repeats too with {again}" if test.implicit else "")
        )


def _count_unseen(
    scorer: Scorer, test: Dataset, users: IntArray, items: IntArray
) -> dict[str, int]:
    """Count the test's users, items and ratings of which the model has no ratings."""
    user, item = _without_ratings(scorer, users, items)
    return {
        "unseen_users": len(np.unique(test.users[user])),
        "unseen_items": len(np.unique(test.items[item])),
        "unseen_ratings": int((user | item).sum()),
    }


def _without_ratings(
    scorer: Scorer, users: IntArray, items: IntArray
) -> tuple[BoolArray, BoolArray]:
    """Return the pairs whose user, and whose item, has no rating in the model, both (n,)."""
    return scorer.rating_counts("user", users) == 0, scorer.rating_counts("item", items) == 0


def _buckets(n_ratings: IntArray, squares: FloatArray) -> Iterator[Bucket]:
    """Yield squared errors (n,) by the number of ratings of each user or item (n,)."""
    highs = [*(low - 1 for low in BUCKET_BOUNDS[1:]), None]
    for low, high in zip(BUCKET_BOUNDS, highs, strict=True):
        inside = (n_ratings >= low) & (n_ratings <= (np.inf if high is None else high))
        n = int(inside.sum())
        yield Bucket(low, high, n, float(np.sqrt(squares[inside].mean())) if n else None)


# -- ranked lists ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankingScores:
    """Scores of the lists of users with a relevant test item, one rated `threshold` or higher."""

    n_users: int
    n_skipped_users: int
    """Test users without a relevant item."""
    threshold: float | None
    """None for interactions, which are all relevant."""
    by_k: dict[int, dict[str, Estimate]]
    """Estimates by the number of ranks that count, then by metric."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and dicts, for JSON."""
        return asdict(self)


def evaluate_ranking(
    predictor: Predictor,
    test: Dataset,
    *,
    k: int | Sequence[int] = DEFAULT_K,
    threshold: float | None = None,
    max_users: int | None = None,
    exclude_seen: bool = True,
) -> RankingScores:
    """Score the lists that `recommend` returns to the test's users, of all items new to them.

    Items that `recommend` hides are ranked behind all others.

    Args:
        predictor: The model.
        test: Held-out ratings or interactions.
        k: How many ranks count, or several such numbers.
        threshold: Lowest rating of a relevant item; the upper quarter of the scale by default.
        max_users: Evaluate a sample of at most so many users, the same for every model.
        exclude_seen: False ranks known items as well, and the test may hold items that its users
            take up again.
    """
    ks = _check_k(k)
    threshold = _check_threshold(threshold, test)
    if max_users is not None:
        max_users = check_scalar("max_users", max_users, int, Ge(1), error=PredictionError)
    truth = _RelevantItems(predictor, test, threshold, repeats=not exclude_seen)
    users = np.flatnonzero(truth.n_relevant)
    if len(users) == 0:
        raise PredictionError(
            f"threshold (={threshold:g}): no test rating is that high, so no list can be right; "
            "give a lower one"
        )
    n_skipped = len(np.unique(test.users)) - len(users)
    if max_users is not None and max_users < len(users):
        users = users[choose_positions(len(users), max_users, (_SEED,))]
    by_k = _score_lists(predictor, truth, users, ks, exclude_seen)
    return RankingScores(len(users), n_skipped, None if test.implicit else threshold, by_k)


class _RelevantItems:
    """Relevant items of the test's users; users by the test's index, items by the model's."""

    def __init__(
        self, predictor: Predictor, test: Dataset, threshold: float, *, repeats: bool
    ) -> None:
        _, items = match_test(Scorer(predictor.fitted), test, repeats=repeats)
        # A little less, so that 0.1 + 0.2 is on the scale as 0.3.
        relevant = test.values >= threshold - 1e-9 * max(1.0, abs(threshold))
        self.user_ids = test.user_ids
        self.n_relevant = np.bincount(test.users[relevant], minlength=test.n_users)
        relevant &= items >= 0  # the model cannot list items that it does not know
        self._n_items = len(predictor.items.table)
        users = test.users[relevant].astype(np.int64)
        self._cells = np.sort(users * self._n_items + items[relevant])

    def contains(self, users: IntArray, items: IntArray) -> BoolArray:
        """Return which of the items (n, L) are relevant to the users (n,); False for -1."""
        cells = users[:, None] * self._n_items + items
        return (items >= 0) & (match_ids(self._cells, cells) >= 0)


class _ListBatch(NamedTuple):
    rows: IntArray  # (n,) places among the evaluated users
    items: IntArray  # (n, L) indices, -1 behind the end
    scores: FloatArray  # (n, L) NaN behind the end


def _score_lists(
    predictor: Predictor,
    truth: _RelevantItems,
    users: IntArray,
    ks: tuple[int, ...],
    exclude_seen: bool,
) -> dict[int, dict[str, Estimate]]:
    n, n_items = len(users), len(predictor.items.table)
    values = {k: {name: np.empty(n) for name in (*METRICS, "novelty")} for k in ks}
    coverage = {k: Coverage(n_items) for k in ks}
    ids, depth = truth.user_ids[users], min(max(ks), n_items)
    for batch in _list_batches(predictor, ids, np.arange(n), depth, exclude_seen):
        batch_users = users[batch.rows]
        n_relevant = truth.n_relevant[batch_users]
        hits = ranked_hits(batch.scores, truth.contains(batch_users, batch.items))
        for k, by_metric in values.items():
            for name, metric in METRICS.items():
                by_metric[name][batch.rows] = metric(hits, n_relevant, k)
            items = batch.items[:, :k]
            n_raters, n_users = predictor.item_counts, predictor.fitted.context.n_users
            by_metric["novelty"][batch.rows] = novelty(items, n_raters, n_users)
            coverage[k].add(batch.rows, items)
    return {
        k: {name: mean_estimate(per_user) for name, per_user in by_metric.items()}
        | {"coverage": coverage[k].estimate(n)}
        for k, by_metric in values.items()
    }


def _list_batches(
    predictor: Predictor, ids: Any, rows: IntArray, depth: int, exclude_seen: bool
) -> Iterator[_ListBatch]:
    """Yield lists of `depth` items in batches of users; longer ones where a tie would be cut."""
    size = max(1, _BATCH_SIZE // (depth + 1))
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        items, scores = _top_items(predictor, ids[batch], depth + 1, exclude_seen)
        cut = scores[:, depth] == scores[:, depth - 1]
        yield _ListBatch(batch[~cut], items[~cut], scores[~cut])
        if cut.any():
            yield from _list_batches(predictor, ids, batch[cut], 4 * depth, exclude_seen)


def _top_items(
    predictor: Predictor, ids: Any, n: int, exclude_seen: bool
) -> tuple[IntArray, FloatArray]:
    """Return the indices and scores of the n best items of each user, both (users, n)."""
    _, users = predictor.resolve_users(ids)
    top = predictor.recommend(users, RankingOptions(n=n, exclude_seen=exclude_seen))
    rank = np.arange(len(top.user)) - np.searchsorted(top.user, top.user)
    items, scores = np.full((len(ids), n), -1), np.full((len(ids), n), np.nan)
    items[top.user, rank], scores[top.user, rank] = top.items, top.scores
    return items, scores


def _check_k(k: Any) -> tuple[int, ...]:
    if not isinstance(k, Sequence):
        return (check_scalar("k", k, int, Ge(1), error=PredictionError),)
    if len(k) == 0 or isinstance(k, str):
        raise PredictionError(f"k (={k!r}) must be a whole number, or several as (10, 20, 100)")
    checked = (check_scalar("k", value, int, Ge(1), error=PredictionError) for value in k)
    return tuple(sorted(set(checked)))


def _check_threshold(threshold: Any, test: Dataset) -> float:
    if threshold is None:
        return test.scale.default_threshold
    low, high = test.scale.values[0], test.scale.values[-1]
    return check_scalar("threshold", threshold, float, Ge(low), Le(high), error=PredictionError)
