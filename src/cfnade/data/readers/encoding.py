"""Decode texts: UTF-8, UTF-16 with its mark, else the encoding of Western Europe.

charset-normalizer is no substitute: it takes MovieLens's movies.dat and u.item for cp1250.
"""

from __future__ import annotations

import codecs

import numpy as np

from cfnade.data.parse import REPLACEMENT
from cfnade.exceptions import DataError
from cfnade.utils.text import option

_WESTERN = "cp1252"  # Latin-1 and what Windows adds to it


def decode(
    data: bytes, label: str, encoding: str | None = None, *, replace: bool = False
) -> tuple[bytes, str]:
    r"""Return clean UTF-8: no byte order mark, lines ended by \n, no blank lines at the end.

    With `replace`, damaged characters become `REPLACEMENT` instead of an error. Also returns a
    note on the encoding, empty if there is nothing to say.
    """
    data, note = _to_utf8(data, label, encoding, replace)
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DataError(
            f"{label}:{line}: a NUL byte: this is not text, or it is damaged; fetch it again, or "
            f"give its encoding, as in {option('encoding', 'utf-16')}"
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\n" not in data:
            data = data.replace(b"\r", b"\n")  # as old Macs ended lines
    data = data.rstrip(b"\n ")
    if not data:
        raise DataError(f"{label}: is empty; it should hold a user, an item and a rating a line")
    return data, note


def _to_utf8(data: bytes, label: str, encoding: str | None, replace: bool) -> tuple[bytes, str]:
    if encoding is not None:
        return _decode_as(data, label, encoding).encode(), ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decode_as(data, label, "utf-16").encode(), ""
    try:
        if not data.isascii():
            data.decode()
        return data, ""
    except UnicodeDecodeError as error:
        return _from_other(data, label, error, replace)


def _decode_as(data: bytes, label: str, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError as error:
        raise DataError(
            f'{option("encoding", encoding)} is not known; give one such as "utf-8" or "latin-1"'
        ) from error
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DataError(
            f"{label}:{line}: not {encoding} ({error}); give another {option('encoding')}"
        ) from error


def _from_other(
    data: bytes, label: str, error: UnicodeDecodeError, replace: bool
) -> tuple[bytes, str]:
    """Return UTF-8 of a text that is damaged in places, or in the encoding of Western Europe."""
    text = data.decode("utf-8", "replace")
    lost = text.count(REPLACEMENT)
    line = data.count(b"\n", 0, error.start) + 1
    byte = f"{label}:{line}: byte 0x{data[error.start]:02x}"
    intact = len(text) - lost - len(text.encode("ascii", "ignore"))
    if intact > lost:
        if replace:
            return text.encode(), ""
        raise DataError(
            f"{byte} is not UTF-8, as the rest of the file is; correct it, leave such lines out "
            f"with {option('skip_bad_lines', True)}, or give its encoding, as in "
            f"{option('encoding', 'latin-1')}"
        ) from error
    try:
        western = data.decode(_WESTERN)
    except UnicodeDecodeError:
        western = ""
    high = np.frombuffer(data, np.uint8) >= 0x80
    in_runs = 2 * int(np.count_nonzero(high[1:] & high[:-1])) > int(np.count_nonzero(high))
    if not western or in_runs:  # accents stand alone, letters of other scripts together
        raise DataError(
            f"{byte} is not UTF-8, and the file is not in a Western encoding either; if it is "
            f"text, give its encoding, as in {option('encoding', 'gbk')}"
        ) from error
    return western.encode(), f"read as {_WESTERN} (Latin-1), for it is not UTF-8"
