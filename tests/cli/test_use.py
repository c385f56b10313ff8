"""A saved model at a shell: evaluate, predict, recommend, explain, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cfnade import load_split
from cfnade.checkpoint import load
from cfnade.evaluation import evaluate
from cfnade.predictor import Predictor

Shell = Any


def test_evaluate_scores_the_test_part_of_its_own_split(
    shell: Shell, user_model: Path, ratings_file: Path
) -> None:
    scores = evaluate(load(user_model), load_split(ratings_file, "paper:0").test)
    done = shell("evaluate", user_model, "--json")
    assert done.code == 0
    figures = json.loads(done.out)
    for name in ("rmse", "mae", "nll", "nll_raw", "calibration_error", "rps"):
        assert figures[name] == getattr(scores, name)
    text = shell("evaluate", user_model)
    assert f"{scores.rmse:.4f}" in text.out
    assert "test part of" in text.out


def test_evaluate_scores_given_ratings(shell: Shell, item_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("user,item,rating\n1000,3,4\n1001,99,2\n")
    done = shell("evaluate", item_model, path, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["n"] == 2
    assert json.loads(done.out)["unseen_ratings"] == 2


def test_predict_writes_what_the_predictor_says(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\n3,7\n5,9\n777,9\n3,4444\n")
    expected = Predictor.load(user_model).predict([3, 5, 777, 3], [7, 9, 9, 4444])
    for name in ("out.parquet", "out.csv"):
        out = tmp_path / name
        done = shell("predict", user_model, pairs, "--out", out)
        assert done.code == 0
        assert "nothing is known of 1 users and 1 items" in done.said
        frame = pl.read_parquet(out) if out.suffix == ".parquet" else pl.read_csv(out)
        assert frame["prediction"].to_list() == pytest.approx(expected.tolist())
    assert shell("predict", user_model, pairs).out.startswith("user,item,title,prediction")


def test_recommend_for_a_known_user(shell: Shell, user_model: Path, item_model: Path) -> None:
    for model in (user_model, item_model):
        found = json.loads(shell("recommend", model, "--user", "7", "-n", "5", "--json").out)
        expected = Predictor.load(model).recommend([7], n=5)
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
        assert "nothing is known of user 4444: " in done.said
        assert "nothing is known" not in shell("recommend", model, "--user", "7").err


def test_recommend_for_a_new_person_by_titles_ids_or_file(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text('Title,Rating\n"Film 03, The (1953)",5\n11,1\n')
    typed = shell("recommend", user_model, "film 03=5", "11=1", "--json")
    from_file = shell("recommend", user_model, "--history", file, "--json")
    expected = Predictor.load(user_model).recommend(history={3: 5.0, 11: 1.0})
    assert typed.code == from_file.code == 0
    assert json.loads(typed.out) == json.loads(from_file.out) == expected.to_dicts()


def test_explain_says_which_ratings_moved_it(
    shell: Shell, user_model: Path, item_model: Path
) -> None:
    done = shell("explain", user_model, "Film 20, The (1970)", "3=5", "11=1", "--json")
    expected = Predictor.load(user_model).explain(item=20, history={3: 5.0, 11: 1.0})
    assert json.loads(done.out) == expected.to_dicts()
    text = shell("explain", user_model, "20", "--user", "7", "-n", "3").out
    assert "predicted" in text
    assert "others who rated it" in shell("explain", item_model, "20", "--user", "7").out


def test_export_writes_recommendations_and_embeddings(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "best.parquet"
    assert shell("export", user_model, out, "-n", "3").code == 0
    frame, predictor = pl.read_parquet(out), Predictor.load(user_model)
    assert frame.equals(predictor.recommend(list(range(60)), n=3))
    bundle = load(user_model)
    assert shell("export", user_model, out, "--what", "items").code == 0
    items = pl.read_parquet(out)
    assert items["vector"].to_numpy()[7] == pytest.approx(
        bundle.one_sided_model.output_table[7].flatten().tolist()
    )
    assert items["title"][7] == "Film 07, The (1957)"
    assert shell("export", user_model, out, "--what", "users").code == 0
    assert pl.read_parquet(out)["vector"].to_numpy().shape == (60, 12)


def test_doctor_tells_a_folder_of_netflix_without_ratings(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFNADE_DATA", str(tmp_path))
    folder = tmp_path / "netflix"
    folder.mkdir()
    assert "netflix           " + str(folder) + " (incomplete" in shell("doctor", "--quick").out
    (folder / "movie_titles.txt").write_text("1,2003,Dinosaur Planet\n")
    assert "(incomplete: no combined_data_*.txt or mv_*.txt)" in shell("doctor", "--quick").out
    (folder / "combined_data_1.txt").write_text("1:\n1488844,3,2005-09-06\n")
    assert f"netflix           {folder}\n" in shell("doctor", "--quick").out


def test_doctor_shows_what_there_is(shell: Shell, own_cache: Path) -> None:
    done = shell("doctor")
    assert done.code == 0
    for word in ("torch", "threads", "kernels           work", str(own_cache)):
        assert word in done.out
