"""CF-NADE in the comparison is the CF-NADE that `cfnade train` makes of the same recipe."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from cfnade import CFNADE, load_split, synthetic
from cfnade.cli import main
from cfnade.exceptions import ModelError
from cfnade_baselines.cfnade import CFNADERatings

# What a recipe leaves out is the paper's, where the estimator's own defaults are others.
RECIPE = """side = "item"
[model]
hidden = [6]
[training]
epochs = 3
batch_rows = 8
output_decay = 2.0
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids are texts, and the last user has one rating, which may be in any part."""
    made = synthetic(40, 30, 600, seed=5).ratings
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    cells = zip(made.users.tolist(), made.items.tolist(), made.values.tolist(), strict=True)
    lines = "".join(f"u{u},film {i},{v:g}\n" for u, i, v in cells)
    path.write_text("user,item,rating\n" + lines + "z,film 3,4\n")
    return path


def test_a_recipe_means_what_it_means_to_the_command(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text(RECIPE)
    command = ["train", data, "--recipe", tmp_path / "own.toml", "--split", "paper:0"]
    command += ["--seed", "3", "--n-threads", "1", "--out", tmp_path / "model"]
    monkeypatch.setattr(sys, "argv", ["cfnade", *map(str, command)])
    monkeypatch.setattr(logging.getLogger("cfnade"), "handlers", [])  # the command adds one
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    parts = load_split(data, "paper:0")
    users, items = parts.test.users.astype(np.int64), parts.test.items.astype(np.int64)
    names = parts.test.user_ids[users], parts.test.item_ids[items]
    theirs = CFNADE.load(tmp_path / "model").predict_proba(*names, unknown="mean")
    model = CFNADERatings(recipe=str(tmp_path / "own.toml"))
    model.fit(parts.train, parts.valid, seed=3, n_threads=1)
    np.testing.assert_allclose(model.predict_proba(users, items), theirs, atol=1e-6)
    other = CFNADERatings(recipe=str(tmp_path / "own.toml"), model={"context_scale": "sqrt"})
    different = other.fit(parts.train, parts.valid, seed=3, n_threads=1)
    assert np.abs(different.predict_proba(users, items) - theirs).max() > 1e-3


@pytest.mark.parametrize("ids", ["texts", "numbers"])
def test_somebody_who_is_not_in_the_data_is_like_one_without_ratings(data: Path, ids: str) -> None:
    numbered = synthetic(40, 30, 600, seed=5).ratings
    whole = load_split(data, "paper:0").train if ids == "texts" else numbered
    train = whole.select((whole.users != 7) & (whole.items != 4))
    model = CFNADERatings(model={"hidden": [4]}, training={"epochs": 1})
    model.fit(train, train.select(np.arange(0)), n_threads=1)
    nobody, nothing = np.array([-1, 0]), np.array([0, -1])
    without = model.predict_proba(np.array([7, 0]), np.array([0, 4]))
    np.testing.assert_allclose(model.predict_proba(nobody, nothing), without, atol=1e-6)


def test_a_fit_that_diverged_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: CFNADE, *_: object) -> None:
        self.diverged_ = "the cost of epoch 2 is not a number"

    monkeypatch.setattr(CFNADE, "fit", fit)
    train = load_split(data, "paper:0").train
    with pytest.raises(ModelError, match="cfnade diverged: the cost of epoch 2"):
        CFNADERatings().fit(train, train)
