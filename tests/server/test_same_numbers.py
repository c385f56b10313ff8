"""The command line says the same as the service; test_kinds.py says that Python does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.server.given import ClientOf, ModelOf, TestClient, history, rated

from cfnade.cli import main

COUNT = "n_item_ratings"
LEVELS = [f"p_{k}" for k in range(1, 6)]
TYPED = [f"{item}={rating:g}" for item, rating in history(6).items()]


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
    names = ("item", "title", "prediction", "std", COUNT, *LEVELS)
    return [tuple(line[name] for name in names) for line in lines]


def served(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("item", "title", "prediction", "std", "n_item_ratings")
    return [tuple(line[name] for name in names) + tuple(line["probabilities"]) for line in lines]


def same(some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> None:
    """But for the last bits: how a newcomer is folded in goes through BLAS, whose sums depend on
    how many of its threads are free."""
    assert [line[:2] for line in some] == [line[:2] for line in others]
    for one, other in zip(some, others, strict=True):
        assert one[2:] == pytest.approx(other[2:], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kind", ["user", "both"])
def test_lists_and_reasons_for_a_new_person(
    kind: str,
    client_of: ClientOf,
    model_of: ModelOf,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client, folder = client_of(kind), model_of(kind)
    answer = client.post("/recommendations", json={"ratings": rated(history(6)), "n": 10}).json()
    shell = command(monkeypatch, capsys, "recommend", folder, *TYPED, "-n", "10", "--json")
    same(served(answer["items"]), numbers(json.loads(shell)))
    assert len(answer["items"]) == 10
    reasons = client.post("/explanations", json={"ratings": rated(history(6)), "item": 140}).json()
    shell = command(monkeypatch, capsys, "explain", folder, "140", *TYPED, "--json")
    names = ("item", "title", "rating", "prediction_without", "difference")
    contributions, printed = (
        [tuple(line[name] for name in names) for line in lines]
        for lines in (reasons["contributions"], json.loads(shell))
    )
    same(contributions, printed)


def test_predictions_for_a_known_user(
    client: TestClient,
    user_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = [101, 117, 140]
    answer = client.post("/predictions", json={"user_id": 7, "items": items}).json()
    pairs, out = tmp_path / "pairs.csv", tmp_path / "out.parquet"
    pairs.write_text("user,item\n" + "".join(f"7,{item}\n" for item in items))
    command(monkeypatch, capsys, "predict", user_model, pairs, "--out", out)
    same(served(answer["predictions"]), numbers(pl.read_parquet(out).to_dicts()))
