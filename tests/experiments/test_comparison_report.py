"""docs/results/comparison.md repeats what was measured, and says what was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cfnade_baselines.compare import JOB_FIELDS, ResultsFile
from cfnade_baselines.registry import load_preset
from experiments import comparison_report

pytest.importorskip("matplotlib")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RESULTS", "DOCS"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(comparison_report, name, tmp_path / name)
    return tmp_path


def result(places: Path, model: str, split: str, rmse: float, **changed: Any) -> None:
    preset = load_preset(model)
    names = "mae_of_means", "fit_seconds", "fit_cpu_seconds", "predict_seconds", "peak_mb", "load"
    record: dict[str, Any] = {"name": model, "task": "rating", "data": "ml-1m", "split": split}
    record |= {"options": preset.options_for("ml-1m") | changed, "seed": 0}
    record |= {"with_validation": preset.with_validation}
    record["scores"] = dict.fromkeys(names, 2.0) | {"rmse": rmse, "nll": None}
    ResultsFile(places / "RESULTS" / "comparison.jsonl", JOB_FIELDS).add(record)


def written(places: Path) -> str:
    comparison_report.main()
    return (places / "DOCS" / "comparison.md").read_text()


def test_the_table_has_means_spreads_and_published_figures(places: Path) -> None:
    for split, rmse in (("authors:1234", 0.84), ("authors:2341", 0.85)):
        result(places, "biasmf", split, rmse)
    result(places, "means", "authors:1234", 0.9)
    text = written(places)
    assert "| BiasMF (Cornac) | **0.8450 ± 0.0071** | 0.845 | **2.0000 ± 0.0000** | – |" in text
    assert "| user and item means | 0.9000 | – | 2.0000 | – | 2.0 | 2.0 | 2.00 | 2 | 1 |" in text
    assert "No model that was run misses its published figure" in text
    assert "Not run here, though published: PMF (Cornac), " in text
    assert "No runs yet." in text  # on MovieLens 100K
    assert (places / "DOCS" / "comparison-ml-1m.svg").exists()


def test_a_miss_is_said_with_what_was_tried(places: Path) -> None:
    result(places, "biasmf", "authors:1234", 0.86)
    tried = [{"options": {"factors": n}, "rmse": 0.85 + n / 1000} for n in (5, 6)]
    lines = [{"name": "biasmf", "data": "ml-1m"} | each for each in tried]
    ResultsFile(places / "RESULTS" / "tuning.jsonl", ("name", "options")).write(lines)
    text = written(places)
    assert (
        "BiasMF (Cornac): 0.0150 above its published figure. Tried: 2 settings of factors" in text
    )
    assert "the best validation RMSE was 0.8550" in text


def test_results_of_other_options_are_left_out_and_named(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result(places, "biasmf", "authors:1234", 0.84, epochs=1)
    result(places, "means", "authors:1234", 0.9)
    text = written(places)
    assert "0.8400" not in text
    assert "misses its published figure" not in text  # none was run that has one
    assert "biasmf on authors:1234: fitted with other options" in capsys.readouterr().out


def test_every_published_figure_has_a_source() -> None:
    papers = comparison_report.published()
    assert set(papers) == {"ml-1m", "ml-100k", "ml-10m", "netflix"}
    for table in papers.values():
        for value, source in table.values():
            assert 0.7 < value < 0.9
            assert "20" in source
