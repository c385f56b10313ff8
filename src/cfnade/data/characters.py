"""Bytes turned into clean UTF-8: which encoding a text is in, and what editors add to it."""

from __future__ import annotations

import codecs

import numpy as np

from cfnade.exceptions import DataError

LOST = "\ufffd"
"""Stands where bytes of a damaged text could not be read."""

_WESTERN = "cp1252"  # Latin-1 and what Windows adds to it
_GIVE = 'give its encoding, as in encoding="latin-1"'


def clean(
    data: bytes, label: str, encoding: str | None = None, forgiving: bool = False
) -> tuple[bytes, str]:
    """UTF-8 without byte order mark, lines ended by newlines, no blank lines at the end.

    If `forgiving`, damaged characters are `LOST` and no error. Also returns a remark on the
    encoding, empty if there is nothing to say.
    """
    data, remark = _as_utf8(data, label, encoding, forgiving)
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DataError(
            f"{label}:{line}: a NUL byte: this is not text, or it is damaged; fetch it again, or "
            'give its encoding, as in encoding="utf-16"'
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\n" not in data:
            data = data.replace(b"\r", b"\n")  # as old Macs ended lines
    data = data.rstrip(b"\n ")
    if not data:
        raise DataError(f"{label}: is empty; it should hold a user, an item and a rating a line")
    return data, remark


def _as_utf8(data: bytes, label: str, encoding: str | None, forgiving: bool) -> tuple[bytes, str]:
    if encoding is not None:
        return _decoded(data, label, encoding).encode(), ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decoded(data, label, "utf-16").encode(), ""
    try:
        if not data.isascii():
            data.decode()
        return data, ""
    except UnicodeDecodeError as error:
        return _not_utf8(data, label, error, forgiving)


def _decoded(data: bytes, label: str, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except (LookupError, TypeError) as error:
        raise DataError(
            f'encoding={encoding!r} is not known; give one such as "utf-8" or "latin-1"'
        ) from error
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DataError(
            f"{label}:{line}: not {encoding} ({error}); give another encoding="
        ) from error


def _not_utf8(
    data: bytes, label: str, error: UnicodeDecodeError, forgiving: bool
) -> tuple[bytes, str]:
    """UTF-8 that is damaged in places, or a text in the encoding of Western Europe."""
    text = data.decode("utf-8", "replace")
    lost = text.count(LOST)
    line = data.count(b"\n", 0, error.start) + 1
    byte = f"{label}:{line}: byte 0x{data[error.start]:02x}"
    whole = len(text) - lost - len(text.encode("ascii", "ignore"))
    if whole > lost:
        if forgiving:
            return text.encode(), ""
        raise DataError(
            f"{byte} is not UTF-8, as the rest of the file is; correct it, leave such lines out "
            f"with skip_bad_lines=, or {_GIVE}"
        ) from error
    try:
        western = data.decode(_WESTERN)
    except UnicodeDecodeError:
        western = ""
    if not western or _in_runs(data):
        raise DataError(
            f"{byte} is not UTF-8, and the file is not in a Western encoding either; if it is "
            'text, give its encoding, as in encoding="gbk"'
        ) from error
    return western.encode(), f"read as {_WESTERN} (Latin-1), for it is not UTF-8"


def _in_runs(data: bytes) -> bool:
    """Whether most bytes above ASCII stand together: accents are alone, other scripts are not."""
    high = np.frombuffer(data, np.uint8) >= 0x80
    return 2 * int(np.count_nonzero(high[1:] & high[:-1])) > int(np.count_nonzero(high))
