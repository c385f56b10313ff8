"""What members of different kinds count: the shares of their distributions in the mean.

Members of one kind share alike. Between kinds, shares are those with which the validation part is
predicted with the smallest squared error: once for people who were trained on, once for the same
people asked about as new ones. A small validation part says little of them, so they are drawn
towards equal ones, or as far as each is trusted beforehand, among the kinds that may well be as
good as the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade.training.pooling import Answered, Replies, mixed

FloatArray = npt.NDArray[np.float64]
Shares = tuple[tuple[float, float], ...]

EQUAL = 2_000
"""Imagined ratings that all good kinds predict equally well."""

SURE = 1.0
"""Standard errors by which a kind is behind the best, before it is no longer taken for as good."""

LEAST = 0.05
"""A kind with a smaller share, for known and for new people, is not worth its time."""


WORTH = 5e-4
"""Part of the mean squared error by which a stage must improve it: members make a model larger."""


def shares_of(
    answers: Sequence[Replies],
    kinds: Sequence[int],
    valid: Dataset,
    trusts: Sequence[float] | None = None,
    *,
    choose: bool = False,
) -> Shares:
    """Of members, whose kinds are numbers from 0 on; those of a kind share alike.

    trusts say what each member counts where validation cannot tell, all the same if not given.
    Those that read no histories count nothing for new people, if others do. If `choose`, kinds that
    add little get no share at all.
    """
    G, stars = max(kinds) + 1, valid.scale.array()
    trust = np.ones(G)
    trust[list(kinds)] = 1.0 if trusts is None else trusts
    known = _Stars({n: answer.everything for n, answer in enumerate(answers)}, kinds, stars, trust)
    few = {n: answer.few for n, answer in enumerate(answers) if answer.few is not None}
    readers = np.isin(np.arange(G), [kinds[n] for n in few])
    new = known
    if readers.any() and all(len(answer.levels) for answer in few.values()):
        new = _Stars(few, kinds, stars, trust)
    if not readers.any():
        readers[:] = True
    shares = known.shares(np.ones(G, bool)), new.shares(readers)
    if choose:
        kept = (shares[0] >= LEAST) | (shares[1] >= LEAST)
        shares = known.shares(kept), new.shares(kept & readers)
    return _each(kinds, *shares)


def best_stages(
    answers: Sequence[Replies],
    kinds: Sequence[int],
    stages: Sequence[int],
    valid: Dataset,
    trusts: Sequence[float],
) -> Shares:
    """Shares of members that were trained in stages, where kinds that add little get none.

    A stage counts only if members up to it predict the validation part better than members up to
    any stage before, by WORTH at least: further members cannot make the validation score worse.
    Known and new people are decided apart.
    """
    columns: list[list[float]] = [[], []]
    least = [np.inf, np.inf]
    for last in sorted(set(stages)):
        some = [n for n, stage in enumerate(stages) if stage <= last]
        numbers = sorted({kinds[n] for n in some})
        shares = shares_of(
            [answers[n] for n in some],
            [numbers.index(kinds[n]) for n in some],
            valid,
            [trusts[n] for n in some],
            choose=True,
        )
        together = mixed([answers[n] for n in some], shares)
        of_each = (together.everything, together.few or together.everything)
        for column, answered in enumerate(of_each):
            error = _squared_error(answered, valid)
            if not columns[column] or error < (1 - WORTH) * least[column]:
                least[column] = error
                columns[column] = [0.0] * len(answers)
                for n, share in zip(some, shares, strict=True):
                    columns[column][n] = share[column]
    return tuple(zip(*columns, strict=True))


def _squared_error(answered: Answered, valid: Dataset) -> float:
    """Mean squared error of expected ratings; 0 without any."""
    if not len(answered.levels):
        return 0.0
    stars = valid.scale.array()
    return float(np.square(answered.probabilities @ stars - stars[answered.levels]).mean())


def equal_shares(kinds: Sequence[int]) -> Shares:
    """Where there is nothing to choose by."""
    alike = np.full(max(kinds) + 1, 1 / (max(kinds) + 1))
    return _each(kinds, alike, alike)


def _each(kinds: Sequence[int], known: FloatArray, new: FloatArray) -> Shares:
    """Of each member, from those of kinds."""
    return tuple(
        (float(known[kind]) / kinds.count(kind), float(new[kind]) / kinds.count(kind))
        for kind in kinds
    )


class _Stars:
    """What each kind expects of some ratings, and the truth."""

    def __init__(
        self,
        answers: Mapping[int, Answered],
        kinds: Sequence[int],
        stars: FloatArray,
        trust: FloatArray,
    ) -> None:
        self._trust = trust  # (G,)
        first = next(iter(answers.values()))
        self._truth = stars[first.levels]  # (n,)
        self._means = np.zeros((len(self._truth), max(kinds) + 1))  # 0 of a kind without answers
        for kind in {kinds[n] for n in answers}:
            alike = [one.probabilities @ stars for n, one in answers.items() if kinds[n] == kind]
            self._means[:, kind] = np.mean(alike, axis=0)

    def shares(self, among: npt.NDArray[np.bool_]) -> FloatArray:
        """Of all kinds, 0 of those that are not asked. Returns (G,)."""
        out, count = np.zeros(len(among)), len(self._truth)
        best = best_shares(self._means[:, among], self._truth)
        good = self._good(among) * self._trust[among]
        out[among] = (count * best + EQUAL * good / good.sum()) / (count + EQUAL)
        return out

    def _good(self, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which may well be as good as the best of them."""
        errors = np.square(self._means[:, among] - self._truth[:, None])  # (n, G)
        behind = errors - errors[:, [int(errors.mean(0).argmin())]]
        unsure = behind.std(0) / np.sqrt(len(behind))
        return np.asarray(behind.mean(0) <= SURE * unsure)


def best_shares(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """Shares of the columns of predictions (n, G), none below 0 and 1 in all: least squares. (G,).

    The few kinds there are allow to try every choice of those that count at all.
    """
    G = predictions.shape[1]
    errors = predictions - truth[:, None]
    products = errors.T @ errors / len(truth)  # of any shares w the squared error is w·products·w
    best, least = np.full(G, 1 / G), np.inf
    for size in range(1, G + 1):
        for chosen in map(list, combinations(range(G), size)):
            part = products[np.ix_(chosen, chosen)] + 1e-12 * np.eye(size)
            weights = np.linalg.solve(part, np.ones(size))
            weights /= weights.sum()
            error = float(weights @ part @ weights)
            if (weights >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(G), error
                best[chosen] = weights
    return best
