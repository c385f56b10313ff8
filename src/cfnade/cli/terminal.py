"""Text of data that is safe to print to a terminal."""

from __future__ import annotations

import re

_SPACES = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]")
_UNSAFE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters, such as the start of an escape
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of the text's direction
    r"\ud800-\udfff]"  # halves of characters, which cannot be encoded
)


def printable(text: str) -> str:
    """Return a text of a data set, such as a title, without what controls a terminal.

    Line breaks and tabs become spaces. Control characters and overrides of the direction of
    writing, which could rewrite or reorder what is printed around them, are removed.
    """
    return _UNSAFE.sub("", _SPACES.sub(" ", text))


def printable_lines(text: str) -> str:
    """Return the same of a message that may have several lines."""
    return "\n".join(map(printable, text.split("\n")))
