"""Counts agree with their nouns."""

from __future__ import annotations

import pytest

from cfnade.utils.text import count_of


@pytest.mark.parametrize(
    ("n", "expected"), [(0, "0 people"), (1, "1 person"), (2, "2 people"), (1200, "1,200 people")]
)
def test_one_is_singular(n: int, expected: str) -> None:
    assert count_of(n, "person", "people") == expected
    assert count_of(n, "item") == expected.replace("people", "items").replace("person", "item")
