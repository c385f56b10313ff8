"""The Predictor, the estimator and the command line say the same numbers."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.close import assert_close
from tests.inference.cases import history_of, make_kind

import cfnade
from cfnade.checkpoint import save
from cfnade.cli import main
from cfnade.inference.predictor import Predictor

HOW: list[dict[str, Any]] = [
    {},
    {"rank_by": "threshold", "threshold": 3.5},
    {"rank_by": "threshold"},
    {"rank_by": "prediction", "personalization": 2.5, "min_ratings": 4},
    {"diversity": 0.4, "min_ratings": 0},
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(make_kind("both-seeds-sqrt"), tmp_path / "model")
    return tmp_path / "model"


def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: Any
) -> tuple[Any, str]:
    """What a command prints as JSON, and what it says beside."""
    monkeypatch.setattr(sys, "argv", ["cfnade", *map(str, arguments), "--json"])
    capsys.readouterr()
    log = logging.getLogger("cfnade")
    before = list(log.handlers)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        log.handlers[:] = before
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    return json.loads(said.out), said.err


def options(how: dict[str, Any]) -> list[str]:
    return [
        text for name, value in how.items() for text in (f"--{name.replace('_', '-')}", str(value))
    ]


@pytest.mark.parametrize("how", HOW)
def test_lists(
    model: Path,
    how: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    predictor, estimator = Predictor.load(model), cfnade.CFNADE.load(model)
    history = history_of(predictor.fitted.context, 4)
    people: list[tuple[dict[str, Any], list[Any]]] = [
        ({"users": [20]}, ["--user", 20]),
        ({"history": history}, [f"{item}={stars:g}" for item, stars in history.items()]),
        ({"history": {"Film 3": 5, "film 7": 1}}, ["Film 3=5", "film 7=1"]),
    ]
    for who, typed in people:
        ours = predictor.recommend(n=4, **who, **how)
        assert 1 <= ours.height <= 4
        assert_close(estimator.recommend(n=4, **who, **how), ours)
        printed, said = shell(
            monkeypatch, capsys, "recommend", model, *typed, "-n", 4, *options(how)
        )
        assert_close(printed, ours.to_dicts())
        hidden, least = (
            ours["n_hidden_items"][0],
            how.get("min_ratings", predictor.default_min_ratings),
        )
        items, are = ("item", "is") if hidden == 1 else ("items", "are")
        told = f"{hidden} {items} with fewer than {least} ratings {are} hidden; --min-ratings 0"
        assert (told in said) == (hidden > 0)
        ranked = predictor.ranked(
            who.get("users", [None])[0], history=who.get("history"), n=4, **how
        )
        assert_close(ranked.scores, ours["score"].to_numpy())
        assert_close(ranked.predictions, ours["prediction"].to_numpy())
        assert_close(ranked.probabilities, ours.select("^p_.*$").to_numpy())


def test_explanations_and_predictions(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    predictor, estimator = Predictor.load(model), cfnade.CFNADE.load(model)
    ours = predictor.explain(history={"Film 3": 5, 107: 1}, item="Film 5")
    assert_close(estimator.explain(history={103: 5, "film 7": 1}, item=105), ours)
    printed, _ = shell(monkeypatch, capsys, "explain", model, "film 5", "Film 3=5", "107=1")
    assert_close(printed, ours.to_dicts())
    me = {"me": {"Film 3": 5, 107: 1}}
    said = predictor.predict("me", ["Film 5"], histories=me)
    assert_close(said, estimator.predict("me", [105], histories=me))
    np.testing.assert_allclose(said, ours["prediction"][:1], rtol=1e-6)


def test_ranks_may_be_written_with_a_dash(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dashed, _ = shell(
        monkeypatch, capsys, "recommend", model, "--user", 20, "--rank-by", "threshold"
    )
    assert_close(dashed, Predictor.load(model).recommend(20, rank_by="threshold").to_dicts())
