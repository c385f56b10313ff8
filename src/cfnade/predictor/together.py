"""What a Predictor asks of a bundle, whatever model is in it; and ensembles, which average.

Each model of an ensemble is asked, and distributions are averaged. As scores their logarithms are
given, of which they are the softmax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.rows import Rows
from cfnade.predictor.explain import Effects, Explains, LevelEffects, mean_effects
from cfnade.predictor.joint import JointKnown
from cfnade.predictor.known import Known
from cfnade.predictor.once import once
from cfnade.predictor.scoring import Row, distributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Knows(Explains, Protocol):
    """Answers from one bundle. Users and items are indices, -1 an unknown one."""

    frequencies: FloatArray  # (K,) of the training ratings

    @property
    def cells(self) -> Cells: ...
    @property
    def by_user(self) -> Rows: ...
    @property
    def rows(self) -> Rows: ...
    @property
    def of_all_items(self) -> IntArray: ...
    def of_items(self, items: IntArray) -> IntArray: ...
    def of_users(self, users: IntArray) -> IntArray: ...
    def of_person(self, rated: Row, items: IntArray) -> FloatArray: ...
    def of_cells(self, users: IntArray, items: IntArray) -> FloatArray: ...
    def scores(
        self, rated: Sequence[Row], users: IntArray, *, leave_out: bool
    ) -> Iterator[npt.NDArray[Any]]: ...


def known_of(bundle: Bundle) -> Knows:
    """What answers for a bundle."""
    if bundle.n_members > 1:
        return EnsembleKnown(bundle)
    return JointKnown(bundle) if bundle.side == "both" else Known(bundle)


class EnsembleKnown:
    """The mean of several models; what is known of whom is the same for all of them."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._members = [known_of(member) for member in bundle.members()]
        self.frequencies = self._members[0].frequencies

    @once
    def cells(self) -> Cells:
        return Cells(self.bundle)

    @property
    def by_user(self) -> Rows:
        return self._members[0].by_user

    @property
    def rows(self) -> Rows:
        return self._members[0].rows

    @property
    def of_all_items(self) -> IntArray:
        return self._members[0].of_all_items

    def of_items(self, items: IntArray) -> IntArray:
        return self._members[0].of_items(items)

    def of_users(self, users: IntArray) -> IntArray:
        return self._members[0].of_users(users)

    def of_person(self, rated: Row, items: IntArray) -> FloatArray:
        return _mean([member.of_person(rated, items) for member in self._members])

    def of_cells(self, users: IntArray, items: IntArray) -> FloatArray:
        return _mean([member.of_cells(users, items) for member in self._members])

    def scores(
        self, rated: Sequence[Row], users: IntArray, *, leave_out: bool
    ) -> Iterator[npt.NDArray[Any]]:
        lines = [member.scores(rated, users, leave_out=leave_out) for member in self._members]
        for line in zip(*lines, strict=True):
            with np.errstate(divide="ignore"):
                yield np.log(_mean([distributions(scores) for scores in line]))

    def effects(self, rated: Row, user: int, item: int) -> Effects:
        return mean_effects([member.effects(rated, user, item) for member in self._members])

    def level_effects(self, rated: Row, user: int) -> LevelEffects:
        found = [member.level_effects(rated, user) for member in self._members]
        single = mean_effects([one.single for one in found])
        return LevelEffects(single, _mean([one.levels for one in found]))


def _mean(found: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(np.mean(found, axis=0))
