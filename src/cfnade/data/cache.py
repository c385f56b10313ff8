"""Parsed data sets on disk, so that a file is parsed once.

    CACHE/parsed/<digest of path and options>.json         file name, sizes and times of the source
    CACHE/parsed/<digest of content and options>.safetensors

The first file is found by the path of a source, the second by its content, so a source that was
moved is not parsed again. Both are written atomically: two processes may fill the cache at the same
time, and readers see a complete file or none.
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
"""Increased whenever a reader would return other data for the same file."""

log = logging.getLogger(__name__)
Stamp = list[list[Any]]


def cache_dir() -> Path:
    """Return the folder of CFNADE_CACHE, or the user's cache folder."""
    if folder := os.environ.get("CFNADE_CACHE"):
        return Path(folder).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("cfnade")


def cached(
    path: Path,
    options: str,
    parse: Callable[[], tuple[Dataset, str]],
    companions: Sequence[Path] = (),
) -> tuple[Dataset, str]:
    """Return the data set of a file or folder; parse it if it is not in the cache.

    Args:
        path: File or folder of the source.
        options: Options of the parser as text; each text has an entry of its own.
        parse: Parses the source, and returns the data set and a description of the format.
        companions: Other files that the parser reads.

    Returns:
        The data set, mapped into memory if it was in the cache, and the description.
    """
    folder, key = cache_dir() / "parsed", f"{PARSER_VERSION} {options}"
    entry = folder / f"{digest_text(f'{path.resolve()} {key}')}.json"
    stamp = _stamp(path, companions)
    name = _file_of_entry(entry, stamp)
    is_current = name is not None
    name = name or f"{digest_text(f'{_content(path, stamp)} {key}')}.safetensors"
    stored = _open(folder / name)
    if is_current and stored:
        return stored
    result = stored or parse()
    if _stamp(path, companions) == stamp:  # else the source changed while it was parsed
        _store(entry, stamp, name, None if stored else result)
    return result


def _stamp(path: Path, companions: Sequence[Path]) -> Stamp:
    """Return name, size and time of each file of the source."""
    files = [path, *companions]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    stats = [(file, file.stat()) for file in files]
    return [[str(f.relative_to(path.parent)), s.st_size, s.st_mtime_ns] for f, s in stats]


def _content(path: Path, stamp: Stamp) -> str:
    """Return a digest of all files and their names, wherever the source is."""
    return digest_text("\n".join(digest_file(path.parent / name) + name for name, *_ in stamp))


def _file_of_entry(entry: Path, stamp: Stamp) -> str | None:
    """Return the cached file of a source whose sizes and times have not changed."""
    try:
        content = json.loads(entry.read_text())
        return str(content["file"]) if content["stamp"] == stamp else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _open(file: Path) -> tuple[Dataset, str] | None:
    if not file.exists():
        return None
    try:
        return open_dataset(file)
    except DataError as error:
        log.warning("%s; parsing the source again", error)
        return None


def _store(entry: Path, stamp: Stamp, name: str, parsed: tuple[Dataset, str] | None) -> None:
    try:
        if parsed is not None:
            dataset, description = parsed
            dataset.save(entry.parent / name, description)
        write_text(entry, json.dumps({"file": name, "stamp": stamp}))
    except OSError as error:
        log.warning("%s: the parsed data cannot be cached: %s", entry.parent, error)
