"""Summary of a comparison: mean and standard deviation over splits, the best models, a chart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfnade.exceptions import ModelError
from cfnade_baselines.compare import FitResult
from cfnade_baselines.registry import Task

COLUMNS: Mapping[Task, dict[str, str]] = {
    "rating": {
        "rmse": "RMSE",
        "mae_of_means": "MAE of means",
        "nll": "NLL",
        "fit_seconds": "fit s",
        "fit_cpu_seconds": "fit CPU s",
        "predict_seconds": "predict s",
        "peak_mb": "peak MB",
    },
    "ranking": {
        "ndcg@100": "NDCG@100",
        "capped_recall@20": "R@20",
        "capped_recall@50": "R@50",
        "fit_seconds": "fit s",
        "fit_cpu_seconds": "fit CPU s",
        "search_cpu_seconds": "search CPU s",
        "predict_seconds": "predict s",
        "peak_mb": "peak MB",
    },
}
"""Columns of the table; the first is the main metric. R is capped recall."""


@dataclass(frozen=True)
class MeanStd:
    """A mean over splits. For a single split `std` is the standard error over users, if known."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Summary:
    """A model's figures, and why some splits have none."""

    model: str
    title: str
    splits: list[str]
    figures: dict[str, MeanStd | None]
    reasons: dict[str, str]


def summarize(results: Sequence[FitResult], task: Task = "rating") -> list[Summary]:
    """Return one summary per model, best by the main metric first, those without scores last."""
    names = dict.fromkeys(result.model for result in results)
    table = [_summary([r for r in results if r.model == name], task) for name in names]
    lead = next(iter(COLUMNS[task]))
    return sorted(table, key=lambda row: (row.figures[lead] is None, _loss(row, lead)))


def best(table: Sequence[Summary]) -> dict[str, float]:
    """Return the best mean of each column among the models with scores on the most splits.

    A model that is scored on fewer splits than others had other, perhaps easier, test ratings.
    """
    complete = _complete(table)
    return {
        column: _mean(min(complete, key=lambda row: _loss(row, column)), column)
        for column in (complete[0].figures if complete else ())
        if any(row.figures[column] for row in complete)
    }


def as_json(
    results: Sequence[FitResult], header: dict[str, Any], task: Task = "rating"
) -> dict[str, Any]:
    """Return all results for JSON."""
    table = summarize(results, task)
    names = {
        column: next(row.model for row in _complete(table) if _mean(row, column) == value)
        for column, value in best(table).items()
    }
    return header | {
        "best": names,
        "models": [
            {
                "model": row.model,
                "title": row.title,
                "splits": row.splits,
                "reasons": row.reasons,
                **{c: f and {"mean": f.mean, "std": f.std} for c, f in row.figures.items()},
                "fits": {r.split: r.scores for r in results if r.model == row.model and r.scores},
            }
            for row in table
        ],
    }


def _complete(table: Sequence[Summary]) -> list[Summary]:
    most = max((len(row.splits) for row in table), default=0)
    return [row for row in table if len(row.splits) == most > 0]


def _summary(results: list[FitResult], task: Task) -> Summary:
    scored = [result for result in results if result.scores is not None]
    return Summary(
        results[0].model,
        results[0].title,
        [result.split for result in scored],
        {column: _figure(scored, column, len(results)) for column in COLUMNS[task]},
        {r.split: r.reason for r in results if r.reason is not None},
    )


def _figure(scored: list[FitResult], column: str, n_splits: int) -> MeanStd | None:
    values = [result.scores[column] for result in scored if result.scores is not None]
    if not values or any(value is None for value in values):
        return None
    if len(values) > 1:
        return MeanStd(statistics.fmean(values), statistics.stdev(values))
    error = (scored[0].scores or {}).get(f"{column}_error")
    return MeanStd(values[0], error if n_splits == 1 else None)


def _mean(row: Summary, column: str) -> float:
    figure = row.figures[column]
    return float("inf") if figure is None else figure.mean


def _loss(row: Summary, column: str) -> float:
    """Return a number that is smaller for better models; ranking metrics are gains."""
    is_gain = "@" in column and row.figures[column] is not None
    return -_mean(row, column) if is_gain else _mean(row, column)


# -- chart -----------------------------------------------------------------------------------------


def require_matplotlib() -> Any:
    """Return matplotlib's Figure, or raise an error with the install command."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ModelError(
            "a picture needs matplotlib; install it with: pip install 'cfnade[plot]'"
        ) from None
    return Figure


def draw(table: Sequence[Summary], path: Path, title: str) -> None:
    """Plot RMSE against the seconds of a fit; the suffix of `path` is the format."""
    points = [
        (row.title, row.figures["fit_seconds"].mean, row.figures["rmse"])
        for row in table
        if row.figures["rmse"] is not None and row.figures["fit_seconds"] is not None
    ]
    if not points:
        raise ModelError("no model has scores, so there is nothing to draw")
    figure = require_matplotlib()(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for name, seconds, rmse in points:
        color = "tab:red" if "CF-NADE" in name else "tab:blue"
        axes.errorbar(seconds, rmse.mean, yerr=rmse.std or 0.0, fmt="o", color=color, capsize=2)
        axes.annotate(
            name, (seconds, rmse.mean), xytext=(5, 3), textcoords="offset points", fontsize=8
        )
    axes.set_xscale("log")
    axes.set(xlabel="seconds of a fit", ylabel="RMSE on test", title=title)
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date and random ids the same figures give the same file.
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "cfnade"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
