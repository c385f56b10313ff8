"""Recipes: those that come along are whole, and a wrong one says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError
from cfnade.recipes import check_side, load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_that_comes_along_can_be_used(name: str) -> None:
    found = load_recipe(name)
    assert found.name == name
    check_side(found.side)
    assert isinstance(found.model["hidden"], tuple)


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'side = "item"\n[model]\nhidden = [8, 6]\nfactors = 2\nshared = false\n'
        "[training]\nepochs = 3\ncontext_rate = [0.2, 0.9]\n[measured]\nrmse = 0.5\n"
    )
    found = load_recipe(path)
    assert (found.name, found.side) == ("own", "item")
    assert found.model == {"hidden": (8, 6), "factors": 2, "shared": False}
    assert found.training == TrainingConfig(epochs=3, context_rate=(0.2, 0.9))
    assert found.measured == {"rmse": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 3", r"recipe own: model \(=3\) must be a table: write \[model\]"),
        ("training = []", r"recipe own: training \(=\[\]\) must be a table"),
        ("measured = 'much'", r"measured \(='much'\) must be a table"),
        ("[modle]", r"recipe own: unknown part 'modle'"),
        ("side = 3", r'recipe own: side \(=3\) must be "user", "item" or "both"'),
        ("side = ['user']", r"recipe own: side \(=\['user'\]\) must be"),
        ("[model]\nhidden = 500", r"hidden \(=500\) must be a list of at least 1 value"),
        ("[model]\nhidden = '500'", r"hidden \(='500'\) must be a list of"),
        ("[model]\nhidden = [5.5]", r"hidden \(=\[5.5\]\) must be a list of"),
        ("[model]\nhidden = []", r"must be a list of"),
        ("[model]\nhiden = [5]", r"unknown model field 'hiden'; did you mean 'hidden'"),
        ("[model]\nfactors = '5'", r"recipe own: factors \(='5'\) must be a whole number"),
        ("[model]\nshared = 'yes'", r"recipe own: shared \(='yes'\) must be true or false"),
        ("[model]\nordinal_weight = []", r"ordinal_weight \(=\[\]\) must be a number"),
        ("[model]\ncontext_scale = 1", r"context_scale \(=1\) must be one of sum, sqrt"),
        ("[training]\nepoch = 5", r"unknown training setting 'epoch'; did you mean 'epochs'"),
        ("[training]\nepochs = '5'", r"recipe own: .*epochs \(='5'\) must be a whole number"),
        ("[training]\nseed = 1.5", r"seed \(=1.5\) must be a whole number"),
        ("[training]\nschedule = 2", r"schedule \(=2\) must be one of"),
        ("[training]\ncontext_rate = 5", r"recipe own: "),
        ("[training]\ncontext_rate = ['a', 'b']", r"recipe own: "),
        ("side", r"is not a recipe in TOML"),
    ],
)
def test_a_wrong_recipe_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(TrainingError, match=message):
        load_recipe(path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(TrainingError, match="unknown recipe 'ml-1m-itm'; did you mean 'ml-1m-it"):
        load_recipe("ml-1m-itm")


def test_a_kind_that_is_named_twice_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"names user twice; several members .* seeds=2"):
        check_side("user,both,user")
