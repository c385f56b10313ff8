"""Damaged files of every format give ratings or a CfnadeError, never another exception."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import raw_tables

from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.validate import build
from cfnade.exceptions import CfnadeError

EXAMPLES = int(os.environ.get("CFNADE_FUZZ", "60"))

ROWS = [(1 + i % 5, 10 + i * 7 % 11, 1 + i * 3 % 5, 978300760 + i) for i in range(40)]
CSV = "userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{r}.5,{t}\n" for u, i, r, t in ROWS)
QUOTED = '"User-ID";"ISBN";"Book-Rating"\n' + "".join(
    f'"{u}";"0{i}X";"{r}"\n' for u, i, r, _ in ROWS
)
DAT = "".join(f"{u}::{i}::{r}::{t}\n" for u, i, r, t in ROWS)
MOVIES_DAT = "".join(f"{i}::Film {i}, The (1999)::Comedy|Drama\n" for i in range(10, 21))
TAB = DAT.replace("::", "\t")
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\r\n" + "".join(
    f"1m_{u}\tFilm {i}\t{r}\t{t}\r\n" for u, i, r, t in ROWS
)
COMBINED = "".join(
    f"{m}:\n" + "".join(f"{1 + u * 7},{1 + (u + m) % 5},2005-0{m}-1{u}\n" for u in range(9))
    for m in range(1, 4)
)
FRAME = pl.DataFrame(ROWS, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
TEXTS = FRAME.with_columns(pl.col("user_id").cast(pl.String), pl.col("item_id").cast(pl.String))


FILES = {
    "ratings.csv": CSV.encode(),
    "books.csv": QUOTED.encode(),
    "ratings.dat": DAT.encode(),
    "u.data": TAB.encode(),
    "ml-1m.inter": INTER.encode(),
    "combined_data_1.txt": COMBINED.encode(),
    "mv_0000001.txt": COMBINED[: COMBINED.index("2:")].encode(),
    "ml.zip": raw_tables.zip_bytes(
        {"ml-1m/ratings.dat": DAT.encode(), "ml-1m/movies.dat": MOVIES_DAT.encode(), "README": b"-"}
    ),
    "ratings.csv.gz": gzip.compress(CSV.encode(), mtime=0),
    "ratings.csv.xz": lzma.compress(CSV.encode()),
    "ratings.csv.bz2": bz2.compress(CSV.encode()),
    "ratings.csv.zst": zstandard.ZstdCompressor().compress(CSV.encode()),
    "ratings.parquet": raw_tables.to_bytes(TEXTS.write_parquet),
    "plain.parquet": raw_tables.to_bytes(
        lambda out: FRAME.write_parquet(out, compression="uncompressed")
    ),
    "ratings.feather": raw_tables.to_bytes(TEXTS.write_ipc),
    "packed.feather": raw_tables.to_bytes(lambda out: FRAME.write_ipc(out, compression="zstd")),
}


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The data after a few accidents: bytes flipped, lost, doubled, put in, or cut off."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from((1, 1, 2, 7, 40)))
        match draw(st.sampled_from(("flip", "insert", "delete", "truncate", "repeat", "splice"))):
            case "flip":
                flipped = bytes(byte ^ draw(st.integers(1, 255)) for byte in data[at : at + 1])
                data = data[:at] + flipped + data[at + 1 :]
            case "insert":
                data = data[:at] + draw(st.binary(min_size=1, max_size=8)) + data[at:]
            case "delete":
                data = data[:at] + data[at + length :]
            case "truncate":
                data = data[:at]
            case "repeat":
                data = data[:at] + data[max(0, at - length) : at] * 2 + data[at:]
            case "splice":
                data = data[:at] + draw(SPLICES).encode("utf-8", "surrogatepass") + data[at:]
    return data


TRAPS = ["\n", "\r", "\0", '"', ",", "::", "\t", "nan", "inf", "-1e999", "9" * 30, "1:\n", "\ufeff"]
SPLICES = st.sampled_from(TRAPS) | st.text(min_size=1, max_size=5)


def read(path: Path) -> Dataset | None:
    """Return the ratings of a file, None for a CfnadeError."""
    try:
        table = raw_tables.read(path, LoadOptions())
        assert table.description
        return build(table, LoadOptions(duplicates="error" if table.implicit else "last"))
    except CfnadeError:
        return None


@pytest.mark.parametrize("name", FILES)
def test_undamaged_files_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    ratings = read(path)
    assert ratings is not None
    assert len(ratings) > 5


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_give_ratings_or_a_cfnade_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / name

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated(FILES[name]))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        ratings = read(path)
        assert ratings is None or len(ratings) > 0

    check()
