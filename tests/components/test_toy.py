"""A new component is its module alone: nothing else has to know of it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.exceptions import StarletteDeprecationWarning
from tests.components.toy import Toy
from tests.listed import lines
from tests.queries import of_user, stored
from tests.server.given import server_settings
from tests.support.close import assert_close

from cfnade import checkpoint
from cfnade.components.optimizers import member_network
from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic
from cfnade.estimator import CFNADE
from cfnade.inference.scorer import Scorer

with warnings.catch_warnings():
    # It would rather have httpx2, which is not needed for anything else.
    warnings.simplefilter("ignore", StarletteDeprecationWarning)
    from fastapi.testclient import TestClient

SIDES = ["toy", "user+toy", "toy+item", "item+toy"]
SMALL: dict[str, Any] = {"hidden": (6,), "epochs": 3, "batch_rows": 16, "n_threads": 1}


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(40, 30, 500, seed=5).ratings


def fit(ratings: Dataset, side: str, **more: Any) -> CFNADE:
    return CFNADE(side=side, **{**SMALL, **more}).fit(ratings)


def test_the_toy_is_a_toy() -> None:
    lines = Path(sys.modules[Toy.__module__].__file__ or "").read_text().splitlines()
    assert len(lines) < 100


@pytest.mark.parametrize("side", SIDES)
def test_it_is_trained_saved_and_asked(side: str, ratings: Dataset, tmp_path: Path) -> None:
    model = fit(ratings, side)
    fitted = model.fitted_
    assert list(fitted.members[0].components) == side.split("+")
    assert all(
        parameter.detach().any() for parameter in member_network(fitted.members[0]).parameters()
    )
    checkpoint.save(fitted, tmp_path)
    loaded = checkpoint.load(tmp_path)
    users, items = ratings.users[:40], ratings.items[:40]
    answer = Scorer(fitted).probabilities(users, items)
    assert_close(Scorer(loaded).probabilities(users, items), answer)
    np.testing.assert_allclose(answer.sum(1), 1.0)
    # The same numbers by every door of the scorer.
    who = stored(fitted.context, 3)
    one = of_user(Scorer(fitted), who, np.arange(5))
    (line,) = lines(Scorer(fitted), who)
    chances = np.exp(line) / np.exp(line).sum(1, keepdims=True)
    np.testing.assert_allclose(one, chances[:5], rtol=1e-4)
    assert len(model.recommend([3], n=3)) == 3
    assert len(model.explain(user=3, item=5)) > 0


def test_it_learns_what_others_leave_over(ratings: Dataset) -> None:
    alone, beside = (fit(ratings, side, epochs=20, learning_rate=0.05) for side in SIDES[:2])
    spread = float(np.std(ratings.values))
    assert alone.fitted_.metadata["valid"]["rmse"] < spread
    assert beside.fitted_.metadata["valid"]["rmse"] < spread
    toys = [model.fitted_.members[0].components["toy"] for model in (alone, beside)]
    assert not np.allclose(toys[0].arrays["b"], toys[1].arrays["b"])


def test_it_is_continued_and_seeds_are_averaged(ratings: Dataset) -> None:
    first = fit(ratings, "user+toy")
    again = CFNADE(side="user+toy", **{**SMALL, "learning_rate": 1e-12}).fit(
        ratings, init_model=first
    )
    one, other = (model.fitted_.members[0].arrays() for model in (first, again))
    for name, tensor in one.items():
        np.testing.assert_allclose(tensor, other[name], atol=1e-6)
    assert len(fit(ratings, "user+toy", n_seeds=2).fitted_.members) == 2


@pytest.mark.parametrize("side", SIDES)
def test_it_is_served(side: str, ratings: Dataset, tmp_path: Path) -> None:
    from cfnade.server.app import create_app
    from cfnade.server.model_registry import ModelRegistry

    fit(ratings, side).save(tmp_path)
    app = create_app(ModelRegistry(tmp_path), server_settings(tmp_path))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/model").status_code == 200
        user = int(ratings.user_ids[3])
        asked = {"user_id": user, "items": ratings.item_ids[:5].tolist()}
        answer = client.post("/predictions", json=asked)
        assert answer.status_code == 200
        assert len(answer.json()["predictions"]) == 5
        assert client.post("/recommendations", json={"user_id": user, "n": 3}).status_code == 200
        if side != "toy+item":
            rated = [{"item": 3, "rating": 4}, {"item": 8, "rating": 2}]
            answer = client.post("/recommendations", json={"ratings": rated, "n": 3})
            assert answer.status_code == 200
            assert len(answer.json()["items"]) == 3


def test_it_goes_through_the_command_line(
    ratings: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from cfnade.cli import main

    file, out = tmp_path / "ratings.csv", tmp_path / "model"
    rows = zip(ratings.users.tolist(), ratings.items.tolist(), ratings.values.tolist(), strict=True)
    file.write_text("user,item,rating\n" + "".join(f"{u},{i},{v:g}\n" for u, i, v in rows))

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["cfnade", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code in (0, None), said.err
        return said.out

    how = ["--hidden", "6", "--epochs", "2", "--batch-rows", "16", "--n-threads", "1"]
    run("train", str(file), "--side", "user+toy", "--out", str(out), *how)
    assert list(checkpoint.load(out).members[0].components) == ["user", "toy"]
    assert "RMSE" in run("evaluate", str(out))
