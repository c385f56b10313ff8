"""Data without ratings, as it is kept, cut and summed up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.data.plays import played, triples

from cfnade import DataError, load, split
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.readers.tables import write_parquet
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.data.splits import split_from_files
from cfnade.data.summary import summarize

RATED = "user,item,rating,count\n1,2,3,9\n1,3,5,9\n2,3,4,9\n"
PAIRS = [(1, 10), (1, 11), (2, 10), (4, 12)]

# -- kept ------------------------------------------------------------------------------------------


def test_data_without_weights_has_the_fingerprint_that_it_had_before_there_were_any() -> None:
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
    assert len(list((tmp_path / "cache" / "parsed").glob("*.json"))) == len(changed)


def test_weights_are_part_of_the_fingerprint_and_of_the_words() -> None:
    linear, log = played(), played(weighting="log")
    assert linear.fingerprint != log.fingerprint
    assert "interactions of 8 items by 11 users, with weights, times>" in repr(linear)
    assert "scale" not in repr(linear)


def test_store_and_parquet_give_the_same_again(
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


def test_weights_follow_their_pairs() -> None:
    whole = played()
    by_pair = {(u, i): w for u, i, w in triples(whole)}
    mask = np.arange(len(whole)) % 3 == 0
    part, rest = whole.select(mask), whole.select(np.flatnonzero(~mask))
    assert all(by_pair[u, i] == w for u, i, w in triples(part) + triples(rest))
    assert triples(rest.concat(part)) == triples(rest) + triples(part)
    with pytest.raises(DataError, match="only subsets of one data set"):
        part.concat(load(PAIRS))
    assert whole.weights is not None
    with pytest.raises(ValueError, match="read-only"):
        whole.weights[0] = 3


def test_two_files_become_one_whole_with_weights() -> None:
    def of(rows: list[Any]) -> Dataset:
        return load(pl.DataFrame(rows, schema=["user", "item", "count"], orient="row"))

    train = of([(u, i, u + i) for u in range(1, 9) for i in range(1, 9)])
    test = of([(u, 9, 1) for u in range(1, 9)])  # each once, so without weights
    parts = split_from_files(train, test, name="file:x")
    found = {(u, i): w for part in parts.parts().values() for u, i, w in triples(part)}
    assert found == {(u, i): (1 if i == 9 else u + i) for u in range(1, 9) for i in range(1, 10)}
    with pytest.raises(DataError, match="one part holds ratings, the other interactions"):
        split_from_files(train, load([(1, 9, 3), (2, 9, 4)]), name="file:x")


# -- splits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["paper:1", "authors:1234", "kfold:4:1", "time", "time:0.3", "users:1:3", "last:1"]
)
def test_every_interaction_is_in_one_part_with_its_weight(name: str) -> None:
    whole = played(90)
    parts = split(whole, name).parts().values()
    together = [triple for part in parts for triple in triples(part)]
    assert sorted(together) == sorted(triples(whole))
    assert all(part.implicit for part in parts)


def test_the_last_of_a_pair_that_came_again_is_its_latest() -> None:
    rows = [("a", 1, 10), ("a", 2, 20), ("a", 3, 30), ("a", 1, 40)]
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    parts = split(load(frame), "last:1")
    assert [triples(part) for part in (parts.train, parts.valid, parts.test)] == [
        [("a", 2, 1)],
        [("a", 3, 1)],
        [("a", 1, 2)],
    ]


def test_the_protocol_of_liang_sees_likes_and_interactions_alike() -> None:
    draw = np.random.default_rng(5)
    cells = np.argwhere(draw.random((60, 30)) < 0.4)
    stars = draw.integers(1, 6, len(cells))
    rated = np.column_stack([cells, stars])
    only_likes = load(rated[stars >= 4], scale="1-5")
    of_likes, of_clicks = (
        split(only_likes, "liang:10"),
        split(load(rated, min_rating=4), "liang:10"),
    )
    for part, expected in of_likes.parts().items():
        assert triples(of_clicks.parts()[part]) == triples(expected)
        assert len(expected) > 0
    pairs = split(load(rated[stars >= 4][:, :2]), "liang:10")
    assert triples(pairs.test) == triples(of_likes.test)
    with_the_rest = split(load(rated), "liang:10")
    assert triples(with_the_rest.test) == triples(pairs.test)
    assert triples(with_the_rest.valid) == triples(pairs.valid)
    with pytest.raises(
        DataError, match=r"liang:40 .* 39 users with 5 interactions; some must remain"
    ):
        split(load(rated, min_rating=4), "liang:40")


# -- the one level ---------------------------------------------------------------------------------


def test_the_scale_of_interactions_has_one_level() -> None:
    assert len(INTERACTIONS) == 1
    assert INTERACTIONS.default_threshold == 1
    assert INTERACTIONS.nearest(np.array([1.0, 7.0])).tolist() == [0, 0]
    with pytest.raises(DataError, match="needs 2 to 255 levels, got 1"):
        Scale((3.0,))
    with pytest.raises(DataError, match="needs 2 to 255 levels, got 1"):
        load([(1, 2, 1), (1, 3, 1)], scale=[1])


def test_a_summary_counts_weights() -> None:
    summary = summarize(load({"ann": ["up", "up", "jaws"], "bob": ["up"]}))
    assert summary.implicit
    assert summary.weights is not None
    assert (summary.weights.min, summary.weights.max, summary.weights.total) == (1, 2, 4)
    assert summary.histogram == [3]
    assert summarize(load(PAIRS)).weights is None
