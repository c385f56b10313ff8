"""Scores of a fitted model on ratings that it has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade import metrics
from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset, match_ids
from cfnade.exceptions import PredictionError
from cfnade.fitted import FittedModel
from cfnade.metrics import FloatArray
from cfnade.personal import Calibrator
from cfnade.scorer import Scorer

KNOWN = (0, 1, 5, 20, 100)
"""Where the buckets of "how much is known" begin; the last one has no end."""


@dataclass(frozen=True)
class Bucket:
    """Test ratings of the users (or items) with low..high ratings in the context."""

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
class Scores:
    """Errors are in stars, likelihoods in nats; a name with `raw` is before calibration.

    The mean is the same before and after it, so there is one RMSE. The absolute error is that of
    the calibrated distribution's median, which is best for it.
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
    """How many of the test's users the model knows nothing of."""
    unseen_items: int
    unseen_ratings: int
    """Test ratings of such a user or item."""
    by_user: tuple[Bucket, ...]
    by_item: tuple[Bucket, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts, for JSON."""
        return asdict(self) | {
            name: [{"known": str(bucket)} | asdict(bucket) for bucket in getattr(self, name)]
            for name in ("by_user", "by_item")
        }


def evaluate(fitted: FittedModel, test: Dataset, *, unseen: str = "mean") -> Scores:
    """Score the predictions of test ratings, none of which may be in the model's context.

    Users and items are matched by their ids; unknown ones follow the rule for what training did not
    see (unseen.py; "paper" for reproduction) and are counted.
    """
    if not fitted.rates:
        raise PredictionError(
            "this model was trained on interactions, which have no ratings to score; score its "
            "lists with evaluate_lists() (on the command line: --lists)"
        )
    scorer = Scorer(fitted, unseen=unseen)
    users, items = cells_asked(scorer, test)
    values, scale = test.values, fitted.context.scale.array()
    raw = scorer.probabilities(users, items, test.times)  # (n, K)
    calibrated = Calibrator(fitted).of_cells(raw, users, items)
    squares = np.square(values - raw @ scale)  # (n,)
    return Scores(
        n=len(test),
        rmse=float(np.sqrt(squares.mean())),
        mae_of_medians=metrics.mae(values, metrics.medians(calibrated, scale)),
        nll=metrics.nll(calibrated, test.levels),
        nll_raw=metrics.nll(raw, test.levels),
        calibration_error=metrics.calibration_error(calibrated, test.levels),
        calibration_error_raw=metrics.calibration_error(raw, test.levels),
        rps=metrics.rps(calibrated, test.levels, scale),
        rps_raw=metrics.rps(raw, test.levels, scale),
        **_unseen(scorer, test, users, items),
        by_user=tuple(_buckets(scorer.known_of("user", users), squares)),
        by_item=tuple(_buckets(scorer.known_of("item", items), squares)),
    )


def cells_asked(scorer: Scorer, test: Dataset) -> tuple[IntArray, IntArray]:
    """The test's users and items as the model numbers them; -1 where it does not know them.

    A test that the model cannot be asked, or whose answers it knows, is an error.
    """
    users, items = _indices_in(scorer.fitted, test)
    _require_hidden(scorer, test, users, items)
    return users, items


def _indices_in(fitted: FittedModel, test: Dataset) -> tuple[IntArray, IntArray]:
    context = fitted.context
    if not fitted.has_context:
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
    users = _translation("user", test.user_ids, context.user_ids)[test.users]
    items = _translation("item", test.item_ids, context.item_ids)[test.items]
    return users, items


def _translation(kind: str, ids: npt.NDArray[Any], known: npt.NDArray[Any]) -> IntArray:
    """For each id its place among the known ones, -1 if it is not there. Both rise."""
    if ids is known:
        return np.arange(len(ids))
    if ids.dtype.kind != known.dtype.kind:
        words = {True: "text", False: "whole numbers"}
        raise PredictionError(
            f"{kind} ids of the test are {words[ids.dtype.kind == 'O']}, those of the model are "
            f"{words[known.dtype.kind == 'O']}; load the test as the training data was loaded"
        )
    return match_ids(known, ids)


def _require_hidden(scorer: Scorer, test: Dataset, users: IntArray, items: IntArray) -> None:
    """The question must not hold the answer."""
    leaked = np.flatnonzero(scorer.known_levels(users, items) >= 0)
    if len(leaked):
        first = leaked[0]
        raise PredictionError(
            f"{len(leaked):,} of {len(test):,} test ratings are among the ratings that the model "
            f"conditions on, first user {test.user_ids[test.users[first]]} item "
            f"{test.item_ids[test.items[first]]}; evaluate on ratings held out from training"
        )


def _unseen(scorer: Scorer, test: Dataset, users: IntArray, items: IntArray) -> dict[str, int]:
    """Users and items of which the model knows nothing: how many ids and test ratings."""
    user, item = scorer.unknown(users, items)
    return {
        "unseen_users": len(np.unique(test.users[user])),
        "unseen_items": len(np.unique(test.items[item])),
        "unseen_ratings": int((user | item).sum()),
    }


def _buckets(known: IntArray, squares: FloatArray) -> Iterator[Bucket]:
    """Squared errors (n,) by how much is known."""
    highs = [*(low - 1 for low in KNOWN[1:]), None]
    for low, high in zip(KNOWN, highs, strict=True):
        inside = (known >= low) & (known <= (np.inf if high is None else high))
        n = int(inside.sum())
        yield Bucket(low, high, n, float(np.sqrt(squares[inside].mean())) if n else None)
