"""Sharding: any division of ratings into files gives the same content, and a killed job resumes."""

from __future__ import annotations

import gzip
import io
import os
import random
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.distributed.sharded import Line, cells_of, csv_file, lines, parquet_file, sharded

import cfnade
from cfnade.data.load import load
from cfnade.distributed import build_shards as build
from cfnade.distributed import input_files
from cfnade.distributed.build_shards import ShardOptions, build_shards
from cfnade.distributed.shards import SPLITS, ShardedRatings
from cfnade.exceptions import CfnadeError, DataError

pytest.importorskip("duckdb", reason="needs cfnade[shard]")

ONE = ShardOptions(side="user")
LINES = lines(500, 5, range(80), range(30))
CELLS = {(user, item): star for user, item, star in LINES}
UNICODE = ["Ünal", "zoë", "Ω", "日本", "a b", "7", "007", "𝒳", "-3"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read tiny files in many blocks; a power cut is not what is tested."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(input_files, "ROWS", 150)
    monkeypatch.setattr(input_files, "BYTES", 1500)


def content(shards: ShardedRatings) -> list[dict[tuple[Any, Any], float]]:
    """The ratings of each split by raw ids."""
    return [cells_of(shards, split) for split in SPLITS]


def test_any_cut_into_files_of_any_kind_gives_the_same_shards(tmp_path: Path) -> None:
    whole = sharded(tmp_path / "whole", csv_file(tmp_path / "whole.csv", LINES))
    draw = random.Random(1)
    for attempt in range(4):
        files: list[Path] = []
        some, at = draw.sample(LINES, len(LINES)), 0
        folder = tmp_path / f"cut {attempt}"
        folder.mkdir()
        while at < len(some):
            size = draw.randint(1, 250)
            name, part = f"part-{len(files):02d}", some[at : at + size]
            kind = draw.choice(["parquet", "csv", "csv.gz", "bare"])
            if kind == "parquet":
                files.append(parquet_file(folder / f"{name}.parquet", part))
            elif kind == "bare":
                files.append(csv_file(folder / f"{name}.txt", part, header=False))
            else:
                files.append(csv_file(folder / f"{name}.{kind}", part))
            at += size
        (folder / "_SUCCESS").touch()
        given = [folder] if attempt % 2 else files
        shards = build_shards(given, tmp_path / f"out {attempt}", ONE, n_workers=1)
        assert content(shards) == content(whole)


def zip_bytes(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return file.getvalue()


@pytest.mark.parametrize("name", ["ratings_csv", "set__ratings_dat", "ratings_csv_gz"])
def test_a_zip_gives_what_its_file_of_ratings_gives(tmp_path: Path, name: str) -> None:
    """The file that `train` finds in it, read in several blocks."""
    content = csv_file(tmp_path / "ratings.csv", LINES).read_bytes()
    extra = {}
    if name.endswith("gz"):
        content = gzip.compress(content)
    elif name.endswith("dat"):
        content = b"".join(b"%d::%d::%d::1000\n" % line for line in LINES)
        extra = {"set__README_txt": b"read me\n", "set__movies_dat": b"1::Film (1990)::Drama\n"}
    file = tmp_path / "ratings.zip"
    file.write_bytes(zip_bytes(**{name: content}, **extra))
    assert cells_of(sharded(tmp_path / "out", file), *SPLITS) == CELLS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            zip_bytes(a_csv=b"1,2,3\n", b_csv=b"1,3,3\n"),
            "several files could be the ratings",
        ),
        (zip_bytes(a_parquet=b"PAR1" + bytes(99)), "is Parquet; only text"),
        (zip_bytes(a_csv="1,2,3\n".encode("utf-16")), "two or four bytes a character"),
        (b"PK\x03\x04rest", "cannot be read .*truncated or damaged"),
        (b"\xff\xfeu\0s\0", "two or four bytes a character"),
        (b"\x89HDF stuff", "HDF5"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03broken", "cannot be read|too early"),
        (b"PAR1 and not the rest", "cannot be read as a table"),
    ],
)
def test_a_file_that_cannot_be_read_in_blocks_is_one_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / ("a.zip" if content[:4] == b"PK\x03\x04" else "a")
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as refused:
        sharded(tmp_path / "out", file)
    assert "\n" not in str(refused.value)


def test_files_without_rows_do_no_harm(tmp_path: Path) -> None:
    csv_file(tmp_path / "in" / "a.csv", LINES)
    csv_file(tmp_path / "in" / "b.csv", [])
    csv_file(tmp_path / "in" / "c.csv", [], header=False)
    csv_file(tmp_path / "in" / "d.csv.gz", [])
    nobody = {"user": pl.Int64, "item": pl.Int64, "rating": pl.Float64}
    pl.DataFrame(schema=nobody).write_parquet(tmp_path / "in" / "e.parquet")
    shards = sharded(tmp_path / "out", tmp_path / "in")
    assert cells_of(shards, *SPLITS) == CELLS
    with pytest.raises(DataError, match="no ratings"):
        sharded(tmp_path / "none", tmp_path / "in" / "b.csv", tmp_path / "in" / "e.parquet")


# -- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "items"),
    [
        (range(-40, 40), [2**62 - n for n in range(20)]),
        ([f"u{n}" for n in range(90)], range(20)),
        (UNICODE, [f"{name}/{n}" for name in UNICODE for n in range(9)]),
    ],
)
def test_ids_are_those_of_one_file_read_at_once(
    tmp_path: Path, users: Sequence[Any], items: Sequence[Any]
) -> None:
    some = lines(400, 2, users, items)
    file = csv_file(tmp_path / "r.csv", some)
    shards, ratings = sharded(tmp_path / "out", file), load(file, cache=False)
    for axis in ("user", "item"):
        assert shards.ids(axis).dtype == ratings.ids(axis).dtype
        assert shards.ids(axis).tolist() == ratings.ids(axis).tolist()
    assert cells_of(shards, *SPLITS) == {(u, i): star for u, i, star in some}


def test_integers_in_some_files_and_texts_in_others_are_texts(tmp_path: Path) -> None:
    numbers = lines(200, 1, range(40), range(20))
    texts = lines(100, 2, UNICODE, range(20))
    integers = parquet_file(tmp_path / "numbers.parquet", numbers)
    shards = sharded(tmp_path / "out", integers, csv_file(tmp_path / "texts.csv", texts[:60]))
    known = {(str(u), i): star for u, i, star in numbers} | {(u, i): s for u, i, s in texts[:60]}
    # "7" and -3 are written alike in both: the same person
    assert cells_of(shards, *SPLITS) == known
    assert shards.ids("user").tolist() == sorted({user for user, _ in known})
    assert shards.ids("item").dtype == np.int64


# -- what ratings mean ----------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", ["first", "last", "mean"])
def test_repeated_ratings_are_settled_as_in_one_file(tmp_path: Path, repeats: str) -> None:
    draw = random.Random(4)
    again = LINES + [(u, i, float(draw.randint(1, 5))) for u, i, _ in draw.sample(LINES, 120)]
    again += [(u, i, float(draw.randint(1, 5))) for u, i, _ in draw.sample(LINES, 60)]
    whole = csv_file(tmp_path / "whole.csv", again)
    halves = [csv_file(tmp_path / f"{n}.csv", again[n * 300 : n * 300 + 300]) for n in range(3)]
    shards = sharded(tmp_path / "out", *halves, duplicates=repeats)
    ratings = load(whole, duplicates=repeats, cache=False)
    cells = zip(
        *(ids[at].tolist() for ids, at in (
            (ratings.user_ids, ratings.users), (ratings.item_ids, ratings.items)
        )), strict=True,
    )  # fmt: skip
    assert cells_of(shards, *SPLITS) == dict(zip(cells, ratings.values.tolist(), strict=True))


def test_a_repeated_rating_is_an_error_that_names_it(tmp_path: Path) -> None:
    user, item, star = LINES[70]
    file = csv_file(tmp_path / "r.csv", [*LINES, (user, item, 1 + star % 5)])
    with pytest.raises(CfnadeError, match=f"user {user} rated item {item} again.*duplicates="):
        sharded(tmp_path / "out", file)


def test_identical_rows_count_once(tmp_path: Path) -> None:
    shards = sharded(tmp_path / "out", csv_file(tmp_path / "r.csv", [*LINES, *LINES[40:70]]))
    assert cells_of(shards, *SPLITS) == CELLS


def test_interactions_are_counted_and_likes_made_of_ratings(tmp_path: Path) -> None:
    clicks = [line[:2] for line in LINES] + [line[:2] for line in LINES[:50]]
    file = tmp_path / "clicks.csv"
    file.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in clicks))
    shards = sharded(tmp_path / "out", file)
    ratings, known = shards.ratings(*SPLITS), load(file, cache=False)
    assert ratings.implicit
    assert shards.weighted
    assert ratings.weights is not None
    assert ratings.weights.sum() == 550
    assert sorted(zip(ratings.users, ratings.items, strict=True)) == sorted(
        zip(known.users, known.items, strict=True)
    )
    liked = sharded(tmp_path / "liked", csv_file(tmp_path / "r.csv", LINES), min_rating=4.0)
    assert not liked.weighted
    assert set(cells_of(liked, *SPLITS)) == {(u, i) for u, i, star in LINES if star >= 4}


def test_continuous_ratings_are_binned_over_all_files(tmp_path: Path) -> None:
    draw = random.Random(2)
    some = [(u, i, round(draw.uniform(-10, 10), 4)) for u, i, _ in LINES]
    files = [parquet_file(tmp_path / f"{n}.parquet", some[n::3]) for n in range(3)]
    with pytest.raises(DataError, match=r"continuous.*bins="):
        sharded(tmp_path / "none", *files)
    shards = sharded(tmp_path / "out", *files, bins=10)
    known = load(csv_file(tmp_path / "all.csv", some), bins=10, cache=False)
    assert shards.scale == known.scale
    assert np.bincount(shards.ratings(*SPLITS).levels).tolist() == (
        np.bincount(known.levels).tolist()
    )


# -- bad input ------------------------------------------------------------------------------------


def test_a_bad_line_is_named_by_its_place_in_the_whole_file(tmp_path: Path) -> None:
    bad: list[Line] = [*LINES]
    text = csv_file(tmp_path / "r.csv", bad).read_text().splitlines()
    text[333] = "12,13,many"
    for name, content in (("r.csv", "\n".join(text)), ("r.csv.gz", "")):
        file = tmp_path / name
        if content:
            file.write_text(content)
        else:
            file.write_bytes(gzip.compress("\n".join(text).encode()))
        with pytest.raises(CfnadeError, match=rf"{name}:334: rating 'many' is not a number"):
            sharded(tmp_path / f"out {name}", file)


def test_a_rating_off_the_scale_is_named_by_its_place(tmp_path: Path) -> None:
    some = [*LINES]
    some[222] = (*some[222][:2], 9.0)
    with pytest.raises(DataError, match=r"r\.csv:224: rating 9 is off the scale 1–5"):
        sharded(tmp_path / "out", csv_file(tmp_path / "r.csv", some), scale="1-5")
    with pytest.raises(DataError, match=r"row 222: rating 9 is off the scale"):
        sharded(tmp_path / "two", parquet_file(tmp_path / "r.parquet", some), scale="1-5")


def test_ratings_beside_interactions_are_refused(tmp_path: Path) -> None:
    rated = csv_file(tmp_path / "r.csv", LINES)
    (tmp_path / "c.csv").write_text("user,item\n1,2\n3,4\n")
    with pytest.raises(DataError, match=r"r\.csv has ratings and .*c\.csv has none"):
        sharded(tmp_path / "out", rated, tmp_path / "c.csv")


# -- stopped and gone on with ---------------------------------------------------------------------


KILLED = """
import os, signal, sys
from cfnade.distributed import input_files, sql
from cfnade.distributed.build_shards import build_shards
input_files.BYTES, left = 1500, [int(sys.argv[3])]
run = sql.DuckDb._run
def counted(self, statement):
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return run(self, statement)
sql.DuckDb._run = counted
build_shards([sys.argv[1]], sys.argv[2], n_workers=1)
"""


def killed(file: Path, out: Path, statements: int) -> None:
    """Shard in a process that ends itself before a statement."""
    path = {"PYTHONPATH": str(Path(cfnade.__file__).parents[1])}
    command = [sys.executable, "-c", KILLED, str(file), str(out), str(statements)]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, timeout=240)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize("statements", [1, 5, 10, 12])
def test_a_killed_job_resumes_and_reads_no_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: int
) -> None:
    file, out = csv_file(tmp_path / "r.csv", LINES), tmp_path / "out"
    killed(file, out, statements)
    assert ShardedRatings.is_one(out)
    assert not (out / "manifest.json").exists()
    whole = build_shards([file], tmp_path / "whole", n_workers=1)
    monkeypatch.setattr(build, "iter_tables", None)
    shards = build_shards([file], out, n_workers=1)
    assert cells_of(shards, *SPLITS) == CELLS
    assert content(shards) == content(whole)
    assert not (out / "work").exists()
    assert not list(out.rglob("*.part"))


def test_another_job_does_not_continue_it(tmp_path: Path) -> None:
    file, out = csv_file(tmp_path / "r.csv", LINES), tmp_path / "out"
    killed(file, out, 8)
    with pytest.raises(DataError, match="holds another job: seed was 0 and is 1"):
        sharded(out, file, side="both", seed=1)
    csv_file(file, LINES[1:])
    with pytest.raises(DataError, match=r"r\.csv is new, gone or changed"):
        sharded(out, file, side="both")
    shards = build_shards([file], out, ONE, n_workers=1, overwrite=True)
    with pytest.raises(DataError, match="no such file"):  # which must not cost the shards
        build_shards([tmp_path / "typo.csv"], out, ONE, overwrite=True)
    assert ShardedRatings.open(out).fingerprint == shards.fingerprint
    with pytest.raises(DataError, match="holds another job: valid was"):
        sharded(out, file, valid=0.5)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(DataError, match="is not empty"):
        sharded(tmp_path / "full", file)


def test_more_ratings_leave_the_split_of_the_others(tmp_path: Path) -> None:
    fewer = sharded(tmp_path / "fewer", csv_file(tmp_path / "fewer.csv", LINES[:300]), valid=0.3)
    more = sharded(tmp_path / "more", csv_file(tmp_path / "more.csv", LINES), valid=0.3)
    for before, after in zip(content(fewer), content(more), strict=True):
        assert before.items() <= after.items()
