"""Commands on ratings from a pipe, an address or a database, which are found again later."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Shell
from tests.support.site import LOGIN, Site, site

__all__ = ["site"]
TINY = ("--epochs", "2", "--ridge", "0", "--hidden", "4")
QUERY = "select userId, movieId, rating from reviews"


def send(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def unrated(ratings_file: Path) -> list[tuple[int, int, int]]:
    """Ratings that are not in the file, for cells of its users and items."""
    rated = set(pl.read_csv(ratings_file).select("userId", "movieId").rows())
    free = [(u, i) for u in range(60) for i in range(40) if (u, i) not in rated]
    return [(u, i, 1 + (u + i) % 5) for u, i in free[:25]]


def as_text(rows: list[tuple[int, int, int]]) -> bytes:
    return b"".join(b"%d,%d,%d\n" % row for row in rows)


def test_a_model_of_a_pipe_is_evaluated_and_gone_on_with(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, ratings_file: Path, tmp_path: Path
) -> None:
    content, out = ratings_file.read_bytes(), tmp_path / "m"
    send(monkeypatch, content)
    trained = shell("train", "-", "--out", out, "--keep-state", *TINY)
    assert trained.code == 0, trained.said
    assert "standard input: stored as " in trained.err
    assert shell("evaluate", out).code == 0
    assert shell("train", "--resume", "--out", out).code == 0
    send(monkeypatch, content)
    assert shell("train", "-", "--resume", "--out", out).code == 0
    send(monkeypatch, content + b"999,1,3,1\n")
    other = shell("train", "-", "--resume", "--out", out)
    assert "--resume: DATA was" in other.said
    send(monkeypatch, as_text(unrated(ratings_file)))
    assert json.loads(shell("evaluate", out, "-", "--json").out)["n"] == 25


def test_a_model_whose_pipe_left_the_cache_says_what_to_do(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    ratings_file: Path,
    tmp_path: Path,
    own_cache: Path,
) -> None:
    send(monkeypatch, ratings_file.read_bytes())
    assert shell("train", "-", "--out", tmp_path / "m", *TINY).code == 0
    shutil.rmtree(own_cache)
    assert "no longer in the cache" in shell("evaluate", tmp_path / "m").said
    send(monkeypatch, ratings_file.read_bytes())
    assert shell("data", "info", "-").code == 0
    assert shell("evaluate", tmp_path / "m").code == 0


def test_other_commands_take_pipes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [(u, i, 1 + (u + i) % 5) for u in range(20) for i in range(9)]
    for command in (
        ["data", "info", "-"],
        ["data", "convert", "-", f"{tmp_path}/x.parquet"],
        ["data", "split", "-", "paper:0", "--out", f"{tmp_path}/parts"],
    ):
        send(monkeypatch, as_text(rows))
        done = shell(*command)
        assert done.code == 0, done.said
    assert pl.read_parquet(tmp_path / "x.parquet").rows() == rows


def test_a_model_of_a_database_needs_it_only_once(
    shell: Shell, ratings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("shop.db")
    connection.execute("create table reviews (userId int, movieId int, rating real)")
    rows = pl.read_csv(ratings_file).select("userId", "movieId", "rating").rows()
    connection.executemany("insert into reviews values (?, ?, ?)", rows)
    connection.execute("create table later (user int, item int, rating int)")
    connection.executemany("insert into later values (?, ?, ?)", unrated(ratings_file))
    connection.commit()
    connection.close()
    assert "say which rows with --query" in shell("train", "sqlite:///shop.db", "--out", "m").said
    trained = shell(
        "train", "sqlite:///shop.db", "--query", QUERY, "--out", "m", "--keep-state", *TINY
    )
    assert trained.code == 0, trained.said
    new = "select * from later"
    converted = shell("data", "convert", "sqlite:///shop.db", "new.parquet", "--query", new)
    assert converted.code == 0, converted.said
    scored = shell("evaluate", "m", "new.parquet", "--json")
    assert {"on": "new.parquet", "n": 25}.items() <= json.loads(scored.out).items()
    Path("shop.db").unlink()
    assert shell("evaluate", "m").code == 0
    assert shell("train", "--resume", "--out", "m").code == 0


def test_no_password_is_shown_or_kept_with_a_model(
    shell: Shell, site: Site, ratings_file: Path, tmp_path: Path, own_cache: Path
) -> None:
    site.files["/private.csv"] = ratings_file.read_bytes()
    address = site.home.replace("http://", "http://me:s%40cret@") + "/private.csv?token=abcdef"
    trained = shell("train", address, "--out", tmp_path / "m", *TINY)
    assert trained.code == 0, trained.said
    assert site.logins == [LOGIN]
    again = shell("evaluate", tmp_path / "m")
    assert (again.code, len(site.asked)) == (0, 1)
    site.files["/later.csv"] = as_text(unrated(ratings_file))
    later = address.replace("private", "later")
    scored = shell("evaluate", tmp_path / "m", later, "--json")
    assert scored.code == 0, scored.said
    job = json.loads((tmp_path / "m" / "run.json").read_text())
    assert Path(job["data"]).is_relative_to(own_cache)  # the download, for the address is secret
    written = [*(tmp_path / "m").rglob("*"), *own_cache.rglob("*")]
    everything = trained.out + trained.err + scored.out + scored.err + again.out + again.err
    everything += " ".join(map(str, written))
    everything += "".join(p.read_text("latin-1") for p in written if p.is_file())
    assert not [secret for secret in ("s%40cret", "s@cret", "abcdef") if secret in everything]


def test_rivals_are_compared_on_a_pipe(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, ratings_file: Path, tmp_path: Path
) -> None:
    send(monkeypatch, ratings_file.read_bytes())
    done = shell("compare", "-", "--models", "means", "--out", tmp_path / "c", "--json")
    assert done.code == 0, done.said
    assert json.loads(done.out)["data"] == "-"
