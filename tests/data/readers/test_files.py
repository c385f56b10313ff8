"""Folders, archives and compressed files give the same bytes, or one clear error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from tests.support.raw_tables import zip_bytes

from cfnade.data.readers.files import open_source
from cfnade.exceptions import DataError

TEXT = b"1,2,5\n" * 3000


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "zip": lambda data: zip_bytes({"r.csv": data}),
}


@pytest.mark.parametrize("kind", PACKERS)
def test_compression_is_recognized_by_content_not_by_name(kind: str, tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_bytes(PACKERS[kind](TEXT))
    source = open_source(tmp_path / "ratings.csv")
    (name,) = source.names
    assert source.read(name) == TEXT
    assert TEXT.startswith(source.head(name)[:100])
    assert source.plain_path(name) is None


@pytest.mark.parametrize("kind", ["gzip", "xz", "bz2", "zstd"])
def test_concatenated_streams_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(PACKERS[kind](TEXT) + PACKERS[kind](b"3,4,1\n"))
    assert open_source(path).read("r") == TEXT + b"3,4,1\n"


@pytest.mark.parametrize("kind", ["gzip", "xz", "bz2", "zstd"])
@pytest.mark.parametrize("where", [0.3, 0.7, 0.99])
def test_truncated_streams_are_refused(kind: str, where: float, tmp_path: Path) -> None:
    packed = PACKERS[kind](TEXT)
    path = tmp_path / "r"
    path.write_bytes(packed[: max(10, int(where * len(packed)))])
    with pytest.raises(DataError, match=r"^r: .*fetch it again"):
        open_source(path).read("r")


@pytest.mark.parametrize("kind", ["gzip", "xz", "bz2", "zstd"])
def test_content_after_the_stream_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(PACKERS[kind](TEXT) + b"garbage")
    with pytest.raises(DataError, match="something else follows"):
        open_source(tmp_path / "r").read("r")


def test_archives_list_their_files(tmp_path: Path) -> None:
    members = {"ml-1m/ratings.dat": TEXT, "__MACOSX/x": b"-", "ml-1m/": b"", ".DS_Store": b"-"}
    (tmp_path / "ml-1m.zip").write_bytes(zip_bytes(members))
    source = open_source(tmp_path / "ml-1m.zip")
    assert source.names == ["ml-1m/ratings.dat"]
    assert source.label("ml-1m/ratings.dat") == "ml-1m.zip/ml-1m/ratings.dat"
    assert source.read("ml-1m/ratings.dat") == TEXT
    assert source.plain_path("ml-1m/ratings.dat") is None


def test_a_damaged_member_is_detected_by_its_checksum(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("r.csv", TEXT)
    data = bytearray(out.getvalue())
    data[100] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip/r\.csv: cannot be read \(Bad CRC-32"):
        open_source(tmp_path / "a.zip").read("r.csv")


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"r.csv": TEXT}))
    data[6] |= 1  # the flag in the local header …
    data[data.index(b"PK\x01\x02") + 8] |= 1  # … and in the directory
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match="it is encrypted; unpack the archive with its password"):
        open_source(tmp_path / "a.zip").read("r.csv")


def test_an_archive_of_several_files_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"a": TEXT, "b": TEXT}))
    with pytest.raises(DataError, match="a zip archive of 2 files; unpack it"):
        open_source(tmp_path).read("a.zip")


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    data = TEXT
    for _ in range(5):
        data = gzip.compress(data)
    (tmp_path / "r").write_bytes(data)
    with pytest.raises(DataError, match="compressed more than 3 times"):
        open_source(tmp_path / "r").read("r")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: path.unlink(missing_ok=True),
            "there is no such file or folder; check the path",
        ),
        (lambda path: path.mkdir(), "holds no files"),
        (lambda path: path.write_bytes(zip_bytes({})), "holds no files"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
    ],
)
def test_missing_and_empty_sources_are_an_error(
    make: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(DataError, match=re.escape(str(path)) + ": .*" + message):
        open_source(path)


def test_an_impossible_path_is_an_error() -> None:
    with pytest.raises(DataError, match="check"):
        open_source(Path("a\0b"))
