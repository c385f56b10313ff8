"""Where each model stands: mean and standard deviation over splits, and who is best."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfnade_rivals.comparison import Outcome

COLUMNS = {
    "rmse": "RMSE",
    "mae_of_means": "MAE of means",
    "nll": "NLL",
    "fit_seconds": "fit s",
    "fit_cpu_seconds": "fit CPU s",
    "predict_seconds": "predict s",
    "peak_mb": "peak MB",
}
"""Less is better in all of them."""


@dataclass(frozen=True)
class Figure:
    """A mean over splits; sd is None with one split."""

    mean: float
    sd: float | None


@dataclass(frozen=True)
class Standing:
    """A model's figures, and why some splits have none."""

    model: str
    title: str
    splits: list[str]
    figures: dict[str, Figure | None]
    reasons: dict[str, str]


def standings(outcomes: Sequence[Outcome]) -> list[Standing]:
    """One a model, the smallest RMSE first, those without figures last."""
    models = dict.fromkeys(outcome.model for outcome in outcomes)
    table = [_standing([o for o in outcomes if o.model == name]) for name in models]
    return sorted(table, key=lambda row: (row.figures["rmse"] is None, _mean(row, "rmse")))


def best(table: Sequence[Standing]) -> dict[str, float]:
    """The smallest mean of each column, among the models with figures on the most splits.

    A model that is scored on fewer splits than others had other, perhaps easier, questions.
    """
    full = _full(table)
    return {
        column: min(_mean(row, column) for row in full)
        for column in COLUMNS
        if any(row.figures[column] for row in full)
    }


def _full(table: Sequence[Standing]) -> list[Standing]:
    most = max((len(row.splits) for row in table), default=0)
    return [row for row in table if len(row.splits) == most > 0]


def as_json(outcomes: Sequence[Outcome], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, for a machine."""
    table = standings(outcomes)
    return about | {
        "best": {c: _named_best(table, c, least) for c, least in best(table).items()},
        "models": [
            {
                "model": row.model,
                "title": row.title,
                "splits": row.splits,
                "reasons": row.reasons,
                **{c: f and {"mean": f.mean, "sd": f.sd} for c, f in row.figures.items()},
                "fits": {o.split: o.scores for o in outcomes if o.model == row.model and o.scores},
            }
            for row in table
        ],
    }


def _named_best(table: Sequence[Standing], column: str, least: float) -> str:
    return next(row.model for row in _full(table) if _mean(row, column) == least)


def _standing(outcomes: list[Outcome]) -> Standing:
    scored = [outcome for outcome in outcomes if outcome.scores is not None]
    return Standing(
        outcomes[0].model,
        outcomes[0].title,
        [outcome.split for outcome in scored],
        {column: _figure(scored, column) for column in COLUMNS},
        {o.split: o.reason for o in outcomes if o.reason is not None},
    )


def _figure(scored: list[Outcome], column: str) -> Figure | None:
    values = [outcome.scores[column] for outcome in scored if outcome.scores is not None]
    if not values or any(value is None for value in values):
        return None
    return Figure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def _mean(row: Standing, column: str) -> float:
    figure = row.figures[column]
    return float("inf") if figure is None else figure.mean
