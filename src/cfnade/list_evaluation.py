"""Scores of a model's lists: what `recommend` gives people, against what they liked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset, match_ids
from cfnade.data.scale import usual_threshold
from cfnade.data.split_protocols import choose_positions
from cfnade.evaluation import cells_asked
from cfnade.exceptions import PredictionError
from cfnade.predictor import Predictor
from cfnade.ranking_metrics import (
    METRICS,
    BoolArray,
    Coverage,
    Estimate,
    FloatArray,
    mean_of,
    novelty,
    places,
)
from cfnade.scorer import Scorer
from cfnade.utils.validation import check_scalar

KS = (10, 20, 100)
_CELLS = 200_000
"""About how many places of lists are looked at together."""
_SEED = 0  # of the people who are asked: the same ones of every model


@dataclass(frozen=True)
class ListScores:
    """Lists of people with a test rating of `threshold` stars or more: of such they want to see."""

    people: int
    without: int
    """People in the test part who are not asked, for they have no such rating."""
    threshold: float | None
    """None where there are no ratings: everything picked is wanted."""
    at: dict[int, dict[str, Estimate]]
    """By the number of places that count, then by metric."""

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and dicts, for JSON."""
        return asdict(self)


def evaluate_lists(
    predictor: Predictor,
    test: Dataset,
    *,
    k: int | Sequence[int] = KS,
    threshold: float | None = None,
    people: int | None = None,
) -> ListScores:
    """Score what `recommend` lists first for the test's users, of all items not known of them.

    k is how many places count, or several such numbers; threshold the least rating of a liked item
    (the upper quarter of the scale if not given); people, if given, so many of them, drawn by a
    fixed seed. What recommend hides is listed behind everything else.
    """
    ks = _checked_k(k)
    threshold = _checked_threshold(threshold, test)
    if people is not None:
        people = check_scalar("people", people, int, Ge(1), error=PredictionError)
    truth = _Truth(predictor, test, threshold)
    asked = np.flatnonzero(truth.wanted)
    if len(asked) == 0:
        raise PredictionError(
            f"threshold (={threshold:g}): no test rating is that high, so no list can be right; "
            "give a lower one"
        )
    without = len(np.unique(test.users)) - len(asked)
    if people is not None and people < len(asked):
        asked = asked[choose_positions(len(asked), people, (_SEED,))]
    figures = _scores(predictor, truth, asked, ks)
    return ListScores(len(asked), without, None if test.implicit else threshold, figures)


class _Truth:
    """What the test's users liked; users by the test's index, items by the model's."""

    def __init__(self, predictor: Predictor, test: Dataset, threshold: float) -> None:
        _, items = cells_asked(Scorer(predictor.fitted), test)
        # A little less, so that 0.1 + 0.2 is on the scale as 0.3.
        liked = test.values >= threshold - 1e-9 * max(1.0, abs(threshold))
        self.user_ids = test.user_ids
        self.wanted = np.bincount(test.users[liked], minlength=test.n_users)
        liked &= items >= 0  # the model cannot list what it has never heard of
        self._n_items = len(predictor.items.table)
        self._cells = np.sort(test.users[liked].astype(np.int64) * self._n_items + items[liked])

    def liked(self, users: IntArray, items: IntArray) -> BoolArray:
        """Which of the items (n, L) in users' (n,) lists were liked; none where it is -1."""
        cells = users[:, None] * self._n_items + items
        return (items >= 0) & (match_ids(self._cells, cells) >= 0)


class _Lists(NamedTuple):
    people: IntArray  # (n,) places among those asked
    items: IntArray  # (n, L) indices, -1 behind the end
    scores: FloatArray  # (n, L) NaN there


def _scores(
    predictor: Predictor, truth: _Truth, asked: IntArray, ks: tuple[int, ...]
) -> dict[int, dict[str, Estimate]]:
    n, n_items = len(asked), len(predictor.items.table)
    values = {k: {name: np.empty(n) for name in (*METRICS, "novelty")} for k in ks}
    covered = {k: Coverage(n_items) for k in ks}
    ids, depth = truth.user_ids[asked], min(max(ks), n_items)
    for lists in _lists(predictor, ids, np.arange(n), depth):
        users = asked[lists.people]
        counts = truth.wanted[users]
        ranks = places(lists.scores, truth.liked(users, lists.items))
        for k, of in values.items():
            for name, metric in METRICS.items():
                of[name][lists.people] = metric(ranks, counts, k)
            shown = lists.items[:, :k]
            raters, people = predictor.item_counts, predictor.fitted.context.n_users
            of["novelty"][lists.people] = novelty(shown, raters, people)
            covered[k].add(lists.people, shown)
    return {
        k: {name: mean_of(each) for name, each in of.items()} | {"coverage": covered[k].estimate(n)}
        for k, of in values.items()
    }


def _lists(predictor: Predictor, ids: Any, people: IntArray, depth: int) -> Iterator[_Lists]:
    """Lists of so many places, some people at a time; longer ones where a tie would be cut."""
    each = max(1, _CELLS // (depth + 1))
    for start in range(0, len(people), each):
        some = people[start : start + each]
        items, scores = _asked(predictor, ids[some], depth + 1)
        torn = scores[:, depth] == scores[:, depth - 1]
        yield _Lists(some[~torn], items[~torn], scores[~torn])
        if torn.any():
            yield from _lists(predictor, ids, some[torn], 4 * depth)


def _asked(predictor: Predictor, ids: Any, n: int) -> tuple[IntArray, FloatArray]:
    """The n best items of each user by index, and their scores. Both (users, n)."""
    frame = predictor.recommend(ids, n=n)
    cells = np.searchsorted(ids, frame["user"].to_numpy()), frame["rank"].to_numpy() - 1
    items, scores = np.full((len(ids), n), -1), np.full((len(ids), n), np.nan)
    items[cells] = predictor.items.indices(frame["item"].to_numpy())
    scores[cells] = frame["score"].to_numpy()
    return items, scores


def _checked_k(k: Any) -> tuple[int, ...]:
    if not isinstance(k, Sequence):
        return (check_scalar("k", k, int, Ge(1), error=PredictionError),)
    if len(k) == 0 or isinstance(k, str):
        raise PredictionError(f"k (={k!r}) must be a whole number, or several as (10, 20, 100)")
    return tuple(sorted({check_scalar("k", one, int, Ge(1), error=PredictionError) for one in k}))


def _checked_threshold(threshold: Any, test: Dataset) -> float:
    if threshold is None:
        return usual_threshold(test.scale)
    low, high = test.scale.values[0], test.scale.values[-1]
    return check_scalar("threshold", threshold, float, Ge(low), Le(high), error=PredictionError)
