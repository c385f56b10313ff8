"""`cfnade evaluate`: how good a saved model is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfnade.cli.arguments import Json, Model, panel, with_engine, with_options, with_reading
from cfnade.exceptions import DataError, PredictionError

if TYPE_CHECKING:
    from cfnade.evaluation.evaluate import RankingScores, RatingScores

_lists = panel("Lists")
_LISTS: dict[str, Any] = {
    "lists": Annotated[
        bool | None, _lists("Also what recommend lists for the people in the ratings.", "--lists")
    ],
    "k": Annotated[
        str | None, _lists("How many places count: a number or several, such as 10,20,100.", "--k")
    ],
    "threshold": Annotated[
        float | None, _lists("The least rating of what is liked; 4 of 1–5 if not given.")
    ],
    "max_users": Annotated[
        int | None, _lists("Evaluate a sample of at most so many users; all if not given.")
    ],
}


@with_reading
@with_engine
@with_options("of_lists", _LISTS)
def evaluate(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help="Ratings to score; the test part of its own split if not given."),
    ] = None,
    *,
    of_lists: dict[str, Any],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="With --engine: the folder to write what was predicted to."),
    ] = None,
    as_json: Json = False,
    running: dict[str, Any],
    reading: dict[str, Any],
) -> None:
    """Score a model on ratings that it has not seen.

    \b
      cfnade evaluate model
      cfnade evaluate model new-ratings.csv --json
      cfnade evaluate model --lists --k 10,20 --threshold 4 --max-users 1500
      cfnade evaluate model test-parts/ --engine ray --out judged/
    """
    if any(running.values()) or out is not None:
        _evaluate_parts(model, data, out, running, of_lists | reading, as_json)
        return
    from cfnade import checkpoint
    from cfnade.evaluation.evaluate import evaluate

    fitted = checkpoint.load(model)
    about_lists = of_lists.pop("lists") or not fitted.rates
    how = _how_lists(about_lists, of_lists)
    test, what = _test_part(fitted, data, reading)
    scores = evaluate(fitted, test) if fitted.rates else None
    list_scores = None
    if about_lists:
        from cfnade.evaluation.evaluate import evaluate_ranking
        from cfnade.inference.predictor import Predictor

        list_scores = evaluate_ranking(Predictor(fitted), test, **how)
    _show(what, scores, list_scores, as_json)


def _show(
    what: str, scores: RatingScores | None, list_scores: RankingScores | None, as_json: bool
) -> None:
    if as_json:
        lists = {} if list_scores is None else {"lists": list_scores.as_dict()}
        ratings = {} if scores is None else scores.as_dict()
        print(json.dumps({"on": what, **ratings, **lists}, indent=1))
        return
    from cfnade.cli.show import show_list_scores, show_scores

    if scores is not None:
        show_scores(scores, what)
    if list_scores is not None:
        show_list_scores(list_scores)


def _evaluate_parts(
    model: Path,
    data: str | None,
    out: Path | None,
    running: dict[str, Any],
    other: dict[str, Any],
    as_json: bool,
) -> None:
    """Ratings by the part, on an engine."""
    from cfnade.cli.crowd import answer_all, refuse

    refuse(**other)
    if data is None:
        raise PredictionError("give the ratings to score: files with user, item and rating")
    told = answer_all(model, "evaluate", data, out, running)
    if as_json:
        print(json.dumps({"on": data, **told["scores"]}, indent=1))
    else:
        scores = told["scores"]
        print("  ".join(f"{name} {scores[name]:.4f}" for name in ("rmse", "nll", "mae_of_medians")))


def _how_lists(about_lists: bool, options: dict[str, Any]) -> dict[str, Any]:
    """What evaluate_ranking takes."""
    how = {name: value for name, value in options.items() if value is not None}
    if how and not about_lists:
        name, value = next(iter(how.items()))
        raise PredictionError(
            f"{name} (={value}) is about lists; give --lists too, or leave it out"
        )
    if "k" in how:
        parts = how["k"].split(",")
        if not all(re.fullmatch(r" *[1-9][0-9]{0,17} *", part) for part in parts):
            raise PredictionError(
                f"k (={how['k']!r}) must be a whole number of at least 1, or several with commas "
                "between them, such as 10,20,100"
            )
        how["k"] = [int(part) for part in parts]
    return how


def _test_part(fitted: Any, data: str | None, reading: dict[str, Any]) -> tuple[Any, str]:
    from cfnade.cli.job import load_parts
    from cfnade.data.load import load
    from cfnade.data.remote import STANDARD_INPUT, redact_url

    if data is None and reading:
        raise PredictionError(
            f"--{min(reading).replace('_', '-')} says how to read ratings; give those to score "
            "too, or leave it out"
        )
    if data is not None:
        try:
            return load(data, **{"scale": fitted.context.scale, **reading}), redact_url(data)
        except DataError:
            # The scale is the model's: a message that names it would puzzle who did not give one.
            if "scale" in reading or data == STANDARD_INPUT or not load(data, **reading).implicit:
                raise
        raise PredictionError(
            f"{redact_url(data)}: has no ratings to score the model on; name their column with "
            "--rating"
        )
    job = fitted.facts.get("job")
    if job is None:
        raise PredictionError("this model does not say on what data it was trained; give the data")
    parts = load_parts(job)
    if parts.fingerprint != fitted.facts["run"]["split"]["fingerprint"]:
        raise PredictionError(
            f"{job['data']} is not the data that this model was trained on (its split "
            f"{job['split']} has another fingerprint); give the data to score"
        )
    if not len(parts.test):
        raise PredictionError(
            f"{job['data']} was split without a test part; give the ratings to score: "
            "cfnade evaluate MODEL RATINGS"
        )
    return parts.test, f"test part of {job['data']}, {job['split']}"
