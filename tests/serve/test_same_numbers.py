"""The service, the estimator and the command line say the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.serve.given import TestClient, history, rated

import cfnade
from cfnade.cli import main

LEVELS = [f"p_{k}" for k in range(1, 6)]


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> str:
    """What a command prints."""
    monkeypatch.setattr(sys, "argv", ["cfnade", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    return said.out


def numbers(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Lines of a frame, in the order and by the names of the service."""
    names = ("item", "title", "prediction", "std", "known_of_item", *LEVELS)
    return [tuple(line[name] for name in names) for line in lines]


def served(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("item", "title", "expected", "std", "ratings")
    return [tuple(line[name] for name in names) + tuple(line["probabilities"]) for line in lines]


def test_lists_for_a_new_person(
    client: TestClient,
    user_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = history(6)
    body = {"ratings": rated(given), "n": 10}
    answer = client.post("/recommend", json=body).json()
    estimator = cfnade.CFNADE.load(user_model).recommend(history=given, n=10)
    typed = [f"{item}={rating:g}" for item, rating in given.items()]
    shell = command(monkeypatch, capsys, "recommend", user_model, *typed, "-n", "10", "--json")
    assert served(answer["items"]) == numbers(estimator.to_dicts()) == numbers(json.loads(shell))
    assert len(answer["items"]) == 10
    assert [item["rank"] for item in answer["items"]] == list(range(1, 11))


@pytest.mark.parametrize("side", ["user", "item"])
def test_predictions_and_lists_for_a_known_user(
    side: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client: TestClient = request.getfixturevalue("client" if side == "user" else "item_client")
    folder: Path = request.getfixturevalue(f"{side}_model")
    estimator = cfnade.CFNADE.load(folder)
    items = [101, 117, 140]
    answer = client.post("/predict", json={"user": 7, "items": items}).json()
    frame = estimator.predict_frame([7] * 3, items)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\n" + "".join(f"7,{item}\n" for item in items))
    out = tmp_path / "out.parquet"
    command(monkeypatch, capsys, "predict", folder, pairs, "--out", out)
    import polars as pl

    assert served(answer["predictions"]) == numbers(frame.to_dicts())
    assert served(answer["predictions"]) == numbers(pl.read_parquet(out).to_dicts())
    best = client.post("/recommend", json={"user": 7, "n": 4}).json()["items"]
    assert served(best) == numbers(estimator.recommend([7], n=4).to_dicts())


def test_reasons(
    client: TestClient,
    user_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = history(6)
    answer = client.post("/explain", json={"ratings": rated(given), "item": 140}).json()
    estimator = cfnade.CFNADE.load(user_model).explain(item=140, history=given)
    typed = [f"{item}={rating:g}" for item, rating in given.items()]
    shell = json.loads(command(monkeypatch, capsys, "explain", user_model, "140", *typed, "--json"))
    names = ("item", "title", "rating", "without", "change")
    wanted = [{name: line[name] for name in names} for line in estimator.to_dicts()]
    assert answer["moved"] == wanted == [{name: line[name] for name in names} for line in shell]
    # A frame of another batch size may differ in the last bits of float32.
    assert answer["prediction"]["expected"] == pytest.approx(estimator["prediction"][0], abs=1e-6)


def test_reasons_of_an_item_based_model(item_client: TestClient, item_model: Path) -> None:
    answer = item_client.post("/explain", json={"user": 7, "item": 117}).json()
    frame = cfnade.CFNADE.load(item_model).explain(item=117, user=7)
    names = ("count", "rating", "without", "change")
    assert answer["moved"] == [{name: line[name] for name in names} for line in frame.to_dicts()]
    assert sum(line["count"] for line in answer["moved"]) > 0
