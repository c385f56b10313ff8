"""Edit distances of a word to many others: substitutions, deletions, insertions, transpositions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfnade.kernels.buffers import Array
from cfnade.kernels.jit import kernel

LONGEST = 64
"""Letters of the asked word that count."""


@kernel
def _edits(word, letters, offsets, most, prefix, out):
    """out[i] = edits from the word to the i-th text, or to a beginning of it; most+1 if more."""
    n = len(word)
    lines = np.empty((3, n + 1), np.int64)  # by letters of the word: of one and two letters before
    for i in range(len(offsets) - 1):
        begin, length = offsets[i], offsets[i + 1] - offsets[i]
        out[i] = most + 1
        if length < n - most or (not prefix and length > n + most):
            continue
        for j in range(n + 1):
            lines[0, j] = j
        nearest = n if prefix or length == 0 else most + 1
        for t in range(1, min(length, n + most) + 1):
            now, previous, before_previous = lines[t % 3], lines[(t - 1) % 3], lines[(t - 2) % 3]
            now[0] = t
            least = t
            letter = letters[begin + t - 1]
            for j in range(1, n + 1):
                cost = min(previous[j] + 1, now[j - 1] + 1)
                cost = min(cost, previous[j - 1] + (word[j - 1] != letter))
                swapped = t > 1 and j > 1 and word[j - 2] == letter
                if swapped and word[j - 1] == letters[begin + t - 2]:
                    cost = min(cost, before_previous[j - 2] + 1)
                now[j] = cost
                least = min(least, cost)
            if prefix:
                nearest = min(nearest, now[n])
            elif t == length:
                nearest = now[n]
            if least > most:
                break
        if nearest <= most:
            out[i] = nearest


class EditDistances:
    """Distances to fixed texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(int)
        self._letters = _codes("".join(texts))

    def edits(self, word: str, most: int, *, prefix: bool = False) -> Array:
        """Edits to each text, most+1 if more; of a prefix, to the nearest beginning. (n,) uint8."""
        out = np.empty(len(self._offsets) - 1, np.uint8)
        _edits(_codes(word[:LONGEST]), self._letters, self._offsets, most, prefix, out)
        return out


def _codes(text: str) -> Array:
    return np.array([ord(letter) for letter in text], np.int32)
