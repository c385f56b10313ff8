"""How good lists are: from anybody's scores of all items to figures for each person.

parts = list_parts(load_split("ml-1m", "liang:600"))
found = score_lists(model.scores, parts.test)
found.estimates()["ndcg@100"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.evaluation.ranking_metrics import (
    METRICS,
    BoolArray,
    Estimate,
    FloatArray,
    mean_estimate,
    ranked_hits,
)
from cfnade.exceptions import ModelError
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_questions import ListQuestion
from cfnade_baselines.listers.list_rival import Scores

KS = (10, 20, 50, 100)
_CELLS = 1 << 21
"""About how many scores are looked at together."""


@dataclass(frozen=True, eq=False)
class PersonScores:
    """Figures of each person by metric and places, such as "ndcg@100"; of two models, so that
    the differences of the same people can be taken."""

    users: IntArray  # (B,)
    values: dict[str, FloatArray]  # each (B,)

    def estimates(self) -> dict[str, Estimate]:
        """Means over people, with standard errors."""
        return {name: mean_estimate(each) for name, each in self.values.items()}


def score_lists(
    scores: Callable[[Likes], Any], question: ListQuestion, *, ks: Sequence[int] = KS
) -> PersonScores:
    """Ask for the scores of all items (people, M), some people at a time, and score the lists.

    What is known of a person, what is not in the catalogue and what has the score -inf is not
    listed. Equal scores are a draw: see cfnade.evaluation.ranking_metrics.
    """
    values = {f"{name}@{k}": np.empty(len(question)) for k in ks for name in METRICS}
    each = max(1, _CELLS // max(1, question.answers.n_items))
    for start in range(0, len(question), each):
        some = np.arange(start, min(start + each, len(question)))
        table = _listed_scores(scores, question, some)
        counts = question.answers.counts()[some]
        for lists in _lists(table, _liked(question.answers.people(some)), max(ks)):
            hits, theirs = ranked_hits(lists.scores, lists.liked), counts[lists.rows]
            for k in ks:
                for name, metric in METRICS.items():
                    values[f"{name}@{k}"][some[lists.rows]] = metric(hits, theirs, k)
    return PersonScores(question.users, values)


def _listed_scores(
    scores: Callable[[Likes], Any], question: ListQuestion, some: IntArray
) -> Scores:
    """Scores of some people, -inf where an item is not listed. Returns (b, M)."""
    table: Scores = np.array(scores(question.given.people(some)), np.float32)
    shape = len(some), question.answers.n_items
    if table.shape != shape:
        raise ModelError(f"scores have shape {table.shape}; of these people they must have {shape}")
    if np.isnan(table).any() or np.isposinf(table).any():
        raise ModelError("some scores are not finite, so lists cannot be made of them")
    table[:, ~question.catalogue] = -np.inf
    unlisted = question.known.people(some)
    table[unlisted.rows(), unlisted.columns] = -np.inf
    return table


def _liked(answers: Likes) -> BoolArray:
    out = np.zeros((len(answers), answers.n_items), bool)
    out[answers.rows(), answers.columns] = True
    return out


class _TopLists(NamedTuple):
    rows: IntArray  # (b,)
    scores: FloatArray  # (b, L) falling, NaN behind the end
    liked: BoolArray  # (b, L)


def _lists(table: Scores, liked: BoolArray, depth: int) -> Iterator[_TopLists]:
    """Lists of `depth` places, and longer ones where a tie would be cut."""
    depth = min(depth, table.shape[1])
    last = -np.partition(-table, depth - 1, axis=1)[:, depth - 1]
    length = np.where(np.isneginf(last), depth, (table >= last[:, None]).sum(1))
    for rows, places_ in (
        (np.flatnonzero(length == depth), depth),
        (np.flatnonzero(length > depth), int(length.max(initial=0))),
    ):
        if len(rows):
            yield _TopLists(rows, *_top(table[rows], liked[rows], places_))


def _top(table: Scores, liked: BoolArray, count: int) -> tuple[FloatArray, BoolArray]:
    """The best `count` of each row, best first, and whether they are liked. Both (b, count)."""
    best = np.argpartition(-table, count - 1, axis=1)[:, :count]
    values = np.take_along_axis(table, best, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    best = np.take_along_axis(best, order, 1)
    falling = np.take_along_axis(table, best, 1).astype(np.float64)
    listed = ~np.isneginf(falling)
    return np.where(listed, falling, np.nan), np.take_along_axis(liked, best, 1) & listed
