"""More like this: the items that somebody who picked one item would pick more than others do."""

from __future__ import annotations

import numpy as np
import polars as pl

from cfnade.choice import Choice
from cfnade.choice.choice_side import ScoreArray
from cfnade.choice.picks import Picks
from cfnade.data.ratings import IntArray
from cfnade.predictor import frames
from cfnade.predictor.ranking import FloatArray
from cfnade.scorer import Scorer
from cfnade.sides.side import Row

POPULAR = 0.5
"""How far an item's popularity counts: 0 lists the least known of the like, 1 the best known."""


def lifts(choice: Choice, item: int) -> tuple[ScoreArray, ScoreArray]:
    """log p(i | item) and log p(i | nothing), of every item. Both (M,).

    Where it matters how the item was taken up, it is at the highest level: who wants more like it
    liked it.
    """
    row = Row(np.array([item], np.int32), np.array([choice.levels - 1], np.uint8))
    return choice.log_chances(Picks.of_people([row], choice.n_items))[0], choice.nobody


def similar_by_picks(scorer: Scorer, choice: Choice, item: int, n: int) -> pl.DataFrame:
    """By how many times likelier an item is picked after this one than by anybody."""
    picked, alone = lifts(choice, item)
    score = picked - (1 - POPULAR) * alone
    return _frame(scorer, item, score, np.exp((picked - alone).astype(np.float64)), n)


def similar_by_vectors(scorer: Scorer, vectors: ScoreArray, item: int, n: int) -> pl.DataFrame:
    """By the cosine of vectors."""
    score = vectors @ vectors[item]
    return _frame(scorer, item, score.copy(), score.astype(np.float64), n)


def _frame(scorer: Scorer, item: int, score: ScoreArray, shown: FloatArray, n: int) -> pl.DataFrame:
    score[item] = -np.inf
    order: IntArray = np.lexsort((np.arange(len(score)), -score))[: min(n, len(score) - 1)]
    context = scorer.fitted.context
    texts = context.item_ids.dtype == object
    return pl.DataFrame(
        {
            "rank": 1 + np.arange(len(order)),
            "item": frames.id_series(context.item_ids[order], texts=texts),
            "title": frames.title_series(context, order),
            "similarity": shown[order],
            "known_of_item": scorer.known_of("item", order),
        }
    )
