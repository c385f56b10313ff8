"""Parsed ratings are kept, so that a file is parsed once; safetensors_io.py has the layout.

    CACHE/parsed/<what was asked>.json      where the source lies, its sizes and times, its hash
    CACHE/parsed/<what it holds>.safetensors

The first names a source and the options it was read with; the second names content, so a source
that moved is not parsed again. Both are written under a temporary name and then renamed: two
processes that fill the cache at once write the same thing, and readers see all of it or nothing.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cfnade.data.dataset import Dataset
from cfnade.data.storage import open_dataset
from cfnade.exceptions import DataError
from cfnade.utils.files import write_text
from cfnade.utils.safetensors_io import digest_file, digest_text

PARSER_VERSION = 4
"""Raised whenever a reader would give other ratings for the same file."""

log = logging.getLogger(__name__)
Stamp = list[list[Any]]


def cache_dir() -> Path:
    """CFNADE_CACHE, or the user's cache folder."""
    if folder := os.environ.get("CFNADE_CACHE"):
        return Path(folder).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("cfnade")


def cached(
    path: Path,
    asked: str,
    parse: Callable[[], tuple[Dataset, str]],
    beside: Sequence[Path] = (),
) -> tuple[Dataset, str]:
    """The ratings of the file or folder at `path`, parsed at most once for each way of asking.

    `beside` are files that are read together with it. Returns the ratings and a text that says
    what was recognised.
    """
    folder = cache_dir() / "parsed"
    asked = f"{PARSER_VERSION} {asked}"
    note, stamp = folder / f"{digest_text(f'{path.resolve()} {asked}')}.json", _stamp(path, beside)
    noted = _noted_file(note, stamp)
    name = noted or f"{digest_text(f'{_content(path, stamp)} {asked}')}.safetensors"
    kept = _read_kept(folder / name)
    if noted and kept:
        return kept
    result = kept or parse()
    if _stamp(path, beside) == stamp:  # else it changed under our hands: use it, but do not keep it
        _keep(note, stamp, name, None if kept else result)
    return result


def _stamp(path: Path, beside: Sequence[Path]) -> Stamp:
    """Name, size and time of the file and those beside it, or of every file in the folder."""
    files = [path, *beside]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
    stats = [(file, file.stat()) for file in files]
    return [[str(f.relative_to(path.parent)), s.st_size, s.st_mtime_ns] for f, s in stats]


def _content(path: Path, stamp: Stamp) -> str:
    """A hash of all files and their names, wherever the whole lies."""
    return digest_text("\n".join(digest_file(path.parent / name) + name for name, *_ in stamp))


def _noted_file(note: Path, stamp: Stamp) -> str | None:
    """The kept file of a source whose sizes and times are still those of the note."""
    try:
        noted = json.loads(note.read_text())
        return str(noted["file"]) if noted["stamp"] == stamp else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _read_kept(file: Path) -> tuple[Dataset, str] | None:
    if not file.exists():
        return None
    try:
        return open_dataset(file)
    except DataError as error:
        log.warning("%s; parsing the source again", error)
        return None


def _keep(note: Path, stamp: Stamp, name: str, parsed: tuple[Dataset, str] | None) -> None:
    try:
        if parsed is not None:
            ratings, description = parsed
            ratings.save(note.parent / name, description)
        write_text(note, json.dumps({"file": name, "stamp": stamp}))
    except OSError as error:
        log.warning("%s: parsed ratings could not be kept: %s", note.parent, error)
