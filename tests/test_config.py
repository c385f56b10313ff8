"""Training options and recipes: presets are valid, and errors name the wrong field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError
from cfnade.recipes import check_side, load_recipe, recipe_names


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"epochs": -1}, "epochs"),
        ({"average": 1.0}, "average"),
        ({"seed": 2**63}, "seed"),
        ({"context_rate": (0.9, 0.5)}, "context_rate"),
        ({"context_rate": (0.9,)}, "context_rate"),
        ({"context_rate": (0.5, 2)}, "context_rate"),
        ({"context_rate": "all"}, "context_rate"),
        ({"schedule": "plateau"}, "patience"),
        ({"refit": True, "schedule": "plateau", "patience": 2}, "refit"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(TrainingError, match=rf"training setting {field} \(=") as raised:
        TrainingConfig(**options)
    assert raised.value.field == field


def test_options_are_read_from_json_and_unknown_names_refused() -> None:
    config = TrainingConfig(context_rate=(0.5, 1.0), epochs=7)
    assert TrainingConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(TrainingError, match=r"'learning_rat'; did you mean 'learning_rate'\?"):
        TrainingConfig.from_dict({"learning_rat": 1})


# -- recipes --------------------------------------------------------------------------------------


def test_presets_are_valid() -> None:
    for name in recipe_names():
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
def test_invalid_recipes_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(TrainingError, match=message):
        load_recipe(path)


def test_unknown_recipes_get_a_suggestion() -> None:
    with pytest.raises(TrainingError, match="unknown recipe 'ml-1m-itm'; did you mean 'ml-1m-it"):
        load_recipe("ml-1m-itm")


def test_repeated_sides_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"names user twice; several members .* n_seeds=2"):
        check_side("user,both,user")
