"""docs/comparison.md repeats what was measured, and says what was not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfnade_baselines.presets import contestant
from experiments import compare_report

pytest.importorskip("matplotlib")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FOLDER", "TUNING", "DOCS"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(compare_report, name, tmp_path / name)
    return tmp_path


def result(places: Path, model: str, split: str, rmse: float, **changed: Any) -> None:
    options = contestant(model).options_for("ml-1m") | changed
    names = "mae_of_means", "fit_seconds", "fit_cpu_seconds", "predict_seconds", "peak_mb", "load"
    scores = dict.fromkeys(names, 2.0) | {"rmse": rmse, "nll": None}
    folder = places / "FOLDER" / "ml-1m" / "fits"
    folder.mkdir(parents=True, exist_ok=True)
    job: dict[str, Any] = {"options": options, "split": split}
    if contestant(model).with_validation:
        job |= {"with_validation": True}
    text = {"recipe": model, "job": job, "scores": scores}
    (folder / f"{model}-{split}.json").write_text(json.dumps(text))


def written(places: Path) -> str:
    compare_report.main()
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
    lines = "".join(json.dumps(each) + "\n" for each in tried)
    (places / "TUNING" / "ml-1m-biasmf.jsonl").write_text(lines)
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
    assert "biasmf-authors:1234.json: made with other options" in capsys.readouterr().out


def test_every_published_figure_has_a_source() -> None:
    papers = compare_report.published()
    assert set(papers) == {"ml-1m", "ml-100k", "ml-10m", "netflix"}
    for table in papers.values():
        for value, source in table.values():
            assert 0.7 < value < 0.9
            assert "20" in source
