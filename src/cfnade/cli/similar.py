"""`cfnade similar`: items similar to an item."""

from __future__ import annotations

import json

from cfnade.cli import options
from cfnade.cli.options import Json, Model


def similar(
    model: Model,
    item: options.Item,
    *,
    n: options.ItemCount = 10,
    as_json: Json = False,
) -> None:
    """List the items that are most similar to an item.

    \b
      cfnade similar model "Blade Runner (1982)"
      cfnade similar model 541 -n 20 --json
    """
    from cfnade.cli.user_input import load_predictor

    predictor = load_predictor(model)
    frame = predictor.similar_items(predictor.catalog.parse(item), n)
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.render import print_similar

        print_similar(frame, "ratings" if predictor.fitted.predicts_ratings else "users")
