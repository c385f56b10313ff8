"""Recipes: the presets are valid, and a wrong recipe gives one error that names the fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError
from cfnade.recipes import check_side, load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_preset_is_valid(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    check_side(recipe.side)
    assert isinstance(recipe.model["hidden"], tuple)


def test_a_recipe_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'side = "item"\n[model]\nhidden = [8, 6]\nfactors = 2\nshared = false\n'
        "[training]\nepochs = 3\ncontext_rate = [0.2, 0.9]\n[measured]\nrmse = 0.5\n"
    )
    recipe = load_recipe(path)
    assert (recipe.name, recipe.side) == ("own", "item")
    assert recipe.model == {"hidden": (8, 6), "factors": 2, "shared": False}
    assert recipe.training == TrainingConfig(epochs=3, context_rate=(0.2, 0.9))
    assert recipe.measured == {"rmse": 0.5}


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
        ("[model]\nhidden = [5]\nfactors = 6", r"factors \(=6\) must not exceed the 5 hidden"),
        ("[model]\ncolumns = 5", r"unknown model field 'columns'"),
        ("[model]\nridge = 1001", r"recipe own: ridge \(=1001\) must be a whole number in 0..1000"),
        (
            "[model]\ngains = [1, 2]",
            r"gains \(=\[1, 2\]\) must be a list of 3 values, each a number",
        ),
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


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(TrainingError, match="unknown recipe 'ml-1m-itm'; did you mean 'ml-1m-it"):
        load_recipe("ml-1m-itm")


def test_a_repeated_kind_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"names user twice; several members .* n_seeds=2"):
        check_side("user,both,user")
