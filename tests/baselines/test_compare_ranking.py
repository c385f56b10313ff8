"""A comparison of top-n models: options selected on validation, the test part scored once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cfnade import load_split
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines import compare as comparison
from cfnade_baselines import run_fit as run_fit_module
from cfnade_baselines.base import Recommender
from cfnade_baselines.compare import Comparison, FitResult, compare
from cfnade_baselines.irspack import Popularity
from cfnade_baselines.ranking_protocol import (
    RankingQuery,
    drop_unused_items,
    ranking_task,
    score_all_items,
    score_rankings,
)
from cfnade_baselines.registry import (
    RECOMMENDERS,
    create_recommender,
    load_preset,
    preset_names,
)
from cfnade_baselines.report import COLUMNS, as_json, best, summarize
from cfnade_baselines.run_fit import run_fit


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 4,000 ratings, good ones for items of the user's group."""
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
    what |= {"task": "ranking", "search": search, "load_options": {}, "fingerprint": fingerprint}
    return what | {"seed": 0, "n_threads": 1}


GRID: list[dict[str, Any]] = [
    {"neighbors": 1},
    {"neighbors": 15},
    {"neighbors": 40, "shrinkage": 5.0},
]


@pytest.mark.parametrize("split", ["liang:30", "paper:1"])
def test_validation_selects_and_test_is_scored_once(
    data: Path, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[RankingQuery] = []

    def recording(score: Any, query: RankingQuery, **arguments: Any) -> Any:
        queries.append(query)
        return score_rankings(score, query, **arguments)

    monkeypatch.setattr(run_fit_module, "score_rankings", recording)
    scores = run_fit(job(data, "item-knn", GRID, split))["scores"]
    task = ranking_task(load_split(str(data), split))

    def ndcg(options: dict[str, Any], train: Any, query: RankingQuery) -> Any:
        items, matrix = drop_unused_items(train)
        model = create_recommender("item-knn", **options).fit(matrix)
        return score_rankings(score_all_items(model.score, items), query).estimates()

    values = [ndcg(options, task.train, task.valid)["ndcg@100"].mean for options in GRID]
    assert [tried["value"] for tried in scores["tried"]] == pytest.approx(values)
    assert scores["options"] == GRID[int(np.argmax(values))]
    for name, estimate in ndcg(scores["options"], task.final_train, task.test).items():
        assert scores[name] == pytest.approx(estimate.mean)
        assert scores[f"{name}_error"] == pytest.approx(estimate.error)
    assert [len(query) for query in queries] == [len(task.valid)] * 3 + [len(task.test)]
    assert scores["search_seconds"] > 0


def test_without_a_search_the_options_are_used(data: Path) -> None:
    scores = run_fit(job(data, "popularity", [], "liang:30"))["scores"]
    assert (scores["options"], scores["tried"], scores["search_seconds"]) == ({}, [], 0)
    assert scores["n"] == 30


def test_weights_of_a_blend_are_tried_with_one_fit(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[str] = []

    @options(ModelError)
    class Counting(Popularity):
        regularization: float = 1.0
        factors: int = 1
        unobserved_weight: float = 1.0
        epochs: int = 1

        def _fit(self, interactions: Any, seed: int, n_threads: int | None) -> None:
            fits.append("fit")
            super()._fit(interactions, seed, n_threads)

    @options(ModelError)
    class AlsoCounting(Counting):
        pass

    monkeypatch.setattr("cfnade_baselines.irspack.EASE", Counting)
    monkeypatch.setattr("cfnade_baselines.irspack.IALS", AlsoCounting)
    grid = [{"weight": w} for w in (0.2, 0.5, 0.8)]
    scores = run_fit(job(data, "ease+ials", grid, "liang:30"))["scores"]
    assert len(scores["tried"]) == 3
    assert len(fits) == 4  # two to select the weight, and two whose time counts


@options(ModelError)
class Oracle(Recommender):
    """Scores the items of the user's group."""

    name: ClassVar[str] = "oracle"

    def _fit(self, interactions: Any, seed: int, n_threads: int | None) -> None:
        assert (interactions.shape[1], seed, n_threads) == (60, 0, 1)

    def score(self, interactions: Any) -> Any:
        out = np.zeros(interactions.shape, np.float32)
        for row, history in enumerate(interactions):
            group = np.bincount(history.indices % 3, minlength=3).argmax()
            out[row, np.arange(60) % 3 == group] = 1.0
        return out


def test_a_recommender_joins_by_an_entry_in_the_registry(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cfnade_baselines.oracle", sys.modules[__name__])
    monkeypatch.setitem(RECOMMENDERS, "oracle", "oracle:Oracle")
    oracle = run_fit(job(data, "oracle", [], "liang:30"))["scores"]
    floor = run_fit(job(data, "popularity", [], "liang:30"))["scores"]
    assert oracle["ndcg@100"] > floor["ndcg@100"] + 0.05


# -- many fits -------------------------------------------------------------------------------------


def test_results_are_reused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []

    def fit_here(job: dict[str, Any]) -> dict[str, Any]:
        fitted.append(job["model"])
        return run_fit(job)

    monkeypatch.setattr(comparison, "fit_in_process", fit_here)
    about, lines = Comparison(str(data), {}, 0, 1, "ranking"), list[str]()
    path = tmp_path / "results.jsonl"
    first = compare(about, ["popularity"], ["liang:30"], results=path, report=lines.append)
    models = ["popularity", "item-knn"]
    both = compare(about, models, ["liang:30"], results=path, report=lines.append)
    assert fitted == ["popularity", "item-knn"]
    assert both[0] == first[0]
    assert both[1].scores is not None
    assert lines[-1].startswith(f"item-knn on liang:30: {both[1].scores['ndcg@100']:.4f}, ")


def test_rating_models_and_top_n_models_have_registries_of_their_own(data: Path) -> None:
    for models, task in ((["biasmf"], "ranking"), (["ease"], "rating")):
        about = Comparison(str(data), {}, 0, 1, task)  # type: ignore[arg-type]
        with pytest.raises(ModelError, match=r"unknown (top-n )?model"):
            compare(about, models, ["paper:1"])


def test_more_is_better_in_rankings() -> None:
    def result(model: str, split: str, value: float, seconds: float) -> FitResult:
        figures = dict.fromkeys(COLUMNS["ranking"], value) | {"ndcg@100_error": 0.01}
        figures |= {name: seconds for name in COLUMNS["ranking"] if "@" not in name}
        return FitResult(model, model, split, figures)

    one = [result("low", "a", 0.2, 1.0), result("high", "a", 0.4, 9.0)]
    table = summarize(one, "ranking")
    assert [row.model for row in table] == ["high", "low"]
    assert best(table)["ndcg@100"] == 0.4
    assert best(table)["fit_seconds"] == 1.0
    figure = table[0].figures["ndcg@100"]
    assert figure is not None
    assert figure.std == 0.01  # of one split the error over users
    failed = FitResult("none", "none", "a", None, "it broke")
    named = as_json([*one, failed], {}, "ranking")
    assert [model["model"] for model in named["models"]] == ["high", "low", "none"]
    assert named["best"]["capped_recall@20"] == "high"
    broken = FitResult("low", "low", "b", None, "it broke")
    (half,) = summarize([one[0], broken], "ranking")
    assert half.figures["ndcg@100"] is not None
    assert half.figures["ndcg@100"].std is None  # ± is over splits, and there is but one
    two = summarize([*one, result("low", "b", 0.4, 1.0)], "ranking")
    low = next(row.figures["ndcg@100"] for row in two if row.model == "low")
    assert low is not None
    assert low.std == pytest.approx(np.std([0.2, 0.4], ddof=1))


@pytest.mark.parametrize("name", preset_names("ranking"))
def test_every_preset_is_a_model_that_takes_its_options(name: str) -> None:
    preset = load_preset(name, "ranking")
    create_recommender(preset.model, **preset.options)
    for setting in preset.search:
        create_recommender(preset.model, **preset.options | setting)


def test_every_recommender_has_a_preset() -> None:
    assert {load_preset(name, "ranking").model for name in preset_names("ranking")} == set(
        RECOMMENDERS
    )


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
    assert lines[1].startswith(f"item-kNN            {top['mean']:.4f} ± {top['std']:.4f}*")
    assert lines[3] == "* best of the column, ± standard error over users"
    refused = subprocess.run([*command, "--plot"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "--plot is for the RMSE" in refused.stderr
