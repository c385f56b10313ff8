"""Files in, Parquet out: what counts is what was brought in, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cli.conftest import Shell
from tests.cli.conftest import shell as shell  # the fixture

from cfnade import CFNADE, load
from cfnade.data.dataset import Dataset
from cfnade.data.readers.tables import write_parquet
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import DataError, StoreError
from cfnade.online.bulk import import_events, ratings_frame, scale_of
from cfnade.online.event_store import Event, EventStore
from cfnade.online.prequential import (
    LoggedPrediction,
    log_predictions,
    online_error,
    summarize,
)


def triples(ratings: Dataset) -> set[tuple[object, ...]]:
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    times = np.zeros(len(ratings)) if ratings.times is None else ratings.times
    columns = users.tolist(), items.tolist(), ratings.values.tolist(), times.tolist()
    return set(zip(*columns, strict=True))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    ratings = synthetic(30, 20, 300, seed=1, times=True).ratings
    write_parquet(ratings, tmp_path / "made.parquet")
    return tmp_path / "made.parquet"


def test_what_came_in_comes_out_again(
    store: EventStore, place: str, made: Path, tmp_path: Path, shell: Shell
) -> None:
    said = shell("store", "import", place, made)
    assert (said.code, "300 events imported" in said.out) == (0, True), said
    assert shell("store", "export", place, tmp_path / "out.parquet").code == 0
    file = load(made)
    assert triples(load(tmp_path / "out.parquet")) == triples(file)
    again = load(f"store:{place}")
    assert triples(again) == triples(file)
    assert again.scale == file.scale
    said = shell("store", "import", place, made)
    assert "0 events imported; 300 skipped" in said.out  # once more changes nothing
    assert summarize(store).n_events == 300


@pytest.mark.usefixtures("store")
def test_titles_come_along(place: str, ratings_file: Path, shell: Shell) -> None:
    assert shell("store", "import", place, ratings_file.parent).code == 0
    file, kept = load(ratings_file.parent), load(f"store:{place}")
    assert kept.titles is not None
    assert file.titles is not None
    assert kept.titles.tolist() == file.titles.tolist()
    assert triples(kept) == triples(file)


@pytest.fixture
def ratings_file(tmp_path: Path) -> Path:
    (tmp_path / "ml").mkdir()
    films = "movieId,title,genres\n" + "".join(f"{i},Film {i} (1990),Drama\n" for i in range(4))
    (tmp_path / "ml" / "movies.csv").write_text(films)
    rows = "".join(f"{u},{i},{1 + (u + i) % 5},{100 + u}\n" for u in range(3) for i in range(4))
    (tmp_path / "ml" / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + rows)
    return tmp_path / "ml" / "ratings.csv"


def test_withdrawn_is_gone_and_changed_is_changed(store: EventStore) -> None:
    table = pl.DataFrame(
        {"user_id": ["1", "1", "2"], "item_id": ["a", "b", "a"], "rating": [1, 2, 3]}
    )
    import_events(store, table.with_columns(timestamp=pl.lit(100)), source="test")
    store.append([Event("1", "a", "withdrawal"), Event("2", "a", "rating", 5.0)], 200)
    rows = ratings_frame(store).select("user", "item", "rating").rows()
    assert sorted(rows) == [(1, "b", 2.0), (2, "a", 5.0)]


def test_ids_are_numbers_only_if_all_are(store: EventStore) -> None:
    table = pl.DataFrame({"user_id": ["1", "2"], "item_id": ["7", "007"], "rating": [1.0, 2.0]})
    import_events(store, table, source="test")
    counts = ratings_frame(store)
    assert counts["user"].to_list() == [1, 2]
    assert sorted(counts["item"].to_list()) == ["007", "7"]  # two items, not one


def test_an_import_is_all_or_nothing(store: EventStore) -> None:
    table = pl.DataFrame({"user_id": ["1", "a\0b"], "item_id": ["7", "8"], "rating": [1.0, 2.0]})
    with pytest.raises(StoreError, match="control character"):
        import_events(store, table, source="test")
    with pytest.raises(StoreError, match="there are no ratings in the store yet"):
        ratings_frame(store)


def test_a_failed_import_leaves_the_scale(
    store: EventStore, place: str, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "five.csv").write_text("user,item,rating\n1,5,1\n1,6,5\n2,5,3\n")
    (tmp_path / "long.csv").write_text(f"user,item,rating\n{'x' * 301},5,4.5\n1,7,2\n")
    assert shell("store", "import", place, tmp_path / "five.csv").code == 0
    failed = shell("store", "import", place, tmp_path / "long.csv", "--scale", "0.5-5/0.5")
    assert (failed.code, "has 301 characters" in failed.said) == (1, True), failed.said
    assert scale_of(store) == [1, 3, 5]
    (tmp_path / "long.csv").write_text("user,item,rating\n3,5,4.5\n1,7,2\n")
    done = shell("store", "import", place, tmp_path / "long.csv", "--scale", "0.5-5/0.5")
    assert done.code == 0, done.said
    assert scale_of(store) == [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]


@pytest.mark.usefixtures("store")
def test_clicks_are_interactions(place: str, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("user,item\n1,5\n1,6\n2,5\n")
    assert shell("store", "import", place, tmp_path / "clicks.csv").code == 0
    clicks = load(f"store:{place}")
    assert clicks.implicit
    assert len(clicks) == 3
    with pytest.raises(DataError):
        load(f"store:{place}", scale="1-5")


@pytest.mark.usefixtures("store")
def test_counts_are_not_kept_and_that_is_said(place: str, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,item,plays\n1,5,3\n1,6,9\n2,5,2\n")
    plays = tmp_path / "plays.parquet"
    done = shell("data", "convert", tmp_path / "plays.csv", plays, "--weight", "plays")
    assert done.code == 0, done.said
    done = shell("store", "import", place, plays)
    assert done.code == 0, done.said
    assert "note: counts are not stored" in done.err
    assert load(f"store:{place}").weights is None


def test_another_scale_is_refused(
    store: EventStore, place: str, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "five.csv").write_text("user,item,rating\n1,5,1\n1,6,5\n2,5,3\n")
    (tmp_path / "ten.csv").write_text("user,item,rating\n3,5,10\n3,6,9\n4,5,8\n")
    assert shell("store", "import", place, tmp_path / "five.csv").code == 0
    said = shell("store", "import", place, tmp_path / "ten.csv")
    assert said.code == 1
    assert "exceeds that of the store, 1 to 5" in said.said
    assert summarize(store).n_events == 3
    assert shell("store", "import", place, tmp_path / "ten.csv", "--scale", "1-10").code == 0
    assert load(f"store:{place}").scale.values == tuple(range(1, 11))


def test_a_model_is_trained_on_a_store(store: EventStore, place: str, made: Path) -> None:
    from cfnade.cli.store import events_frame

    ratings = load(made)
    import_events(store, events_frame(ratings), source="test")
    settings: dict[str, Any] = {
        "side": "user",
        "ridge": 0,
        "hidden": (4,),
        "epochs": 1,
        "n_threads": 1,
    }
    ours, theirs = (CFNADE(**settings).fit(data) for data in (f"store:{place}", ratings))
    assert ours.n_users_ == theirs.n_users_
    # The store has ratings by time, the file in its own order: the same ratings, other draws.
    assert triples(ours.fitted_.context) == triples(theirs.fitted_.context)


def test_nothing_of_a_store_is_kept_in_the_cache(
    store: EventStore, place: str, own_cache: Path
) -> None:
    """People may be forgotten, and a cache would not."""
    store.append([Event("who-was-here", "1", "rating", 3.0)])
    load(f"store:{place}", scale="1-5")
    assert list(own_cache.rglob("*")) == []


def test_the_online_error_is_that_of_what_was_expected(store: EventStore) -> None:
    said = [Event("anna", str(n), "rating", float(n % 5)) for n in range(20)]
    events = [result.event_id for result in store.append(said, 100)]
    expected = np.random.default_rng(0).normal(2.0, 1.0, 20)
    predictions = {
        event or 0: LoggedPrediction(float(e), n % 2 == 1, "m1" if n < 10 else "m2")
        for n, (event, e) in enumerate(zip(events, expected, strict=True))
    }
    erased = {10**9: LoggedPrediction(0.0, False, "m1")}  # its user was erased in between
    log_predictions(store, predictions | erased)
    ratings = np.array([one.rating for one in said], float)
    found = online_error(store)
    assert found is not None
    assert found.rmse == pytest.approx(np.sqrt(np.square(expected - ratings).mean()))
    assert (found.n, found.new_users) == (20, 0.5)
    models = summarize(store).models
    first = np.sqrt(np.square((expected - ratings)[:10]).mean())
    assert [one["model"] for one in models] == ["m1", "m2"]
    assert models[0]["rmse"] == pytest.approx(first)


def test_info_counts(store: EventStore, place: str, made: Path, shell: Shell) -> None:
    shell("store", "import", place, made)
    store.append([Event("1", "5", "withdrawal"), Event("new", "5", "rating", 3.0)])
    said = shell("store", "info", place)
    assert said.code == 0, said
    assert "seed 1 300" in said.out
    assert "31; 0 erased" in said.out
    summary = summarize(store)
    assert summary.n_events == 302
    assert (summary.n_ratings, summary.n_withdrawals) == (301, 1)
    assert shell("store", "info", place, "--json").code == 0
