"""What comes through standard input: kept, since it comes only once."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import IO

from cfnade.data.kept import keep
from cfnade.errors import DataError

log = logging.getLogger(__name__)

_NAME = "standard-input"
_PIECE = 1 << 20


def keep_standard_input() -> Path:
    """All of standard input as a file."""
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():
        raise DataError(f"standard input is no pipe; {_HOW}")
    path = keep(_NAME, _copy)
    log.info("standard input: kept as %s, where later commands find it", path)
    return path


_HOW = "send ratings into it, as in: cat ratings.csv | cfnade data info -"


def _copy(file: IO[bytes]) -> None:
    piece = sys.stdin.buffer.read(_PIECE)
    if not piece:
        raise DataError(f"standard input is empty; {_HOW}")
    while piece:
        file.write(piece)
        piece = sys.stdin.buffer.read(_PIECE)
