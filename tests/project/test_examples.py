"""The examples run offline and print what they promise."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfnade import synthetic

ROOT = Path(__file__).parents[2]
EXAMPLES = ("quickstart", "own_ratings", "new_user")


def run(name: str, *arguments: str) -> None:
    """Run an example in this process, because starting torch takes seconds."""
    path = ROOT / "examples" / f"{name}.py"
    before, sys.argv = sys.argv, [str(path), *arguments]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before


def number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    assert match is not None, f"{pattern!r} is not in {text!r}"
    return float(match[1])


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    drawn = synthetic(40, 25, 500, seed=5).ratings
    path = tmp_path / "ratings.csv"
    pl.DataFrame(
        {
            "user": drawn.user_ids[drawn.users],
            "item": drawn.item_ids[drawn.items],
            "rating": drawn.values.astype(int),
        }
    ).write_csv(path)
    return path


def test_quickstart_beats_the_mean_and_saves(capsys: pytest.CaptureFixture[str]) -> None:
    run("quickstart")
    output = capsys.readouterr().out
    assert number(r"test RMSE ([\d.]+)", output) < number(r"mean rating: ([\d.]+)", output) - 0.1
    assert "same predictions: True" in output


def test_own_ratings_reports_unknown_users(capsys: pytest.CaptureFixture[str]) -> None:
    run("own_ratings")
    output = capsys.readouterr().out
    assert "9,000 ratings of 80 items by 300 users, scale 0.5–5 by 0.5" in output
    assert "reader-1 " in output
    assert "nobody" in output
    assert "1 of 3 answers are about a user without ratings" in output


def test_new_user_recommends_differently_after_another_rating(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("new_user")
    output = capsys.readouterr().out
    before, after = (
        json.loads(text) for text in re.findall(r"(?:before|rating): (\[.*\])", output)
    )
    tried = number(r"after giving item (\d+)", output)
    assert len(before) == len(after) == 5
    assert tried == before[0]
    assert tried not in after
    rated = re.findall(r"'(\d+)': [15]\.0", output)
    assert len(rated) == 5
    assert not set(map(int, rated)) & {*before, *after}
    assert "without" in output  # the explanation's column


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_take_a_file(
    name: str, own_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, str(own_file))
    assert "prediction" in capsys.readouterr().out


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_document_their_command(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert f"python examples/{name}.py" in text.split('"""')[1]


def test_clicks_beats_popularity(capsys: pytest.CaptureFixture[str]) -> None:
    from cfnade import split
    from cfnade.data.synthetic import synthetic_interactions

    run("clicks")
    parts = split(
        synthetic_interactions(users=400, items=80, per_user=12, seed=1).interactions, "liang:50"
    )
    popular = np.argsort(-np.bincount(parts.train.items, minlength=80), kind="stable")
    gains = []
    for user in np.unique(parts.test.users):
        known = parts.fold_in.items[parts.fold_in.users == user]
        wanted = parts.test.items[parts.test.users == user]
        listed = popular[~np.isin(popular, known)][:20]
        discounts = 1 / np.log2(np.arange(2, 22))
        gain = discounts[np.isin(listed, wanted)].sum() / discounts[: len(wanted)].sum()
        gains.append(gain)
    shown = capsys.readouterr().out
    assert number(r"held out whole: ([0-9.]+)", shown) > np.mean(gains) + 0.05
    assert shown.count("shape: (6, ") == 1
    assert "lift" in shown
    assert "similarity" in shown
