"""A comparison: fair, resumable, and not ended by a model that fails."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade import load_split, synthetic
from cfnade.evaluation.rating_metrics import calibration_error, mae, nll, rmse
from cfnade.exceptions import DataError, ModelError
from cfnade_baselines import compare as comparison
from cfnade_baselines.compare import (
    JOB_FIELDS,
    Comparison,
    FitResult,
    ResultsFile,
    compare,
    fit_in_process,
    select_presets,
)
from cfnade_baselines.registry import create, library_version, load_preset, preset_names
from cfnade_baselines.report import COLUMNS, as_json, best, draw, summarize
from cfnade_baselines.run_fit import peak_mb, run_fit


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 2,000 ratings."""
    made = synthetic(60, 50, 2_000, seed=5).ratings
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    cells = zip(made.users.tolist(), made.items.tolist(), made.values.tolist(), strict=True)
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{v:g}\n" for u, i, v in cells))
    return path


def job(data: Path, model: str, split: str = "paper:0", **options: Any) -> dict[str, Any]:
    fingerprint = load_split(str(data), split).fingerprint
    what = {"model": model, "options": options, "data": str(data), "load_options": {}}
    what |= {"task": "rating"}
    return what | {"split": split, "fingerprint": fingerprint, "seed": 0, "n_threads": 1}


# -- one fit -------------------------------------------------------------------------------------


def test_scores_are_those_of_the_clipped_predictions_on_test(data: Path) -> None:
    scores = fit_in_process(job(data, "means"))["scores"]
    parts = load_split(str(data), "paper:0")
    train, test = parts.train, parts.test
    mean = train.values.mean()
    items, users = np.zeros(50), np.zeros(60)
    for item in range(50):
        mine = train.values[train.items == item] - mean
        items[item] = mine.sum() / (len(mine) + 5.0)
    for user in range(60):
        own = train.users == user
        mine = train.values[own] - mean - items[train.items[own]]
        users[user] = mine.sum() / (len(mine) + 5.0)
    expected = np.clip(mean + users[test.users] + items[test.items], 1, 5)
    assert scores["rmse"] == pytest.approx(rmse(test.values, expected), abs=1e-12)
    assert scores["mae_of_means"] == pytest.approx(mae(test.values, expected), abs=1e-12)
    assert scores["nll"] is None
    assert scores["n"] == len(test)
    assert scores["fit_seconds"] > 0
    assert 10 < scores["peak_mb"] < 4000


class _Wild:
    """Predicts far beyond the scale, and surely; or nothing at all."""

    def __init__(self, value: float = 9.0) -> None:
        self.value = value
        self.seen: list[int] = []

    def fit(self, train: Any, valid: Any, *, seed: int, n_threads: int | None) -> _Wild:
        self.seen = [len(train), len(valid), seed, n_threads or 0]
        return self

    def predict(self, users: Any, _: Any) -> Any:
        return np.full(len(users), self.value)

    def predict_proba(self, users: Any, _: Any) -> Any:
        return np.tile([0.1, 0.2, 0.3, 0.3, 0.1], (len(users), 1))


def test_predictions_beyond_the_scale_are_clipped(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade_baselines.run_fit.create", lambda _: _Wild())
    scores = run_fit(job(data, "means"))["scores"]
    test = load_split(str(data), "paper:0").test
    assert scores["rmse"] == pytest.approx(rmse(test.values, np.full(len(test), 5.0)))
    chances = np.tile([0.1, 0.2, 0.3, 0.3, 0.1], (len(test), 1))
    assert scores["nll"] == pytest.approx(nll(chances, test.levels))
    assert scores["calibration_error"] == pytest.approx(calibration_error(chances, test.levels))


def test_predictions_that_are_no_numbers_are_a_failure(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade_baselines.run_fit.create", lambda _: _Wild(float("nan")))
    refusal = run_fit(job(data, "means"))
    assert refusal["scores"] is None
    assert "200 predictions are not finite" in refusal["reason"]


def test_the_fit_never_sees_test_ratings(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = _Wild()
    monkeypatch.setattr("cfnade_baselines.run_fit.create", lambda _: wild)
    run_fit(job(data, "means"))
    parts = load_split(str(data), "paper:0")
    assert wild.seen == [len(parts.train), len(parts.valid), 0, 1]
    scores = run_fit(job(data, "means") | {"with_validation": True})["scores"]
    assert wild.seen == [len(parts.train) + len(parts.valid), 0, 0, 1]
    assert scores["valid_rmse"] is None


def test_peak_memory_is_of_that_process_alone(data: Path) -> None:
    """However large this process has been, the fit's is small."""
    block = np.ones(40_000_000)  # 320 MB
    here = peak_mb()
    assert here is not None
    assert here > block.nbytes / 2**20
    del block
    assert fit_in_process(job(data, "means"))["scores"]["peak_mb"] < 300


def test_peak_memory_counts_a_process_that_the_fit_ran() -> None:
    code = (
        "from cfnade_baselines.run_fit import peak_mb; import subprocess, sys; print(peak_mb())\n"
    )
    code += "subprocess.run([sys.executable, '-c', 'bytearray(300 * 2**20)']); print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert before < 300 < after


def test_a_process_that_dies_is_a_reason(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert "printed no result" in fit_in_process(job(data, "means"))["reason"]


def test_wrong_options_and_changed_data_are_reasons(data: Path) -> None:
    assert "must be one of" in run_fit(job(data, "means", kind="film"))["reason"]
    changed = job(data, "means") | {"fingerprint": "0" * 32}
    assert "has changed since" in run_fit(changed)["reason"]


# -- many fits -----------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Fits that were asked for; user-mean fails and item-mean is not installed."""
    calls: list[tuple[str, str]] = []

    def instead(job: dict[str, Any]) -> dict[str, Any]:
        of = job["options"].get("kind", "both")
        calls.append((of, job["split"]))
        if of == "user":
            return {"scores": None, "reason": "it broke"}
        if of == "item":
            return {"scores": None, "reason": "needs x; pip install x", "missing": True}
        return {"scores": _scores(1.0 + len(calls) / 100)}

    monkeypatch.setattr(comparison, "fit_in_process", instead)
    return calls


def _scores(value: float, **other: Any) -> dict[str, Any]:
    names = "rmse", "mae_of_means", "fit_seconds", "fit_cpu_seconds", "predict_seconds"
    base: dict[str, Any] = dict.fromkeys(names, value)
    return base | {"nll": None, "peak_mb": 100.0} | other


MODELS = ["user-mean", "item-mean", "global-mean", "means"]
SPLITS = ["paper:0", "paper:1"]


def test_failures_and_missing_libraries_do_not_end_it(
    data: Path, asked: list[tuple[str, str]]
) -> None:
    said: list[str] = []
    outcomes = compare(Comparison(str(data), {}, 0, 1), MODELS, SPLITS, report=said.append)
    scored = [(o.model, o.split) for o in outcomes if o.scores]
    assert scored == [(m, s) for m in MODELS[2:] for s in SPLITS]
    assert [o.reason for o in outcomes if o.model == "user-mean"] == ["it broke", "it broke"]
    assert [o.missing for o in outcomes if o.model == "item-mean"] == [True]  # not asked for again
    assert len(asked) == 7
    assert "item-mean on paper:0: needs x; pip install x" in said


def test_what_is_done_is_not_done_again(
    data: Path, asked: list[tuple[str, str]], tmp_path: Path
) -> None:
    task = Comparison(str(data), {}, 0, 1)
    first = compare(task, ["means"], SPLITS[:1], results=tmp_path / "results.jsonl")
    both = compare(task, ["means", "global-mean"], SPLITS, results=tmp_path / "results.jsonl")
    assert asked == [("both", "paper:0"), ("both", "paper:1"), *(("global", s) for s in SPLITS)]
    assert both[0] == first[0]
    compare(
        Comparison(str(data), {}, 1, 1), ["means"], SPLITS[:1], results=tmp_path / "results.jsonl"
    )  # another seed
    compare(task, ["user-mean"], SPLITS[:1], results=tmp_path / "results.jsonl")
    compare(
        task, ["user-mean"], SPLITS[:1], results=tmp_path / "results.jsonl"
    )  # a failure is tried again
    assert len(asked) == 7


def test_a_result_is_reused_by_its_options_and_the_version_of_its_library(
    data: Path, asked: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new release of this package or another number of threads needs no new fit."""
    path = tmp_path / "results.jsonl"
    first = compare(Comparison(str(data), {}, 0, 1), ["means"], SPLITS[:1], results=path)
    monkeypatch.setattr("cfnade.__version__", "99.0")
    assert compare(Comparison(str(data), {}, 0, 2), ["means"], SPLITS[:1], results=path) == first
    assert len(asked) == 1
    monkeypatch.setattr(comparison, "library_version", lambda *_: "library 2.0")
    compare(Comparison(str(data), {}, 0, 1), ["means"], SPLITS[:1], results=path)
    assert len(asked) == 2
    assert {record["library"] for record in ResultsFile(path).records()} == {None, "library 2.0"}


def test_library_versions_name_the_distribution() -> None:
    assert library_version("means", "rating") is None
    assert str(library_version("ease", "ranking")).startswith("irspack ")


def test_committed_results_are_complete() -> None:
    results = Path(__file__).parents[2] / "experiments/results/comparison.jsonl"
    records = ResultsFile(results, JOB_FIELDS).records()
    assert len(records) > 100
    for record in records:
        assert set(COLUMNS[record["task"]]) <= set(record["scores"])
        assert set(JOB_FIELDS) <= set(record)


def test_splits_are_loaded_one_at_a_time(
    data: Path, asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only their fingerprints stay in memory."""
    loaded: list[Any] = []

    def loading(*arguments: Any) -> Any:
        split = load_split(*arguments)
        assert all(reference() is None for reference in loaded)
        loaded.append(weakref.ref(split))
        return split

    monkeypatch.setattr(comparison, "load_split", loading)
    compare(Comparison(str(data), {}, 0, 1), ["means"], SPLITS)
    assert len(loaded) == len(asked) == 2


def test_what_cannot_be_compared_is_refused_before_any_fit(
    data: Path, asked: list[tuple[str, str]]
) -> None:
    task = Comparison(str(data), {}, 0, 1)
    wrong: list[tuple[list[str], list[str], type[ValueError], str]] = [
        (["menas"], ["paper:0"], ModelError, "unknown model 'menas'; did you mean 'means'"),
        (["means", "means"], ["paper:0"], ModelError, "'means' is given twice"),
        (["means"], [], DataError, "give at least one"),
        (["means"], ["paper:0", "paper:0"], DataError, "each once"),
        (["means"], ["papre:0"], DataError, "papre"),
    ]
    for models, splits, kind, message in wrong:
        with pytest.raises(kind, match=message):
            compare(task, models, splits)
    assert asked == []


def test_slow_models_are_left_out_of_large_data_unless_named() -> None:
    slow = [name for name in preset_names() if load_preset(name).max_ratings is not None]
    assert "svdpp" in slow
    few, said_nothing = select_presets(None, 100)
    many, notes = select_presets(None, 10**9)
    assert {c.name for c in few} - {c.name for c in many} == set(slow)
    assert said_nothing == []
    assert any(note.startswith("svdpp: skipped") for note in notes)
    assert [c.name for c in select_presets(["svdpp"], 10**9)[0]] == ["svdpp"]


@pytest.mark.parametrize("name", preset_names())
def test_every_contestant_is_a_model_that_takes_its_options(name: str) -> None:
    for data in ("ml-1m", "ml-100k"):
        create(load_preset(name).model, **load_preset(name).options_for(data))


# -- figures -------------------------------------------------------------------------------------


def outcome(model: str, split: str, scores: dict[str, Any] | None, reason: str = "") -> FitResult:
    return FitResult(model, model.upper(), split, scores, reason or None)


OUTCOMES = [
    outcome("slow", "a", _scores(0.8, fit_seconds=100.0, nll=1.1)),
    outcome("slow", "b", _scores(0.9, fit_seconds=200.0, nll=1.3)),
    outcome("fast", "a", _scores(0.9, fit_seconds=1.0)),
    outcome("fast", "b", _scores(1.0, fit_seconds=3.0)),
    outcome("half", "a", _scores(0.1, fit_seconds=0.1)),
    outcome("half", "b", None, "it broke"),
    outcome("gone", "a", None, "not installed"),
]


def test_summarize_have_means_and_deviations_over_splits() -> None:
    table = {row.model: row for row in summarize(OUTCOMES)}
    assert list(table) == ["half", "slow", "fast", "gone"]
    slow = table["slow"].figures
    assert slow["rmse"] is not None
    assert slow["rmse"].mean == pytest.approx(0.85)
    assert slow["rmse"].std == pytest.approx(np.std([0.8, 0.9], ddof=1))
    assert table["fast"].figures["nll"] is None
    assert table["half"].figures["rmse"] is not None
    assert table["half"].figures["rmse"].std is None
    assert table["half"].reasons == {"b": "it broke"}
    assert table["gone"].splits == []


def test_only_models_on_all_splits_can_be_best() -> None:
    least = best(summarize(OUTCOMES))
    assert least["rmse"] == pytest.approx(0.85)
    assert least["fit_seconds"] == pytest.approx(2.0)
    assert least["nll"] == pytest.approx(1.2)
    assert best(summarize(OUTCOMES[-1:])) == {}


def test_json_holds_every_fit_and_who_was_best() -> None:
    figures = json.loads(json.dumps(as_json(OUTCOMES, {"data": "x"})))
    assert figures["data"] == "x"
    assert figures["best"] == {
        **dict.fromkeys(COLUMNS["rating"], "slow"),
        "fit_seconds": "fast",
    }
    half = next(m for m in figures["models"] if m["model"] == "half")
    assert half["fits"]["a"]["rmse"] == 0.1
    assert half["reasons"] == {"b": "it broke"}


def test_the_picture_has_a_point_for_each_model_on_a_log_axis(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(summarize(OUTCOMES), tmp_path / "new" / "p.svg", "title")
    first = (tmp_path / "new" / "p.svg").read_bytes()
    for word in (b"FAST", b"SLOW", b"HALF", b"seconds of a fit"):
        assert word in first
    assert b"GONE" not in first
    draw(summarize(OUTCOMES), tmp_path / "q.svg", "title")
    assert (tmp_path / "q.svg").read_bytes() == first
    with pytest.raises(ModelError, match="nothing to draw"):
        draw(summarize(OUTCOMES[-1:]), tmp_path / "r.svg", "title")


def test_without_matplotlib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModelError, match=r"pip install 'cfnade\[plot\]'"):
        draw(summarize(OUTCOMES), tmp_path / "p.svg", "title")


# -- the results file ------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path) -> ResultsFile:
    return ResultsFile(tmp_path / "new" / "table.jsonl")


def test_a_record_replaces_the_one_with_its_key(results: ResultsFile) -> None:
    key = {"name": "b", "split": "u1", "seed": 0}
    assert results.find(key) is None
    results.add(key | {"rmse": 0.9})
    results.add({"name": "a", "split": "u1", "seed": 10})
    results.add({"name": "a", "split": "u1", "seed": 9})
    results.add(key | {"rmse": 0.8})
    assert results.find(key) == key | {"rmse": 0.8}
    assert [(r["name"], r["seed"]) for r in results.records()] == [("a", 9), ("a", 10), ("b", 0)]


def test_key_fields_may_be_tables_in_any_order(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "table.jsonl", ("name", "options"))
    results.add({"name": "a", "options": {"x": 1, "y": 2}})
    assert results.find({"name": "a", "options": {"y": 2, "x": 1}}) is not None
    assert results.find({"name": "a", "options": {"x": 1}}) is None


def test_writers_at_the_same_time_lose_nothing(results: ResultsFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: results.add({"name": "a", "seed": seed}), range(40)))
    assert [record["seed"] for record in results.records()] == list(range(40))


def test_a_line_that_is_no_record_is_named(results: ResultsFile) -> None:
    results.add({"name": "a"})
    results.path.write_text(results.path.read_text() + "[1]\n")
    with pytest.raises(DataError, match=r"table.jsonl, line 2: this is not a record; delete the"):
        results.records()
