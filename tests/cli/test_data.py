"""`cfnade data …` as a person at a shell meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfnade import load

CSV = "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n1,1029,3.0,1260759179\n"
CSV += "7,31,5.0,851868750\n"


Shell = Any


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(CSV)
    return path


def test_info_for_a_machine(shell: Shell, csv: Path) -> None:
    done = shell("data", "info", csv, "--json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert (facts["ratings"], facts["users"], facts["items"], facts["levels"]) == (3, 2, 2, 6)
    assert facts["scale"] == [2.5, 3.0, 3.5, 4.0, 4.5, 5.0]
    assert facts["histogram"] == [1, 1, 0, 0, 0, 1]
    assert (facts["first"], facts["last"]) == ("1996-12-29T14:12:30Z", "2009-12-14T02:52:59Z")
    assert facts["density"] == 0.75
    assert facts["fingerprint"] == load(csv).fingerprint


def test_info_for_a_person_says_the_format_and_draws_the_ratings(shell: Shell, csv: Path) -> None:
    done = shell("data", "info", csv)
    assert done.code == 0
    assert "comma-separated text with header" in done.err
    for text in ("ratings", "75 % of all cells", "2.5–5 by 0.5 (6 levels)", "█", "33.3 %"):
        assert text in done.out


def test_a_thousand_levels_are_drawn_in_few_bars(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "fine.csv"
    path.write_text("user,item,rating\n" + "".join(f"{i},1,{i}\n" for i in range(1, 101)))
    done = shell("data", "info", path)
    assert done.out.count("█") > 0
    assert "96–100" in done.out


def test_options_say_how_to_read(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("4;a;x\n2;b;x\n4;b;x\n")
    done = shell(
        "data", "info", path, "--json", "--user", "2", "--item", "1", "--rating", "0",
        "--scale", "1-5", "--duplicates", "last", "--no-header",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["ratings"] == 2
    assert json.loads(done.out)["scale"] == [1, 2, 3, 4, 5]


def test_convert_gives_back_the_same_ratings(shell: Shell, csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "own.parquet"
    done = shell("data", "convert", csv, out)
    assert done.code == 0
    assert "3 ratings" in done.out
    assert load(out) == load(csv)
    assert list(pl.read_parquet_schema(out)) == ["user", "item", "rating", "timestamp"]


def test_split_writes_the_parts_and_says_which(shell: Shell, csv: Path, tmp_path: Path) -> None:
    rows = "".join(f"{u},{i},{1 + (u * i) % 5}\n" for u in range(1, 11) for i in range(1, 11))
    csv.write_text("user,item,rating\n" + rows)
    out = tmp_path / "parts"
    done = shell("data", "split", csv, "paper:3", "--out", out)
    assert done.code == 0
    sizes = [len(load(out / f"{part}.parquet")) for part in ("train", "valid", "test")]
    facts = json.loads((out / "split.json").read_text())
    assert facts["ratings"] == dict(zip(("train", "valid", "test"), sizes, strict=True))
    assert sum(sizes) == 100
    assert facts["split"] == "paper:3"
    assert not (out / "fold_in.parquet").exists()


def test_bad_lines_are_an_error_that_names_the_option_or_left_out_and_shown(
    shell: Shell, csv: Path
) -> None:
    csv.write_text(CSV + "8,31,good,851868750\n9,31\n")
    done = shell("data", "info", csv)
    assert done.code == 1
    assert "own.csv:6: the line has 2 fields" in done.err
    assert "leave such lines out with --skip-bad-lines" in done.err
    for _ in range(2):  # parsed, and from the cache
        done = shell("data", "info", csv, "--json", "--skip-bad-lines")
        assert "skipped 2 bad lines (line 5: rating 'good' is not a number; line 6: " in done.err
        assert json.loads(done.out)["ratings"] == 3


def test_columns_that_cannot_be_told_are_asked_for_by_option(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("whose,which,how much\nann,alien,5\nbob,alien,4\n")
    done = shell("data", "info", path)
    assert done.code == 1
    assert "with --user, --item, --rating" in done.err
    assert "    whose,which,how much\n    ann,alien,5\n" in done.err


# -- interactions --------------------------------------------------------------------------------

PLAYS = "listener,song,plays\nann,up,3\nbob,up,1\nann,up,4\nbob,down,1\n"


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    path = tmp_path / "plays.csv"
    path.write_text(PLAYS)
    return path


def test_a_file_without_ratings_is_said_to_be_interactions(shell: Shell, plays: Path) -> None:
    done = shell("data", "info", plays)
    assert done.code == 0, done.err
    assert done.err.count("no column of ratings, so every line was taken as an interaction") == 1
    assert "(user listener, item song, weight plays)" in done.err
    assert "--rating" in done.err
    for words in (
        "3 of 2 items by 2 users, 75 % of all cells",
        "1 to 7, median 1, mean 3, 9 in all",
    ):
        assert words in done.out
    assert "rating" not in done.out
    assert "█" not in done.out


def test_interactions_are_converted_and_split(shell: Shell, plays: Path, tmp_path: Path) -> None:
    out = tmp_path / "plays.parquet"
    done = shell("data", "convert", plays, out)
    assert "3 interactions" in done.out
    assert load(out) == load(plays)
    plays.write_text("user,item\n" + "".join(f"{u},{i}\n" for u in range(9) for i in range(9)))
    done = shell("data", "split", plays, "liang:2", "--out", tmp_path / "parts")
    assert done.code == 0, done.err
    assert "test.parquet: 2 interactions" in done.out
    assert load(tmp_path / "parts" / "test.parquet").implicit


def test_a_split_does_not_replace_another_one(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    rows = [f"{u},{i},{1 + u * i % 5}" for u in range(20) for i in range(20)]
    path.write_text("\n".join(["user,item,rating", *rows]) + "\n")
    for seed, code in ((0, 0), (0, 0), (1, 1)):
        done = shell("data", "split", path, f"paper:{seed}", "--out", tmp_path / "parts")
        assert done.code == code, done
    assert "has another split" in done.said
