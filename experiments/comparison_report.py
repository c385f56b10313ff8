"""Write docs/results/comparison.md and its pictures from results/comparison.jsonl.

    python -m experiments.comparison_report

A result with other options than those of its preset is left out, and named.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.report import markdown_table
from cfnade.utils.files import write_text
from cfnade_baselines.compare import FitResult, ResultsFile
from cfnade_baselines.registry import Preset, load_preset, preset_names
from cfnade_baselines.report import Summary, best, draw, summarize

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs" / "results"
SETS = {"ml-1m": "MovieLens 1M", "ml-100k": "MovieLens 100K", "netflix": "Netflix"}
PUBLISHED_ONLY = {"ml-10m": "MovieLens 10M"}
TUNED = ("ml-1m", "ml-100k")
"""Data sets on which options were chosen."""
MISS = 0.005
Published = dict[str, dict[str, tuple[float, str]]]

INTRODUCTION = """# Comparison with other systems

`python -m experiments.comparison` generates this page from `experiments/results/comparison.jsonl`.
All figures but published ones were measured with `cfnade compare`.

**Protocol.** Each model is fitted to the training part of a split, may use the validation part for
early stopping, and is scored once on the test part. Models that are also fitted to the validation
part are named below each table. Options were chosen by validation on the first split of each data
set (`experiments/tune_baselines.py`); they are stored in `src/cfnade_baselines/presets/`.
Predictions are clipped to the scale. RMSE and MAE refer to the mean of the predicted distribution.
NLL is in nats per rating, for models that predict distributions; that of CF-NADE is calibrated on
validation data. As in its paper, CF-NADE conditions on training and validation ratings. ± is the
standard deviation over splits. Bold is the best of the models that ran on all splits.

**Time and memory.** Every fit ran in its own process with one or two threads, on a shared machine
with two cores. `CPU s` is less affected by other load than `fit s`. Peak memory includes Python,
libraries and data.
"""


def published() -> Published:
    """Return the figures of papers, with their sources."""
    sets = tomllib.loads((HERE / "published.toml").read_text())
    return {data: {m: (v[0], v[1]) for m, v in table.items()} for data, table in sets.items()}


def results_of(data: str) -> list[FitResult]:
    """Return all results on a data set with the options of today's presets."""
    results = []
    for record in ResultsFile(RESULTS / "comparison.jsonl").records():
        if record["data"] != data or record["task"] != "rating":
            continue
        name = record["name"]
        if name not in preset_names() or not _has_preset_options(record, load_preset(name)):
            print(f"{name} on {record['split']}: fitted with other options; run it again")
            continue
        title = load_preset(name).title
        results.append(FitResult(name, title, record["split"], record["scores"]))
    return results


def _has_preset_options(record: dict[str, Any], preset: Preset) -> bool:
    options = json.loads(json.dumps(preset.options_for(record["data"])))
    return (options, preset.with_validation) == (record["options"], record["with_validation"])


def table(results: list[FitResult], papers: dict[str, tuple[float, str]]) -> str:
    """Return a table with a row per model, best first."""
    head = ["model", "RMSE", "published", "MAE of means", "NLL", "fit s", "CPU s", "predict s"]
    lines = []
    summaries = summarize(results)
    least, most = best(summaries), max(len(row.splits) for row in summaries)
    for row in summaries:
        paper = f"{papers[row.model][0]:.3f}" if row.model in papers else "–"
        cells = [
            _cell(row, column, digits, least if len(row.splits) == most else {})
            for column, digits in (
                ("rmse", 4),
                ("mae_of_means", 4),
                ("nll", 4),
                ("fit_seconds", 1),
                ("fit_cpu_seconds", 1),
                ("predict_seconds", 2),
                ("peak_mb", 0),
            )
        ]
        cells.insert(1, paper)
        lines.append([row.title, *cells, str(len(row.splits))])
    return markdown_table([*head, "peak MB", "splits"], lines)


def _cell(row: Summary, column: str, digits: int, least: dict[str, float]) -> str:
    figure = row.figures[column]
    if figure is None:
        return "–"
    text = f"{figure.mean:.{digits}f}"
    if figure.std is not None and digits == 4:
        text += f" ± {figure.std:.4f}"
    return f"**{text}**" if figure.mean == least.get(column) else text


def learners(results: list[FitResult]) -> list[str]:
    """Name the models that are also fitted to validation ratings."""
    rows = [row.title for row in summarize(results) if load_preset(row.model).with_validation]
    if not rows:
        return []
    note = "Also fitted to the validation part: "
    return [f"{note}{', '.join(rows)}.", ""]


def misses(data: str, results: list[FitResult], papers: dict[str, tuple[float, str]]) -> list[str]:
    """List models more than MISS above their published figure, with what was tried."""
    lines = []
    for row in summarize(results):
        figure = row.figures["rmse"]
        if row.model in papers and figure and figure.mean - papers[row.model][0] > MISS:
            gap = figure.mean - papers[row.model][0]
            tried = _tried(row.model, data)
            lines.append(f"- {row.title}: {gap:.4f} above its published figure. {tried}")
    absent = [_title(model) for model in papers if model not in {o.model for o in results}]
    notes = [f"Not run here, though published: {', '.join(absent)}.", ""] if absent else []
    if lines:
        return [*notes, f"More than {MISS} above the published figure:", "", *lines]
    if len(absent) == len(papers):
        return notes
    return [*notes, f"No model that was run misses its published figure by more than {MISS}."]


def _title(model: str) -> str:
    return load_preset(model).title if model in preset_names() else model


def _tried(model: str, data: str) -> str:
    """Describe the search on validation of a model."""
    if data not in TUNED:
        return "Its options are those of MovieLens 1M; no others were tried here."
    if notes := load_preset(model).search_notes:
        return notes
    tried = [
        record
        for record in ResultsFile(RESULTS / "tuning.jsonl").records()
        if (record["name"], record["data"]) == (load_preset(model).model, "ml-1m")
    ]
    if not tried:
        return "What was tried is not recorded."
    options = ", ".join(sorted({name for record in tried for name in record["options"]}))
    least = min(record["rmse"] for record in tried)
    return f"Tried: {len(tried)} settings of {options}; the best validation RMSE was {least:.4f}."


def section(data: str, papers: dict[str, tuple[float, str]]) -> list[str]:
    """Return the table, picture and misses of a data set."""
    results = results_of(data)
    if not results:
        return [f"## {SETS[data]}", "", "No runs yet.", ""]
    splits = sorted({result.split for result in results})
    loads = [o.scores["load"] for o in results if o.scores]
    picture = f"comparison-{data}.svg"
    plotted = [row for row in summarize(results) if row.model != "global-mean"]
    draw(plotted, DOCS / picture, SETS[data])
    return [
        f"## {SETS[data]}",
        "",
        f"Splits: {', '.join(splits)}; the last column has the number that a model was run on. "
        f"Mean load of the machine: {sum(loads) / len(loads):.1f}.",
        "",
        table(results, papers),
        f"`python -m experiments.comparison {data}`; one row: `--models NAME --rerun`.",
        "",
        *learners(results),
        f"![RMSE against the seconds of a fit]({picture})",
        "",
        *(misses(data, results, papers) if papers else []),
        "",
    ]


def published_only(papers: Published) -> list[str]:
    """Return published figures on data sets where no baseline was run."""
    lines = ["## Published figures only", "", "Other systems were not run on these data sets.", ""]
    for data, title in PUBLISHED_ONLY.items():
        rows = sorted(papers[data].items(), key=lambda pair: pair[1][0])
        cells = [[_title(model), f"{value:g}", source] for model, (value, source) in rows]
        lines.append(markdown_table([title, "published RMSE", "where"], cells))
    return lines


def sources(papers: dict[str, tuple[float, str]]) -> list[str]:
    rows = sorted(papers.items(), key=lambda pair: pair[1][0])
    cells = [[_title(model), f"{value:.3f}", source] for model, (value, source) in rows]
    table = markdown_table(["model", "RMSE", "where"], cells)
    return ["## Sources of the published figures on MovieLens 1M", "", table]


def settings() -> list[str]:
    """Return the options of every model."""
    lines = []
    for preset in map(load_preset, preset_names()):
        cells = [
            ", ".join(f"{name} {value}" for name, value in options.items())
            for options in (preset.options, preset.ml_100k)
        ]
        lines.append([preset.title, cells[0] or "defaults", cells[1] or "–"])
    table = markdown_table(["model", "MovieLens 1M", "MovieLens 100K differs"], lines)
    return ["## Options, chosen by validation", "", table]


def main() -> None:
    papers = published()
    lines = [INTRODUCTION]
    for data in SETS:
        lines += section(data, papers[data])
    lines += [*sources(papers["ml-1m"]), *published_only(papers), *settings()]
    write_text(DOCS / "comparison.md", "\n".join(lines).rstrip() + "\n")
    print("docs/results/comparison.md", file=sys.stderr)


if __name__ == "__main__":
    main()
