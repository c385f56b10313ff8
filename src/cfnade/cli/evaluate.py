"""`cfnade evaluate`: the accuracy of a saved model."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cfnade.cli.options import Json, Model, OptionalData, given_options, option
from cfnade.exceptions import DataError, PredictionError

if TYPE_CHECKING:
    from cfnade.data.dataset import Dataset
    from cfnade.fitted_model import FittedModel

_ranking = partial(option, panel="Ranking metrics")


def evaluate(
    model: Model,
    data: OptionalData = None,
    *,
    ranking: Annotated[bool, _ranking("--ranking", "Evaluate recommendations too.")] = False,
    k: Annotated[str | None, _ranking("K,...", "Lengths of the lists.")] = None,
    threshold: Annotated[
        float | None, _ranking("RATING", "Lowest rating of a relevant item.")
    ] = None,
    max_users: Annotated[int | None, _ranking("N", "Evaluate a sample of N users.", min=1)] = None,
    exclude_seen: Annotated[
        bool | None,
        _ranking("--exclude-seen/--include-seen", "Rank only new items, or repeats too."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model on ratings that it was not trained on.

    Without DATA, on the test part of its own split. DATA is read with the options of `cfnade train`
    that are stored in the model. For many ratings, see `cfnade batch evaluate`.

    \b
      cfnade evaluate model
      cfnade evaluate model new-ratings.csv --json
      cfnade evaluate model --ranking --k 10,20 --threshold 4 --max-users 1500
    """
    from cfnade import checkpoint
    from cfnade.evaluation import evaluate as evaluation

    fitted = checkpoint.load(model)
    arguments: dict[str, Any] = given_options(
        {"k": k, "threshold": threshold, "max_users": max_users, "exclude_seen": exclude_seen}
    )
    ranking = ranking or not fitted.predicts_ratings
    if arguments and not ranking:
        name = next(iter(arguments)).replace("_", "-")
        raise PredictionError(f"--{name} is for ranking metrics; give --ranking too, or omit it")
    if "k" in arguments:
        arguments["k"] = _list_lengths(arguments["k"])
    test, description = _test_part(fitted) if data is None else _load_test_data(fitted, data)
    scores = evaluation.evaluate(fitted, test) if fitted.predicts_ratings else None
    ranking_scores = None
    if ranking:
        from cfnade.inference.predictor import Predictor

        ranking_scores = evaluation.evaluate_ranking(Predictor(fitted), test, **arguments)
    if as_json:
        values = {} if scores is None else scores.as_dict()
        if ranking_scores is not None:
            values["ranking"] = ranking_scores.as_dict()
        print(json.dumps({"on": description, **values}, indent=1))
        return
    from cfnade.cli.render import print_ranking_scores, print_scores

    if scores is not None:
        print_scores(scores, description)
    if ranking_scores is not None:
        print_ranking_scores(ranking_scores)


def _list_lengths(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 10**18 for part in parts):
        raise PredictionError(
            f"--k {text}: must be a whole number of at least 1, or several such as 10,20,100"
        )
    return [int(part) for part in parts]


def _load_test_data(fitted: FittedModel, data: str) -> tuple[Dataset, str]:
    """Return ratings on the model's scale, and a description.

    They are read as the training data was; if that fails, with what is recognized.
    """
    from cfnade.data.load import load
    from cfnade.data.remote import STANDARD_INPUT, redact_url

    stored = fitted.metadata.get("run_config", {}).get("load", {})
    scale: dict[str, Any] = {"scale": fitted.context.scale} if fitted.predicts_ratings else {}
    omitted = ("item_features", "scale", "bins") if fitted.predicts_ratings else ("item_features",)
    arguments = {name: value for name, value in stored.items() if name not in omitted}
    attempts = [arguments, {}] if arguments and data != STANDARD_INPUT else [arguments]
    errors: list[DataError] = []
    for attempt in attempts:
        try:
            return load(data, **scale, **attempt), redact_url(data)
        except DataError as error:
            errors.append(error)
    # The scale is the model's: a message about it would not help for data without ratings.
    if data != STANDARD_INPUT and fitted.predicts_ratings and load(data, **attempts[-1]).implicit:
        raise PredictionError(
            f"{redact_url(data)}: has no ratings to evaluate the model on; name their column with: "
            f"cfnade data convert {redact_url(data)} ratings.parquet --rating COLUMN"
        )
    raise errors[0]


def _test_part(fitted: FittedModel) -> tuple[Dataset, str]:
    """Return the test part of the data that the model was trained on, and a description."""
    from cfnade.cli.run_config import from_json, load_parts

    stored = fitted.metadata.get("run_config")
    if stored is None:
        raise PredictionError("the model does not store what it was trained on; give DATA")
    config = from_json(stored, "run_config")
    parts = load_parts(config)
    if parts.fingerprint != fitted.metadata["run"]["split"]["fingerprint"]:
        raise PredictionError(
            f"{config.data} is not the data that this model was trained on (its split "
            f"{config.split} has another fingerprint); give DATA"
        )
    if not len(parts.test):
        raise PredictionError(
            f"{config.data} was split without a test part; give the ratings to evaluate on: "
            "cfnade evaluate MODEL DATA"
        )
    return parts.test, f"test part of {config.data}, {config.split}"
