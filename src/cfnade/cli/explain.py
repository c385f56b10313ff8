"""`cfnade explain`: the ratings behind a prediction."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from cfnade.cli import options
from cfnade.cli.options import Json, Model, option


def explain(
    model: Model,
    item: options.Item,
    ratings: options.TypedHistory = None,
    *,
    user: Annotated[str | None, option("ID", "A user of the training data.")] = None,
    history: options.HistoryFile = None,
    n: Annotated[int, option("-n N", "Number of ratings.", min=1)] = 10,
    target: Annotated[
        Literal["rating", "interaction"] | None, option("QUANTITY", "rating or interaction.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show which ratings of a user change a prediction.

    \b
      cfnade explain model "Blade Runner (1982)" --user 42
      cfnade explain model "Alien (1979)" "Blade Runner (1982)=5" "Heat (1995)=2"
    """
    from cfnade.cli.user_input import load_predictor, parse_user

    predictor = load_predictor(model)
    known_users, new_user = parse_user(
        predictor, [] if user is None else [user], history, ratings or []
    )
    known_user = known_users[0] if known_users else None
    index = predictor.catalog.parse(item)
    if new_user is None:
        predictor.require_known(known_user)
    resolved = predictor.resolve_user(known_user, history=new_user)
    frame = predictor.explain(resolved, index, target)
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.render import print_explanation

        print_explanation(frame.head(n))
