"""What to do with users and items that a model does not know."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cfnade.exceptions import PredictionError
from cfnade.inference.results import Predictions
from cfnade.utils.text import count_of, option

Unknown = Literal["mean", "nan", "raise"]
"""Predict means, predict NaN, or refuse."""

UNKNOWN: tuple[Unknown, ...] = get_args(Unknown)
BoolArray = npt.NDArray[np.bool_]

_FROM_CALLER = 5
"""Frames between a warning and the call of CFNADE.predict, predict_proba or predict_frame."""


def check_unknown(unknown: Unknown | None) -> None:
    """Refuse any other word."""
    if unknown is not None and unknown not in UNKNOWN:
        raise PredictionError(f"unknown (={unknown!r}) must be one of {', '.join(UNKNOWN)}")


def with_unknown(
    answers: Predictions,
    cells: tuple[Sequence[Any], Sequence[Any]],
    masks: tuple[BoolArray, BoolArray],
    unknown: Unknown | None,
) -> Predictions:
    """Return the answers as `unknown` says; None: means, with a warning.

    masks (n,) are True for unknown users, and for unknown items.
    """
    affected = masks[0] | masks[1]
    if unknown == "mean" or not affected.any():
        return answers
    names = (("user", "users"), ("item", "items"))
    subjects = [
        _described(ids, mask, *words)
        for ids, mask, words in zip(cells, masks, names, strict=True)
        if mask.any()
    ]
    subject, verb = " and ".join(subjects), "is" if sum(_distinct(cells, masks)) == 1 else "are"
    if unknown == "raise":
        raise PredictionError(
            f"{subject} {verb} unknown to the model; {option('unknown', 'mean')} predicts means, "
            f"{option('unknown', 'nan')} returns NaN"
        )
    if unknown is None:
        n = int(affected.sum())
        falls = f"{count_of(n, 'prediction')} {'falls' if n == 1 else 'fall'} back to means"
        warnings.warn(
            f"{subject} {verb} unknown to the model, so {falls}; use "
            f"{option('unknown', 'mean')} to accept "
            f'this, or {option("unknown", "nan")} or "raise"',
            stacklevel=_FROM_CALLER,
        )
        return answers
    predictions, probabilities = answers.predictions.copy(), answers.probabilities.copy()
    predictions[affected] = probabilities[affected] = np.nan
    return answers._replace(predictions=predictions, probabilities=probabilities)


def _distinct(
    cells: tuple[Sequence[Any], Sequence[Any]], masks: tuple[BoolArray, BoolArray]
) -> list[int]:
    return [len(_unknown_ids(ids, mask)) for ids, mask in zip(cells, masks, strict=True)]


def _unknown_ids(ids: Sequence[Any], mask: BoolArray) -> list[Any]:
    """Return the unknown ids, each once."""
    unknown = (ids[place] for place in np.flatnonzero(mask).tolist())
    return list(
        dict.fromkeys(raw.item() if isinstance(raw, np.generic) else raw for raw in unknown)
    )


def _described(ids: Sequence[Any], mask: BoolArray, noun: str, plural: str) -> str:
    unknown = _unknown_ids(ids, mask)
    if len(unknown) == 1:
        return f"{noun} {unknown[0]!r}"
    return f"{len(unknown):,} {plural} (such as {unknown[0]!r})"
