"""A compiled parser for the Netflix Prize text: "movie:" lines, each followed by its ratings.

    8:
    1488844,3,2005-09-06

Every line is checked. The parser stops at the first byte of the first line that is wrong, and
Python then says what is wrong with it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FINE, WRONG = 0, 1
_NEWLINE, _RETURN, _COLON, _COMMA, _DASH, _ZERO = 10, 13, 58, 44, 45, 48


@njit(cache=True, nogil=True)
def _two(text, place):  # type: ignore[no-untyped-def]
    """The number that two digits make."""
    return (np.int32(text[place]) - _ZERO) * 10 + np.int32(text[place + 1]) - _ZERO


@njit(cache=True, nogil=True)
def _day(year, month, day):  # type: ignore[no-untyped-def]
    """Days since 1970-01-01; -1 if there is no such day."""
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    days = 31 if month in (1, 3, 5, 7, 8, 10, 12) else 30
    if month == 2:
        days = 29 if leap else 28
    if year < 1970 or year > 2037 or month < 1 or month > 12 or day < 1 or day > days:
        return -1
    # Count from March, so that the leap day is the last of its year.
    y = year - (1 if month <= 2 else 0)
    m = (month + 9) % 12
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1 - 719468


@njit(cache=True, nogil=True)
def _rating(text, place):  # type: ignore[no-untyped-def]
    """Stars and day of the 13 bytes ",3,2005-09-06" at `place`; a day of -1 if they are no such."""
    shape = text[place] == _COMMA and text[place + 2] == _COMMA
    shape = shape and text[place + 7] == _DASH and text[place + 10] == _DASH
    star = np.int32(text[place + 1]) - _ZERO
    digits = True
    for i in (3, 4, 5, 6, 8, 9, 11, 12):
        digits = digits and _ZERO <= text[place + i] <= _ZERO + 9
    if not shape or not digits or star < 1 or star > 5:
        return star, -1
    year = _two(text, place + 3) * 100 + _two(text, place + 5)
    return star, _day(year, _two(text, place + 8), _two(text, place + 11))


@njit(cache=True, nogil=True)
def parse(text, start, end, users, stars, days, heads, head_at):  # type: ignore[no-untyped-def]
    """Parse the lines of text[start:end] into the arrays given, which hold one place a line.

    `heads` gets the movies named on "movie:" lines and `head_at` how many ratings came before
    each. Reads each byte once; single-threaded and without the GIL, so that callers run one
    piece of text a thread. Returns what happened, where, and how many ratings and heads.
    """
    n = n_heads = 0
    place = start
    while place < end:
        line = place
        number = np.int64(0)
        while place < end and _ZERO <= text[place] <= _ZERO + 9:
            number = number * 10 + (np.int64(text[place]) - _ZERO)
            place += 1
        if place in (line, end) or place - line > 9:
            return WRONG, line, n, n_heads
        if text[place] == _COLON:
            heads[n_heads] = number
            head_at[n_heads] = n
            n_heads += 1
            place += 1
        else:
            star, day = _rating(text, place) if place + 13 <= end else (0, -1)
            if day < 0:
                return WRONG, line, n, n_heads
            users[n] = number
            stars[n] = star
            days[n] = day
            n += 1
            place += 13
        if place < end and text[place] == _RETURN:
            place += 1
        if place < end:
            if text[place] != _NEWLINE:
                return WRONG, line, n, n_heads
            place += 1
    return FINE, place, n, n_heads
