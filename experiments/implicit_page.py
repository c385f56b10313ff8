"""Write docs/results/implicit.md from the records of implicit_results.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import markdown_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "implicit.md"
Measurement = dict[str, Any]
HEAD = """# Top-n recommendation with no settings

This page compares `cfnade train FILE`, without any settings, with tuned baselines on twelve data
sets. `python experiments/implicit_results.py` generates it from
`experiments/results/implicit.jsonl`. [Implicit feedback](../how-to/implicit-feedback.md) describes
what cfnade tries.

## Protocol

- **Data.** Steam and Last.fm have a training and a test file. For the other data sets, a fifth of
  the interactions of each user with at least five is held out for the test: random ones, or the
  latest where popularity drifts. Interactions are ratings in the upper quarter of the scale. The
  last five data sets are synthetic.
- **Ranking.** All items but those in the user's training data are ranked.
- **Baselines** are tuned on a validation part, then fitted to all training data. `grid` in the
  script has their search ranges. They count every interaction as 1.
- **Seeds** change the held-out interactions, the synthetic data and random starts. ± is the
  standard error over users of the mean over seeds. Bold: within one standard error of the best, on
  the seeds of both.
- **Seconds** include the search. They were measured on shared machines, so CPU seconds, the sum
  over all threads, are more comparable.
"""
NAMES = {
    "item-knn": "item-kNN",
    "ease": "EASE",
    "ials": "iALS (irspack)",
    "bpr": "BPR (implicit)",
    "mult-vae": "MultVAE (Cornac)",
}
TITLES = {
    "steam": "Steam",
    "lastfm": "Last.fm",
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
}
TITLES |= {"ml-latest-small": "MovieLens latest-small", "filmtrust": "FilmTrust"}


def write_page(record: Path, rows: list[str], models: list[str]) -> None:
    """Write the page from the recorded measurements."""
    lines = record.read_text().splitlines() if record.exists() else []
    measured: list[Measurement] = [json.loads(line) for line in lines]
    latest = {(m["row"], m["model"], m["seed"]): m for m in measured}
    by_row = {row: _by_model(row, list(latest.values()), models) for row in rows}
    by_row = {row: by_model for row, by_model in by_row.items() if any(by_model.values())}
    parts = [HEAD, _overview(by_row, models), *(_section(row, m) for row, m in by_row.items())]
    if missing := [_title(row) for row in rows if row not in by_row]:
        parts.append(f"Not measured: {', '.join(missing)}.\n")
    PAGE.write_text("\n".join(parts))


def _by_model(row: str, measured: list[Measurement], models: list[str]) -> dict[str, Any]:
    """Return the measurements of each model on the seeds that cfnade was measured with."""
    measured = [m for m in measured if m["row"] == row]
    seeds = {m["seed"] for m in measured if m["model"] == "cfnade"}
    return {
        model: [m for m in measured if m["model"] == model and m["seed"] in seeds]
        for model in models
    }


def _overview(by_row: dict[str, dict[str, list[Measurement]]], models: list[str]) -> str:
    lines = []
    for row, by_model in by_row.items():
        leaders = _leaders(by_model)
        cells = [
            _bold(f"{_mean(runs, 'ndcg@20'):.4f}", model in leaders) if runs else "–"
            for model, runs in by_model.items()
        ]
        lines.append([f"[{_title(row)}](#{_anchor(row)})", *cells])
    behind = [_title(row) for row, by_model in by_row.items() if "cfnade" not in _leaders(by_model)]
    verdict = f", except on {', '.join(behind)}" if behind else " on every data set"
    table = markdown_table(["NDCG@20", *(NAMES.get(model, model) for model in models)], lines)
    return (
        f"## Overview\n\ncfnade is the best model, or within one standard error of it{verdict}. "
        f"A dash marks what was not measured.\n\n{table}"
    )


def _leaders(by_model: dict[str, list[Measurement]]) -> set[str]:
    """Return the best model and those within one standard error of it, on the seeds of both."""
    best = max(
        (model for model, runs in by_model.items() if runs),
        key=lambda model: _mean(by_model[model], "ndcg@20"),
    )
    values = {m["seed"]: m["ndcg@20"][0] for m in by_model[best]}
    leaders = {best}
    for model, runs in by_model.items():
        gaps = [values[m["seed"]] - m["ndcg@20"][0] for m in runs if m["seed"] in values]
        if gaps and np.mean(gaps) <= _error(runs):
            leaders.add(model)
    return leaders


def _section(row: str, by_model: dict[str, list[Measurement]]) -> str:
    runs_of_row = [m for runs in by_model.values() for m in runs]
    users, items, count = runs_of_row[0]["shape"]
    leaders = _leaders(by_model)
    lines = []
    for model, runs in by_model.items():
        if not runs:
            continue
        ndcg10, recall = (f"{_mean(runs, key):.4f}" for key in ("ndcg@10", "recall@20"))
        ndcg20 = f"{_mean(runs, 'ndcg@20'):.4f} ± {_error(runs):.4f}"
        seconds = [f"{np.mean([m[key] for m in runs]):.0f}" for key in ("seconds", "cpu_seconds")]
        figures = [ndcg10, _bold(ndcg20, model in leaders), recall, *seconds]
        lines.append([NAMES.get(model, model), str(len(runs)), *figures])
    head = ["", "seeds", "NDCG@10", "NDCG@20", "Recall@20", "seconds", "CPU seconds"]
    notes = [_options(model, runs[0]) for model, runs in by_model.items() if runs]
    return "\n".join(
        [
            f"## {_title(row)}\n",
            f"{users:,} users, {items:,} items, {count:,} training interactions.\n",
            markdown_table(head, lines),
            f"Options of the first seed: {'; '.join(filter(None, notes))}.\n",
            f"{_machines(runs_of_row)} Command: `python experiments/implicit_results.py --only "
            f"'{row}'`.\n",
        ]
    )


def _title(row: str) -> str:
    return TITLES.get(row, row.capitalize())


def _anchor(row: str) -> str:
    return _title(row).lower().replace(" ", "-").replace(",", "").replace(".", "")


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _mean(runs: list[Measurement], key: str) -> float:
    return float(np.mean([m[key][0] for m in runs]))


def _error(runs: list[Measurement]) -> float:
    """Return the standard error of the mean over seeds, from those over users."""
    return float(np.linalg.norm([m["ndcg@20"][1] for m in runs]) / len(runs))


def _options(model: str, run: dict[str, Any]) -> str:
    options = run.get("options") or run.get("weights") or {}
    values = ", ".join(f"{name} {value:.3g}" for name, value in options.items() if value)
    return f"{NAMES.get(model, model)}: {values}" if values else ""


def _machines(runs: list[Measurement]) -> str:
    machines = [run["machine"] for run in runs]
    processors = ", ".join(sorted({machine["cpu"] for machine in machines}))
    dates = sorted({machine["date"][:10] for machine in machines})
    commits = ", ".join(sorted({machine["commit"] for machine in machines}))
    return f"{processors}, {dates[0]} to {dates[-1]}, commits {commits}."
