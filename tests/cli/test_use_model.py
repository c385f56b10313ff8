"""A saved model at a shell: predict, recommend, explain, export."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.support.close import assert_close

from cfnade.checkpoint import load
from cfnade.estimator import CFNADE

Shell = Any


def test_predict_writes_what_the_predictor_says(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\n3,7\n5,9\n777,9\n3,4444\n")
    expected = CFNADE.load(user_model).predict([3, 5, 777, 3], [7, 9, 9, 4444], unknown="mean")
    for name in ("out.parquet", "out.csv"):
        out = tmp_path / name
        done = shell("predict", user_model, pairs, "--out", out)
        assert done.code == 0
        assert "unknown to the model: 1 user, 1 item; " in done.said
        frame = pl.read_parquet(out) if out.suffix == ".parquet" else pl.read_csv(out)
        assert frame["prediction"].to_list() == pytest.approx(expected.tolist())
    assert shell("predict", user_model, pairs).out.startswith("user,item,title,prediction")


def test_lines_count_the_breaks_inside_of_fields(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    first, pairs = tmp_path / "first.csv", tmp_path / "pairs.csv"
    pairs.write_text("user,item\n3,7\n")
    first.write_text('user,item,rating,"my\nnote"\n3,4444,5,"so\n\nso"\n8,4444,good,\n')
    done = shell("predict", user_model, pairs, "--new-items", first)
    assert (done.code, "first.csv:6: rating 'good' is not a number" in done.err) == (1, True), done
    pl.DataFrame({"user": [3], "item": [44], "rating": ["good"]}).write_parquet(
        tmp_path / "first.parquet"
    )
    done = shell("predict", user_model, pairs, "--new-items", tmp_path / "first.parquet")
    assert "first.parquet, row 0: rating 'good' is not a number" in done.err


def test_predict_takes_new_items_with_their_first_ratings(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    pairs, first = tmp_path / "pairs.csv", tmp_path / "first.csv"
    pairs.write_text("user,item\n3,7\n5,4444\n")
    first.write_text("userId,movieId,rating\n3,4444,5\n8,4444,4\n")
    predictor, given = CFNADE.load(user_model), {4444: {3: 5, 8: 4}}
    expected = predictor.predict([3, 5], [7, 4444], new_items=given)
    done = shell("predict", user_model, pairs, "--new-items", first)
    assert done.code == 0, done.err
    assert pl.read_csv(io.StringIO(done.out))["prediction"].to_list() == pytest.approx(
        expected.tolist()
    )
    assert "unknown to the model" not in done.said
    for text, fault in (
        ("user,item,rating\n3,4444,good\n", "first.csv:2: rating 'good' is not a number"),
        ("user,item,rating\n", "first.csv: has no ratings of new items"),
        ("user,item,rating\n3,7,5\n", "7 is an item that the model knows"),
        ("user,item\n3,4444\n", "has no column rating"),
    ):
        first.write_text(text)
        done = shell("predict", user_model, pairs, "--new-items", first)
        assert done.code == 1
        assert fault in done.err


def test_predict_takes_times_from_a_column_or_one_for_all(
    shell: Shell, timed_model: Path, user_model: Path, tmp_path: Path
) -> None:
    """All that say the same moment: seconds, a date, a column of either, named as data names it."""
    cells, moments = ([3, 5, 3], [7, 9, 4444]), [1_126_000_000, 1_125_964_800, 0]
    dates = ["2005-09-06T09:46:40", "2005-09-06", "1970-01-01"]
    timed, plain = CFNADE.load(timed_model), CFNADE.load(user_model)

    def predicted(model: Path, times: list[Any], *options: str) -> list[float]:
        pairs = tmp_path / "pairs.csv"
        lines = [f"{u},{i},{t}\n" for u, i, t in zip(*cells, times, strict=True)]
        pairs.write_text("user_id,movieId,Rating Date\n" + "".join(lines))
        done = shell("predict", model, pairs, *options)
        assert done.code == 0, done.err
        frame = pl.read_csv(io.StringIO(done.out))
        return [float(value) for value in frame["prediction"]]

    each = timed.predict(*cells, timestamp=moments, unknown="mean").tolist()
    assert predicted(timed_model, moments) == predicted(timed_model, dates) == pytest.approx(each)
    once = timed.predict(*cells, timestamp=moments[1], unknown="mean").tolist()
    assert once != pytest.approx(each)
    for at in ("2005-09-06", str(moments[1]), f"{moments[1]}000"):  # milliseconds, too
        assert predicted(timed_model, moments, "--timestamp", at) == pytest.approx(once)
    assert predicted(user_model, ["never"] * 3) == pytest.approx(
        plain.predict(*cells, unknown="mean").tolist()
    )


def test_titles_that_are_ids_are_titles(shell: Shell, titles_model: Path, tmp_path: Path) -> None:
    """Typed, in a file, and in Python: all mean the same items."""
    history = {"Blade Runner (1982)": 5.0, "Alien (1979)": 1.0, "Film 07 (1957)": 2.0}
    predictor = CFNADE.load(titles_model)
    expected = predictor.recommend(history=history).to_dicts()
    named = {"blade runner": 5, "ALIEN": 1, "Film 07 (1958)": 2}  # a year apart: elsewhere it is so
    assert_close(predictor.recommend(history=named).to_dicts(), expected)
    typed = shell("recommend", titles_model, "Blade Runner=5", "alien=1", "07=2", "--json")
    assert typed.code == 0, typed.err
    assert_close(json.loads(typed.out), expected)
    file = tmp_path / "mine.csv"
    file.write_text('Name,Rating\nBlade Runner,5\n"Alien (1979)",1\nFilm 07,2\n')
    from_file = shell("recommend", titles_model, "--history", file, "--json")
    assert_close(json.loads(from_file.out), expected)
    explained = shell("explain", titles_model, "blade run", "--user", "7", "--json")
    why = predictor.explain(item="Blade Runner", user=7).to_dicts()
    assert_close(json.loads(explained.out), why)


def test_recommend_for_a_known_user(shell: Shell, user_model: Path, item_model: Path) -> None:
    for model in (user_model, item_model):
        found = json.loads(shell("recommend", model, "--user", "7", "-n", "5", "--json").out)
        expected = CFNADE.load(model).recommend([7], n=5)
        assert [row["item"] for row in found] == expected["item"].to_list()
        text = shell("recommend", model, "--user", "7", "--user", "8", "-n", "2").out
        assert "user 7" in text
        assert "user 8" in text
        assert found[0]["title"] in text


def test_recommend_says_whom_it_does_not_know(
    shell: Shell, user_model: Path, item_model: Path
) -> None:
    for model in (user_model, item_model):
        done = shell("recommend", model, "--user", "7", "--user", "4444", "-n", "2", "--json")
        assert done.code == 0
        assert len(json.loads(done.out)) == 4
        assert "unknown users get the items that suit all users: 4444" in done.said
        assert "unknown users" not in shell("recommend", model, "--user", "7").err


@pytest.mark.parametrize(
    "data",
    [
        b"Title;Rating\nFilm 03, The (1953);5,0\n11;1\n",
        b"\xef\xbb\xbfTitle\tRating\r\nFilm 03, The (1953)\t5\r\n11\t1,0\r\n",
        "Title|Rating|Why\nFilm 03, The (1953)|5|très beau\n11|1|\n".encode("cp1252"),
    ],
    ids=["semicolons", "tabs of Windows", "an older encoding"],
)
def test_a_history_is_the_same_however_it_is_written(
    shell: Shell, user_model: Path, tmp_path: Path, data: bytes
) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(data)
    expected = CFNADE.load(user_model).recommend(history={3: 5.0, 11: 1.0}).to_dicts()
    from_file = shell("recommend", user_model, "--history", file, "--json")
    assert_close(json.loads(from_file.out), expected)
    typed = shell("recommend", user_model, "film 03=5,0", "11=1", "--json")
    assert_close(json.loads(typed.out), expected)


def test_explain_says_which_ratings_moved_it(
    shell: Shell, user_model: Path, item_model: Path
) -> None:
    done = shell("explain", user_model, "Film 20, The (1970)", "3=5", "11=1", "--json")
    expected = CFNADE.load(user_model).explain(item=20, history={3: 5.0, 11: 1.0})
    assert_close(json.loads(done.out), expected.to_dicts())
    text = shell("explain", user_model, "20", "--user", "7", "-n", "3").out
    assert "prediction 3" in text
    assert "users " in shell("explain", item_model, "20", "--user", "7").out


def test_export_writes_recommendations_and_embeddings(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "best.parquet"
    assert shell("export", "recommendations", user_model, out, "-n", "3").code == 0
    frame, predictor = pl.read_parquet(out), CFNADE.load(user_model)
    assert_close(frame, predictor.recommend(list(range(60)), n=3))
    [network] = [side.network for side in load(user_model).members[0].components.values()]
    assert shell("export", "embeddings", user_model, out).code == 0
    items = pl.read_parquet(out)
    assert items["vector"].to_numpy()[7] == pytest.approx(
        network.output_table[7].flatten().tolist()
    )
    assert items["title"][7] == "Film 07, The (1957)"
    assert shell("export", "embeddings", user_model, out, "--side", "user").code == 0
    assert pl.read_parquet(out)["vector"].to_numpy().shape == (60, 12)


def test_predict_says_nan_or_refuses_for_unknown_ids(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.csv"
    pl.DataFrame({"user": [1, 4711], "item": [2, 2]}).write_csv(pairs)
    done = shell("predict", user_model, pairs)
    assert "unknown to the model: 1 user, 0 items" in done.err
    text = shell("predict", user_model, pairs, "--unknown", "nan").out
    found = pl.read_csv(io.StringIO(text))["prediction"].cast(pl.Float64).to_numpy()
    assert np.isnan(found).tolist() == [False, True], text
    refused = shell("predict", user_model, pairs, "--unknown", "raise")
    assert refused.code != 0
    assert "unknown to the model: user 4711" in refused.err
    assert "Traceback" not in refused.err
