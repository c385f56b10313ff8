"""Raw ids are looked up exactly."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.errors import PredictionError
from cfnade.predictor.ids import Ids


def test_arrays_and_lists_are_looked_up_alike() -> None:
    table = np.unique(np.random.default_rng(0).integers(-50, 50, 40))
    ids = Ids("item", table)
    wanted = np.arange(-60, 60)
    expected = [table.tolist().index(raw) if raw in table else -1 for raw in wanted.tolist()]
    assert ids.indices(wanted).tolist() == expected
    assert ids.indices(wanted.tolist()).tolist() == expected
    assert ids.indices(wanted.astype(np.int8)).tolist() == expected


def test_an_id_beyond_64_bits_is_not_wrapped_onto_a_negative_one() -> None:
    ids = Ids("item", np.array([-1, 5]))
    assert ids.indices(np.array([2**64 - 1, 5], np.uint64)).tolist() == [-1, 1]
    assert ids.indices([2**64 - 1, 5]).tolist() == [-1, 1]


def test_texts_are_not_integers() -> None:
    ids = Ids("user", np.array(["7", "x"], object))
    assert ids.indices(["x", "y", "7"]).tolist() == [1, -1, 0]
    for given in ([7], np.array([7])):
        with pytest.raises(PredictionError, match="user ids of this model are texts, such as '7'"):
            ids.indices(given)
