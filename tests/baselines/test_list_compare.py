"""A comparison of lists: options by validation, test once, figures of each person kept."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cfnade import load_split
from cfnade.exceptions import ModelError
from cfnade_baselines import compare as comparison
from cfnade_baselines import presets
from cfnade_baselines.compare import Task, compare
from cfnade_baselines.listers import LISTERS, make_lister, one_list_fit
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_questions import ListQuestion, list_parts
from cfnade_baselines.listers.list_rival import LikedItems
from cfnade_baselines.listers.list_scoring import score_lists
from cfnade_baselines.one_fit import answer
from cfnade_baselines.presets import contestant, names
from cfnade_baselines.report import LIST_COLUMNS, as_json, best, standings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 4,000 ratings, good ones for items of the person's kind."""
    rng = np.random.default_rng(0)
    cells = rng.permutation(200 * 60)[:4000]
    users, items = cells // 60, cells % 60
    values = np.where(users % 3 == items % 3, 5, rng.integers(1, 5, 4000))
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    lines = [f"{u},{i},{v}\n" for u, i, v in zip(users, items, values, strict=True)]
    path.write_text("user,item,rating\n" + "".join(lines))
    return path


def job(data: Path, model: str, search: list[dict[str, Any]], split: str) -> dict[str, Any]:
    fingerprint = load_split(str(data), split).fingerprint
    what: dict[str, Any] = {"model": model, "options": {}, "data": str(data), "split": split}
    what |= {"lists": True, "search": search, "reading": {}, "fingerprint": fingerprint}
    return what | {"seed": 0, "threads": 1}


GRID: list[dict[str, Any]] = [
    {"neighbours": 1},
    {"neighbours": 15},
    {"neighbours": 40, "shrinkage": 5.0},
]


@pytest.mark.parametrize("split", ["liang:30", "paper:1"])
def test_validation_chooses_and_test_is_scored_once(
    data: Path, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ListQuestion] = []

    def noting(scores: Any, question: ListQuestion, **more: Any) -> Any:
        asked.append(question)
        return score_lists(scores, question, **more)

    monkeypatch.setattr(one_list_fit, "score_lists", noting)
    found = answer(job(data, "item-knn", GRID, split))
    parts = list_parts(load_split(str(data), split))
    values = []
    for options in GRID:
        fitted = LikedItems.of(parts.likes).fit(make_lister("item-knn", **options))
        values.append(score_lists(fitted.scores, parts.valid).estimates()["ndcg@100"].mean)
    scores = found["scores"]
    assert [tried["value"] for tried in scores["tried"]] == pytest.approx(values)
    assert scores["options"] == GRID[int(np.argmax(values))]
    fitted = LikedItems.of(parts.final_likes).fit(make_lister("item-knn", **scores["options"]))
    by_person = score_lists(fitted.scores, parts.test)
    for name, estimate in by_person.estimates().items():
        assert scores[name] == pytest.approx(estimate.mean)
        assert scores[f"{name}_error"] == pytest.approx(estimate.error)
    assert found["people"]["users"] == by_person.users.tolist()  # ids are 0, 1, 2 …
    np.testing.assert_allclose(found["people"]["ndcg@100"], by_person.values["ndcg@100"], atol=1e-6)
    assert [len(question) for question in asked] == [len(parts.valid)] * 3 + [len(parts.test)]
    assert scores["search_seconds"] > 0


def test_without_a_search_the_options_are_taken(data: Path) -> None:
    scores = answer(job(data, "popularity", [], "liang:30"))["scores"]
    assert (scores["options"], scores["tried"], scores["search_seconds"]) == ({}, [], 0)
    assert scores["n"] == 30


def test_weights_of_a_blend_are_tried_with_one_fit(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[str] = []

    @dataclass(frozen=True)
    class _Member:
        regularisation: float = 1.0
        factors: int = 1
        unobserved_weight: float = 1.0
        epochs: int = 1

        def fit(self, likes: Likes, **_: Any) -> Any:
            fits.append("fit")
            return make_lister("popularity").fit(likes)

    monkeypatch.setattr("cfnade_baselines.listers.blend.EASE", _Member)
    monkeypatch.setattr("cfnade_baselines.listers.blend.IALS", _Member)
    grid = [{"weight": w} for w in (0.2, 0.5, 0.8)]
    answer(job(data, "ease+ials", grid, "liang:30"))
    assert len(fits) == 4  # two to choose the weight, and two whose seconds count


class _Knows:
    """Anything that has scores: here, that of the right kind of item."""

    def scores(self, given: Likes) -> Any:
        rows = np.zeros((len(given), 60))
        for person in range(len(given)):
            mine = given.columns[given.offsets[person] : given.offsets[person + 1]]
            kind = np.bincount(mine % 3, minlength=3).argmax()
            rows[person, np.arange(60) % 3 == kind] = 1.0
        return rows


class _AnyRival:
    name: ClassVar[str] = "any"

    def fit(self, likes: Likes, *, seed: int, threads: int | None) -> _Knows:
        assert (likes.n_items, seed, threads) == (60, 0, 1)
        return _Knows()


def test_any_object_with_scores_can_join(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LISTERS, "any", f"{__name__}:_AnyRival")
    mine = answer(job(data, "any", [], "liang:30"))["scores"]
    floor = answer(job(data, "popularity", [], "liang:30"))["scores"]
    assert mine["ndcg@100"] > floor["ndcg@100"] + 0.05


# -- many fits -----------------------------------------------------------------------------------


def test_results_are_kept_with_each_persons_figures(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def here(job: dict[str, Any]) -> dict[str, Any]:
        calls.append(job["model"])
        return answer(job)

    monkeypatch.setattr(comparison, "fit_apart", here)
    task = Task(str(data), {}, 0, 1, lists=True)
    said: list[str] = []
    first = compare(task, ["popularity"], ["liang:30"], out=tmp_path, say=said.append)
    both = compare(task, ["popularity", "item-knn"], ["liang:30"], out=tmp_path, say=said.append)
    assert calls == ["popularity", "item-knn"]
    assert both[0] == first[0]
    assert both[1].scores is not None
    assert said[-1].startswith(f"item-knn on liang:30: {both[1].scores['ndcg@100']:.4f}, ")
    kept = {}
    for model in ("popularity", "item-knn"):
        with np.load(tmp_path / "fits" / f"{model}-liang-30.npz", allow_pickle=False) as file:
            kept[model] = {name: file[name] for name in file.files}
    np.testing.assert_array_equal(kept["popularity"]["users"], kept["item-knn"]["users"])
    mean = kept["item-knn"]["ndcg@100"].mean()
    assert mean == pytest.approx(both[1].scores["ndcg@100"], abs=1e-6)


def test_models_of_ratings_make_no_lists_and_the_other_way_round(data: Path) -> None:
    for models, lists in ((["biasmf"], True), (["ease"], False)):
        with pytest.raises(ModelError, match="unknown model"):
            compare(Task(str(data), {}, 0, 1, lists), models, ["paper:1"])


def test_more_is_better_in_lists() -> None:
    def outcome(model: str, split: str, value: float, seconds: float) -> comparison.Outcome:
        figures = dict.fromkeys(LIST_COLUMNS, value) | {"ndcg@100_error": 0.01}
        figures |= {name: seconds for name in LIST_COLUMNS if "@" not in name}
        return comparison.Outcome(model, model, split, figures)

    one = [outcome("low", "a", 0.2, 1.0), outcome("high", "a", 0.4, 9.0)]
    table = standings(one, LIST_COLUMNS)
    assert [row.model for row in table] == ["high", "low"]
    assert best(table)["ndcg@100"] == 0.4
    assert best(table)["fit_seconds"] == 1.0
    figure = table[0].figures["ndcg@100"]
    assert figure is not None
    assert figure.sd == 0.01  # of one split the error over people
    failed = comparison.Outcome("none", "none", "a", None, "it broke")
    named = as_json([*one, failed], {}, LIST_COLUMNS)
    assert [model["model"] for model in named["models"]] == ["high", "low", "none"]
    assert named["best"]["capped_recall@20"] == "high"
    broken = comparison.Outcome("low", "low", "b", None, "it broke")
    (half,) = standings([one[0], broken], LIST_COLUMNS)
    assert half.figures["ndcg@100"] is not None
    assert half.figures["ndcg@100"].sd is None  # ± is over splits, and there is but one
    two = standings([*one, outcome("low", "b", 0.4, 1.0)], LIST_COLUMNS)
    low = next(row.figures["ndcg@100"] for row in two if row.model == "low")
    assert low is not None
    assert low.sd == pytest.approx(np.std([0.2, 0.4], ddof=1))


@pytest.mark.parametrize("name", names(lists=True))
def test_every_contestant_is_a_model_that_takes_its_options(name: str) -> None:
    each = contestant(name, lists=True)
    make_lister(each.model, **each.options)
    for setting in each.search:
        make_lister(each.model, **each.options | setting)
    path = Path(presets.__file__).parent / "lists" / f"{name}.toml"
    first = path.read_text().splitlines()[0]
    assert first.startswith("# cfnade compare ml-1m --ranking --models " + name)


def test_every_model_of_lists_is_a_contestant() -> None:
    assert {contestant(name, lists=True).model for name in names(lists=True)} == set(LISTERS)


def test_the_command_prints_a_table(data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "cfnade",
        "compare",
        str(data),
        "--ranking",
        "--n-threads",
        "1",
    ]
    command += ["--models", "popularity,item-knn", "--splits", "liang:30", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["NDCG@100", "R@20", "R@50"]
    figures = json.loads((tmp_path / "comparison.json").read_text())["models"]
    assert [model["model"] for model in figures] == ["item-knn", "popularity"]
    top = figures[0]["ndcg@100"]
    assert lines[1].startswith(f"item-kNN            {top['mean']:.4f} ± {top['sd']:.4f}*")
    assert lines[3] == "* best of the column, ± standard error over people"
    refused = subprocess.run([*command, "--plot"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "--plot is for the RMSE" in refused.stderr
