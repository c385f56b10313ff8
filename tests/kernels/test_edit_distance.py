"""Edits against the recursive definition."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from cfnade.kernels.edit_distance import EditDistances

WORDS = st.text("abcé", max_size=6)


def literal(a: str, b: str) -> int:
    """Insertions, deletions, changes and swaps of neighbours, no letter being moved twice."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        options = [
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        ]
        if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
            options.append(distance(i - 2, j - 2) + 1)
        return min(options)

    return distance(len(a), len(b))


@given(WORDS, st.lists(WORDS, max_size=8), st.integers(0, 3))
def test_edits_are_counted_up_to_the_most(word: str, texts: list[str], most: int) -> None:
    edits = EditDistances(texts).edits(word, most)
    assert edits.tolist() == [min(literal(word, text), most + 1) for text in texts]


@given(WORDS, st.lists(WORDS, max_size=8), st.integers(0, 3))
def test_of_a_prefix_the_nearest_beginning_counts(word: str, texts: list[str], most: int) -> None:
    edits = EditDistances(texts).edits(word, most, prefix=True)
    nearest = [min(literal(word, text[:n]) for n in range(len(text) + 1)) for text in texts]
    assert edits.tolist() == [min(n, most + 1) for n in nearest]
