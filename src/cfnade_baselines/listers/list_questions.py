"""Who is asked what on a split: likes to learn from, people to tune on, people to be scored on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.evaluation.ranking_metrics import BoolArray
from cfnade.exceptions import DataError
from cfnade_baselines.listers.likes import Likes


@dataclass(frozen=True, eq=False)
class ListQuestion:
    """People, what they like, and what they turned out to like besides. Items are of all data."""

    users: IntArray  # (B,) index into the ratings' users
    given: Likes
    """What the model hears of each of them."""
    known: Likes
    """What is not listed, since it is known."""
    answers: Likes
    """What should be listed: at least one item each."""
    catalogue: BoolArray  # (M,)
    """What may be listed."""

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True, eq=False)
class ListParts:
    """A split as questions about lists."""

    likes: Likes
    """To learn from while options are chosen."""
    valid: ListQuestion
    """What chooses them."""
    final_likes: Likes
    """To learn from with the options chosen."""
    test: ListQuestion


def list_parts(split: Split, threshold: float | None = None) -> ListParts:
    """What a split asks of lists; `threshold` as in Likes.of.

    People held out whole (liang:HELD, users:SEED) are known by what the split gives of them: likes
    alone, as if lower ratings had never been, and only what training people like is listed. That is
    how Liang et al. (2018) do it. On other splits people are known by their training ratings, and
    at last by those of validation, too; whatever they rated there is not listed, high or low.
    """
    if len(split.test) == 0:
        raise DataError(f"split {split.name} has no test part to ask about; take another")
    # Ratings of validation can be learnt from in the end if they are of people who are learnt from.
    met = np.zeros(split.train.n_users, bool)
    met[split.train.users] = True
    final = split.train.concat(split.valid.select(met[split.valid.users]))
    parts = ListParts(
        _learnt(split.train, threshold),
        _question(split.train, split.valid, split.fold_in, threshold),
        _learnt(final, threshold),
        _question(final, split.test, split.fold_in, threshold),
    )
    if len(parts.test) == 0:
        raise DataError(
            f"split {split.name}: no test rating is a like, so no list can be right; take another"
        )
    return parts


def _learnt(ratings: Dataset, threshold: float | None) -> Likes:
    likes = Likes.of(ratings, threshold)
    return likes.people(np.flatnonzero(likes.counts()))


def _question(
    learnt: Dataset, asked: Dataset, given: Dataset, threshold: float | None
) -> ListQuestion:
    heard = learnt.concat(given)
    likes, answers = Likes.of(heard, threshold), Likes.of(asked, threshold)
    held_out = len(given) > 0
    listed = Likes.of(learnt, threshold) if held_out else Likes.rated(learnt)
    users = np.flatnonzero(answers.counts())
    return ListQuestion(
        users,
        likes.people(users),
        (likes if held_out else Likes.rated(heard)).people(users),
        answers.people(users),
        listed.item_counts() > 0,
    )
