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
        ("[modle]", r"recipe own: unknown part 'modle'"),
        ("side = 3", r'recipe own: side \(=3\) must be "user", "item" or "both"'),
        ("[model]\nhidden = '500'", r"recipe own: hidden \(='500'\) must be a list of"),
        ("[model]\nhiden = [5]", r"unknown model field 'hiden'; did you mean 'hidden'"),
        ("[model]\nhidden = [5]\nfactors = 6", r"factors \(=6\) must not exceed the 5 hidden"),
        ("[model]\ncolumns = 5", r"unknown model field 'columns'"),
        ("[model]\nridge = 1001", r"recipe own: ridge \(=1001\) must be a whole number in 0..1000"),
        ("[model]\ngains = [1, 2]", r"gains \(=\[1, 2\]\) must be a list of 3 values"),
        ("[training]\nepoch = 5", r"unknown training setting 'epoch'; did you mean 'epochs'"),
        ("[training]\nepochs = '5'", r"recipe own: .*epochs \(='5'\) must be a whole number"),
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
