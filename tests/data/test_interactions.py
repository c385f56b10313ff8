"""Interactions: clicks, plays and purchases are read, weighted, stored and split."""

from __future__ import annotations

import logging
import math
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.datasets import triples

from cfnade import DataError, load, load_split, split
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.readers.tables import write_parquet
from cfnade.data.scale import Scale
from cfnade.data.summary import summarize

Line = tuple[int, int, int, int]  # user, item, count, time


def saved(tmp_path: Path, text: str, name: str = "plays.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def lines_of(count: int, seed: int = 0, users: int = 12, items: int = 9) -> list[Line]:
    draw = np.random.default_rng(seed)
    columns = (draw.integers(1, high, count).tolist() for high in (users, items, 6, 10**9))
    return list(zip(*columns, strict=True))


def played(count: int = 60, **options: Any) -> Dataset:
    frame = pl.DataFrame(lines_of(count), schema=["user", "item", "plays", "time"], orient="row")
    return load(frame, **options)


# -- counting --------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    st.lists(st.tuples(*(st.integers(1, n) for n in (4, 4, 30, 50))), min_size=1, max_size=40),
    st.sampled_from(["linear", "log"]),
)
def test_weights_of_a_pair_are_summed(lines: list[Line], weights: Any) -> None:
    total: dict[tuple[int, int], int] = defaultdict(int)
    latest: dict[tuple[int, int], int] = defaultdict(int)
    order: dict[tuple[int, int], None] = {}
    for user, item, count, time in lines:
        total[user, item] += count
        latest[user, item] = max(latest[user, item], time)
        order.pop((user, item), None)  # the last line says where it stands
        order[user, item] = None
    frame = pl.DataFrame(lines, schema=["user", "item", "plays", "time"], orient="row")
    ratings = load(frame, weighting=weights)
    weigh = math.log if weights == "log" else None
    expected = [1 + weigh(total[pair]) if weigh else total[pair] for pair in order]
    assert [(u, i) for u, i, _ in triples(ratings)] == list(order)
    np.testing.assert_allclose([w for *_, w in triples(ratings)], expected, rtol=1e-6)
    assert ratings.times is not None
    assert ratings.times.tolist() == [latest[pair] for pair in order]
    assert (ratings.weights is None) == all(weight == 1 for weight in expected)
    assert ratings.implicit
    assert not ratings.levels.any()


def test_without_counts_every_line_counts_once(tmp_path: Path) -> None:
    path = saved(tmp_path, "user,item\nann,up\nbob,up\nann,up\nann,jaws\n")
    assert triples(load(path)) == [("bob", "up", 1), ("ann", "up", 2), ("ann", "jaws", 1)]
    assert load(saved(tmp_path, "user,item\nann,up\nbob,up\n")).weights is None


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ("0", r"plays\.csv:3: weight 0: a weight must be above 0"),
        ("-2", r"plays\.csv:3: weight -2: a weight must be above 0"),
        ("nan", r"plays\.csv:3: weight nan is not a finite number"),
        ("inf", r"plays\.csv:3: weight inf is not a finite number"),
        ("1e39", r"plays\.csv:3: weight 1e\+39: a weight must be in 1e-30\.\.1e\+30"),
        ("1e-60", r"plays\.csv:3: weight 1e-60: a weight must be in 1e-30"),
        ("much", r"plays\.csv:3: weight 'much' is not a number;.*weight="),
        ("", r"plays\.csv:3: the weight is missing"),
    ],
)
def test_invalid_weights_are_located_or_skipped(tmp_path: Path, count: str, message: str) -> None:
    path = saved(tmp_path, f"user,item,count\n1,2,3\n1,3,{count}\n2,3,1\n")
    with pytest.raises(DataError, match=message):
        load(path)
    assert triples(load(path, weight=False)) == [(1, 2, 1), (1, 3, 1), (2, 3, 1)]
    if "e" not in count:
        assert triples(load(path, skip_bad_lines=True)) == [(1, 2, 3), (2, 3, 1)]


def test_fractions_are_weights_without_logarithm() -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "item": [7, 7], "weight": [0.25, 3.5]})
    assert triples(load(frame)) == [("a", 7, 0.25), ("b", 7, 3.5)]
    with pytest.raises(
        DataError, match=r"user a, item 7: weighs 0\.25 in all.*weighting=\"linear\""
    ):
        load(frame, weighting="log")


# -- what is taken for interactions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("user,item\n1,5\n2,5\n", "user, item)"),
        ("userID\tartistID\tweight\n1\t5\t3\n2\t5\t1\n", "user userID, item artistID, weight)"),
        ("customer;sku;Qty;date\nx;5;3;2020-01-01\n", "user customer, item sku, time date, weight"),
        ("user,song,play_count\n1,5,3\n", "user, item song, weight play_count)"),
        ("user,movie\n1,The Big Sleep\n2,Out of Africa\n", "user, item movie)"),
        ("1 5\n2 5\n2 6\n", "columns: user 0, item 1"),
        ("1,5\n2,5\n2,6\n", "columns: user 0, item 1"),
        ("ann,5\nbob,5\n", "columns: user 0, item 1"),
        ("1,Up\n2,Out of Africa\n3,Jaws\n4,Alien\n", "columns: user 0, item 1"),
    ],
)
def test_implicit_feedback_is_detected_and_logged(
    tmp_path: Path, text: str, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cfnade")
    path = saved(tmp_path, text)
    for _ in range(2):  # parsed, and from the cache
        caplog.clear()
        assert load(path).implicit
        messages = [
            r.getMessage() for r in caplog.records if "taken as an interaction" in r.message
        ]
        assert len(messages) == 1
        assert (
            f"no column of ratings, so every line was taken as an interaction ({found}"
            in messages[0]
        )
        assert "rating=" in messages[0]


@pytest.mark.parametrize("header", ["user,item,avg_rating", "user,item,n_stars,my_score,a_score"])
def test_a_column_named_like_ratings_is_ambiguous(tmp_path: Path, header: str) -> None:
    path = saved(tmp_path, header + "\n" + ",".join("7" for _ in header.split(",")) + "\n")
    with pytest.raises(DataError, match=r"which column is the rating.*implicit=True"):
        load(path)
    assert triples(load(path, implicit=True)) == [(7, 7, 1)]


def test_equal_ratings_suggest_implicit(tmp_path: Path) -> None:
    path = saved(tmp_path, "user,item,rating\n1,2,1\n1,3,1\n")
    with pytest.raises(DataError, match=r"every rating is 1,.*implicit=True"):
        load(path)
    assert triples(load(path, implicit=True)) == [(1, 2, 1), (1, 3, 1)]


def test_a_column_of_ratings_can_be_given_as_counts() -> None:
    rows = [(1, 2, 3, 70), (1, 2, 4, 60), (2, 2, 5, 90)]
    ratings = load(rows, implicit=True, weight=2)
    assert triples(ratings) == [(1, 2, 7), (2, 2, 5)]
    assert ratings.times is not None
    assert ratings.times.tolist() == [70, 90]
    assert triples(load([row[:3] for row in rows], weight=2)) == triples(ratings)
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    assert triples(load(frame, implicit=True, weight="rating")) == triples(ratings)


# -- tables in memory ------------------------------------------------------------------------------

PAIRS = [(1, 10), (1, 11), (2, 10), (4, 12)]
FRAME = pl.DataFrame(PAIRS, schema=["user", "item"], orient="row")
PLACES = tuple(np.array(PAIRS).T)


@pytest.mark.parametrize(
    "data",
    [
        PAIRS,
        np.array(PAIRS),
        {1: [10, 11], 2: (10,), 3: [], 4: np.array([12])},
        sp.csr_array((np.ones(4), PLACES)),
        sp.csr_matrix((np.full(4, 3), PLACES)),
        sp.coo_array((np.ones(4, bool), PLACES)),
    ],
    ids=lambda data: type(data).__name__,
)
def test_containers_give_the_interactions_of_the_frame(data: Any) -> None:
    assert load(data) == load(FRAME)
    assert load(data).implicit
    assert load(data, implicit=True, weight=False) == load(FRAME)


def test_counts_of_matrices_and_dicts_are_weights() -> None:
    matrix = sp.csr_array(([2, 5, 1, 7], PLACES))
    expected = [(1, 10, 2), (1, 11, 5), (2, 10, 1), (4, 12, 7)]
    assert triples(load(matrix, implicit=True)) == expected
    assert triples(load({1: {10: 2, 11: 5}, 2: {10: 1}, 4: {12: 7}}, implicit=True)) == expected
    assert load(matrix, implicit=True, weight=False) == load(FRAME)
    assert not load(matrix).implicit


# -- options ---------------------------------------------------------------------------------------

RATED = "user,item,rating,count\n1,2,3,9\n1,3,5,9\n2,3,4,9\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"implicit": True, "duplicates": "last"},
            "duplicates= is for ratings",
        ),
        ({"implicit": True, "scale": "1-5"}, "scale= is for ratings"),
        ({"implicit": True, "bins": 3}, "bins= is for ratings"),
        (
            {"implicit": True, "min_rating": 4},
            "min_rating= turns ratings into interactions; these are some",
        ),
        ({"min_rating": 4, "scale": "1-5"}, "scale= is for ratings"),
        ({"min_rating": 6}, "min_rating=6: no rating is as high, the highest is 5"),
        ({"min_rating": float("nan")}, r"min_rating \(=nan\) must be a number, or None"),
        ({"min_rating": "4"}, r"min_rating \(='4'\) must be a number, or None"),
        ({"weighting": "log"}, "weighting= says what counts.*these are ratings.*implicit=True"),
        ({"weighting": "cubic"}, r"weighting \(='cubic'\) must be one of linear, log"),
        ({"weight": "count"}, "weight=.count. is for interactions.*implicit=True"),
        ({"weight": "nothing"}, 'weight="nothing" is no column'),
        ({"user": "-"}, 'user="-" is no column'),
    ],
)
def test_contradictory_options_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load(saved(tmp_path, RATED), **options)


def test_min_rating_keeps_high_ratings(tmp_path: Path) -> None:
    path = saved(tmp_path, RATED)
    assert triples(load(path, min_rating=4)) == [(1, 3, 1), (2, 3, 1)]
    assert load(path, min_rating=4).item_ids.tolist() == [3]
    assert load(path, min_rating=3.5) == load(path, min_rating=4)
    assert triples(load(path, implicit=True)) == [(1, 2, 9), (1, 3, 9), (2, 3, 9)]


# -- real data -------------------------------------------------------------------------------------


def test_a_published_set_becomes_interactions(real_data: Path) -> None:
    text = zipfile.ZipFile(real_data / "ml-100k.zip").read("ml-100k/u.data").decode()
    lines = [[int(field) for field in line.split("\t")] for line in text.splitlines()]
    good = [(user, item) for user, item, stars, _ in lines if stars >= 4]
    liked = load("ml-100k", min_rating=4)
    assert [(user, item) for user, item, _ in triples(liked)] == good
    assert liked.n_items == len({item for _, item in good})
    every = load("ml-100k", implicit=True)
    assert (len(every), every.implicit, every.weights) == (100_000, True, None)
    parts = load_split("ml-100k", "u1", min_rating=4)
    assert len(parts.train) + len(parts.valid) + len(parts.test) == len(liked)
    assert len(load_split("ml-100k", "u1", implicit=True).test) == 20_000


# -- fingerprint, cache and files ------------------------------------------------------------------


def test_fingerprints_without_weights_are_stable() -> None:
    ratings = Ratings(
        users=np.array([0, 1, 1], np.int32),
        items=np.array([1, 0, 1], np.int32),
        levels=np.array([0, 4, 2], np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.array([7, 9]),
        item_ids=np.array(["a", "b"], object),
        times=np.array([5, 6, 7], np.int32),
        titles=np.array(["A", ""], object),
        source="made",
    )
    assert ratings.fingerprint == "6b66c8255f973866af6cd187c6245b92"
    cells = [(u, i, 1 + (u * i) % 5) for u in range(20) for i in range(20)]
    parts = split(load(cells), "paper:1")
    assert parts.fingerprint == "060be6ffe7ee146d1347b6c39991a596"


def test_every_option_is_part_of_the_key_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFNADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating,time\n1,1,5,1\n1,2,4,2\n2,1,3,3\n")
    changed: list[dict[str, Any]] = [
        {"min_rating": 4},
        {"min_rating": 4, "weighting": "log"},
        {"implicit": True},
        {"time": False},
        {"bins": np.array([0.0, 2.0, 6.0])},
        {"bins": np.array([0.0, 3.5, 6.0])},
        {},
    ]
    for options in changed:
        load(path, **options)
    assert len(list((tmp_path / "cache" / "parsed").glob("*"))) == len(changed)


def test_weights_are_part_of_the_fingerprint_and_of_the_repr() -> None:
    linear, log = played(), played(weighting="log")
    assert linear.fingerprint != log.fingerprint
    assert "interactions of 8 items by 11 users, with weights, times>" in repr(linear)
    assert "scale" not in repr(linear)


def test_folders_and_parquet_files_are_read_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = [played(weighting="log"), played(40, weight=False)]
    caplog.set_level(logging.INFO, "cfnade")
    caplog.clear()
    for ratings in made:
        ratings.save(tmp_path / "kept")
        assert Dataset.open(tmp_path / "kept") == ratings
        write_parquet(ratings, tmp_path / "own.parquet")
        assert load(tmp_path / "own.parquet") == ratings
        assert "rating" not in pl.read_parquet_schema(tmp_path / "own.parquet")
    assert "taken as" not in caplog.text  # the file says it itself


# -- splits ----------------------------------------------------------------------------------------


def test_the_liang_protocol_treats_likes_as_interactions() -> None:
    draw = np.random.default_rng(5)
    cells = np.argwhere(draw.random((60, 30)) < 0.4)
    stars = draw.integers(1, 6, len(cells))
    ratings = np.column_stack([cells, stars])
    likes = ratings[stars >= 4]

    def pairs(dataset: Dataset) -> list[tuple[Any, Any]]:
        return [(user, item) for user, item, _ in triples(dataset)]

    high_ratings = split(load(likes, scale="1-5"), "liang:10")
    interactions = split(load(ratings, min_rating=4), "liang:10")
    for part, expected in high_ratings.parts().items():
        assert pairs(interactions.parts()[part]) == pairs(expected)
        assert len(expected) > 0
    assert pairs(split(load(likes[:, :2]), "liang:10").test) == pairs(high_ratings.test)
    all_ratings = split(load(ratings), "liang:10")
    assert pairs(all_ratings.test) == pairs(high_ratings.test)
    assert pairs(all_ratings.valid) == pairs(high_ratings.valid)
    with pytest.raises(
        DataError, match=r"liang:40 .* 39 users with 5 interactions; some must remain"
    ):
        split(load(ratings, min_rating=4), "liang:40")


def test_a_summary_counts_weights() -> None:
    summary = summarize(load({"ann": ["up", "up", "jaws"], "bob": ["up"]}))
    assert summary.implicit
    assert summary.weights is not None
    assert (summary.weights.min, summary.weights.max, summary.weights.total) == (1, 2, 4)
    assert summary.histogram == [3]
    assert summarize(load(PAIRS)).weights is None
