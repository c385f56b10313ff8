"""The folder is one that the Hugging Face hub understands, and comes back from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from cfnade import CFNADE, synthetic
from cfnade.checkpoint.model_card import CARD, render

SMALL: dict[str, Any] = {"side": "user", "hidden": (4,), "epochs": 1, "n_threads": 1}


@pytest.fixture(scope="module")
def model() -> CFNADE:
    return CFNADE(**SMALL).fit(synthetic(30, 20, 300, seed=3).ratings)


def head(text: str) -> dict[str, Any]:
    """What the hub reads."""
    first, yaml_text, _ = text.split("---\n", 2)
    assert first == ""
    found: dict[str, Any] = yaml.safe_load(yaml_text)
    return found


def test_the_card_has_data_metrics_license_and_limitations(model: CFNADE, tmp_path: Path) -> None:
    model.save(tmp_path)
    text = (tmp_path / CARD).read_text()
    valid = model.fitted_.metadata["valid"]
    about = head(text)
    assert about["library_name"] == "cfnade"
    (result,) = about["model-index"][0]["results"]
    figures = {one["type"]: one["value"] for one in result["metrics"]}
    assert figures["rmse"] == pytest.approx(valid["rmse"], abs=1e-4)
    for words in ("## Data", "## Metrics", "## License", "## Limitations", "30 users, 20 items"):
        assert words in text
    assert f"| RMSE of a baseline of means | {valid['means_rmse']:.4f} |" in text
    assert "The folder contains 300 ratings" in text


def test_the_card_of_a_model_without_context(model: CFNADE, tmp_path: Path) -> None:
    model.save(tmp_path, with_context=False)
    assert "The folder contains no ratings." in (tmp_path / CARD).read_text()


def test_an_edited_card_is_not_replaced(model: CFNADE, tmp_path: Path) -> None:
    model.save(tmp_path)
    path, ours = tmp_path / CARD, (tmp_path / CARD).read_text()
    model.save(tmp_path, with_context=False)
    assert path.read_text() != ours
    for text in (ours.replace("## Limitations", "## What it cannot do"), "my notes\n", ""):
        path.write_text(text)
        model.save(tmp_path)
        assert path.read_text() == text
        CFNADE.load(tmp_path)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ('say "ratings": 5', 'say "ratings": 5'),
        ("C:\\data\\new", "C:\\data\\new"),
        ("- a\n- b", "- a - b"),
        ("{x: [1", "{x: [1"),
        ("é\U0001f600\x7f\x85", "é\U0001f600"),
        ("a\udcff", "a"),
    ],
)
def test_any_source_gives_valid_yaml(model: CFNADE, source: str, shown: str) -> None:
    fitted = model.fitted_
    text = render(replace(fitted, context=fitted.context.replace(source=source)))
    (result,) = head(text)["model-index"][0]["results"]
    assert result["dataset"]["name"] == shown
