"""Counts agree with their nouns."""

from cfnade.utils.text import count_of


def test_one_is_singular() -> None:
    counts = [count_of(n, "item") for n in (0, 1, 2, 1200)]
    assert counts == ["0 items", "1 item", "2 items", "1,200 items"]
