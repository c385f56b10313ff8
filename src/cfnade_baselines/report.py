"""Where each model stands: mean and standard deviation over splits, and who is best."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfnade_baselines.compare import Outcome

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
LIST_COLUMNS = {
    "ndcg@100": "NDCG@100",
    "capped_recall@20": "R@20",
    "capped_recall@50": "R@50",
    "fit_seconds": "fit s",
    "fit_cpu_seconds": "fit CPU s",
    "search_cpu_seconds": "search CPU s",
    "predict_seconds": "predict s",
    "peak_mb": "peak MB",
}
"""Of lists. Recall is of at most as many as there are places."""
GAINS = frozenset(name for name in LIST_COLUMNS if "@" in name)
"""Columns in which more is better."""


@dataclass(frozen=True)
class MeanOverSplits:
    """A mean over splits. With one split sd is that of the mean over people, if it is known."""

    mean: float
    sd: float | None


@dataclass(frozen=True)
class ModelStanding:
    """A model's figures, and why some splits have none."""

    model: str
    title: str
    splits: list[str]
    figures: dict[str, MeanOverSplits | None]
    reasons: dict[str, str]


def standings(
    outcomes: Sequence[Outcome], columns: Mapping[str, str] = COLUMNS
) -> list[ModelStanding]:
    """One a model, the best by the first column first, those without figures last."""
    models = dict.fromkeys(outcome.model for outcome in outcomes)
    table = [_standing([o for o in outcomes if o.model == name], columns) for name in models]
    lead = next(iter(columns))
    return sorted(table, key=lambda row: (row.figures[lead] is None, _loss(row, lead)))


def best(table: Sequence[ModelStanding]) -> dict[str, float]:
    """The best mean of each column, among the models with figures on the most splits.

    A model that is scored on fewer splits than others had other, perhaps easier, questions.
    """
    full = _full(table)
    return {
        column: _mean(min(full, key=lambda row: _loss(row, column)), column)
        for column in (full[0].figures if full else ())
        if any(row.figures[column] for row in full)
    }


def _full(table: Sequence[ModelStanding]) -> list[ModelStanding]:
    most = max((len(row.splits) for row in table), default=0)
    return [row for row in table if len(row.splits) == most > 0]


def as_json(
    outcomes: Sequence[Outcome], about: dict[str, Any], columns: Mapping[str, str] = COLUMNS
) -> dict[str, Any]:
    """Everything, for a machine."""
    table = standings(outcomes, columns)
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


def _named_best(table: Sequence[ModelStanding], column: str, least: float) -> str:
    return next(row.model for row in _full(table) if _mean(row, column) == least)


def _standing(outcomes: list[Outcome], columns: Mapping[str, str]) -> ModelStanding:
    scored = [outcome for outcome in outcomes if outcome.scores is not None]
    return ModelStanding(
        outcomes[0].model,
        outcomes[0].title,
        [outcome.split for outcome in scored],
        {column: _figure(scored, column, len(outcomes)) for column in columns},
        {o.split: o.reason for o in outcomes if o.reason is not None},
    )


def _figure(scored: list[Outcome], column: str, splits: int) -> MeanOverSplits | None:
    values = [outcome.scores[column] for outcome in scored if outcome.scores is not None]
    if not values or any(value is None for value in values):
        return None
    if len(values) > 1:
        return MeanOverSplits(statistics.fmean(values), statistics.stdev(values))
    error = (scored[0].scores or {}).get(f"{column}_error")
    return MeanOverSplits(values[0], error if splits == 1 else None)


def _mean(row: ModelStanding, column: str) -> float:
    figure = row.figures[column]
    return float("inf") if figure is None else figure.mean


def _loss(row: ModelStanding, column: str) -> float:
    """What is better is less."""
    known = row.figures[column] is not None
    return -_mean(row, column) if column in GAINS and known else _mean(row, column)
