"""Raw ids are looked up exactly."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex


def test_arrays_and_lists_are_looked_up_alike() -> None:
    table = np.unique(np.random.default_rng(0).integers(-50, 50, 40))
    ids = IdIndex("item", table)
    asked = np.arange(-60, 60)
    expected = [table.tolist().index(raw) if raw in table else -1 for raw in asked.tolist()]
    assert ids.indices(asked).tolist() == expected
    assert ids.indices(asked.tolist()).tolist() == expected
    assert ids.indices(asked.astype(np.int8)).tolist() == expected


def test_an_id_beyond_64_bits_is_not_wrapped_onto_a_negative_one() -> None:
    ids = IdIndex("item", np.array([-1, 5]))
    assert ids.indices(np.array([2**64 - 1, 5], np.uint64)).tolist() == [-1, 1]
    assert ids.indices([2**64 - 1, 5]).tolist() == [-1, 1]


def test_texts_are_not_integers() -> None:
    ids = IdIndex("user", np.array(["7", "x"], object))
    assert ids.indices(["x", "y", "7"]).tolist() == [1, -1, 0]
    for numbers in ([7], np.array([7])):
        with pytest.raises(PredictionError, match="user ids of this model are texts, such as '7'"):
            ids.indices(numbers)


def test_a_typed_id_has_the_type_of_the_table() -> None:
    numbers, texts = (
        IdIndex("user", np.array([5, 7])),
        IdIndex("user", np.array(["5", "x"], object)),
    )
    assert (numbers.typed("-7"), texts.typed("7")) == (-7, "7")
    with pytest.raises(PredictionError, match="user 'anna': the user ids of this model are whole"):
        numbers.typed("anna")
    for text in (str(2**63), str(-(2**63) - 1), "9" * 99):
        with pytest.raises(
            PredictionError, match=r"user '-?9.*: an id is a whole number from -922"
        ):
            numbers.typed(text)
    assert numbers.typed(str(2**63 - 1)) == 2**63 - 1
