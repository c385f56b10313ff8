"""`cfnade recommend`: the best items for users."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cfnade.cli import options
from cfnade.cli.command import with_option_groups
from cfnade.cli.options import Json, Model, given_options, option
from cfnade.cli.process import print_status, printable
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    from cfnade.inference.predictor import Predictor


@with_option_groups
def recommend(
    model: Model,
    ratings: options.TypedHistory = None,
    *,
    user: Annotated[
        list[str] | None, option("ID", "A user of the training data (repeatable).")
    ] = None,
    history: options.HistoryFile = None,
    n: options.ItemCount = 10,
    as_json: Json = False,
    **ranking_options: Unpack[options.RankingArguments],
) -> None:
    """Recommend items to known users or to a new user.

    For many users, see `cfnade batch recommend`.

    \b
      cfnade recommend model --user 42
      cfnade recommend model "Alien (1979)=5" "Notting Hill (1999)=2"
      cfnade recommend model --history my-ratings.csv -n 20
      cfnade recommend model --user 42 --balance 0.8 --genre Comedy --diversity 0.3
    """
    from cfnade.cli.user_input import load_predictor, parse_user
    from cfnade.inference.ranking_options import RankingOptions

    predictor = load_predictor(model)
    ranking = ranking_arguments(ranking_options, predictor)
    user_ids = [] if user is None else user
    users, new_user = parse_user(predictor, user_ids, history, ratings or [])
    ids, resolved = predictor.resolve_users(users, history=new_user)
    frame = predictor.recommend(resolved, RankingOptions(n=n, **ranking)).to_frame(ids)
    _report_unknown(users or [], predictor)
    least = ranking.get("min_ratings")
    _report_hidden(frame, predictor.default_min_ratings if least is None else least)
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.render import print_recommendations

        print_recommendations(frame, predictor.scale)


def ranking_arguments(
    ranking_options: options.RankingArguments, predictor: Predictor
) -> dict[str, Any]:
    """Return the ranking options on the command line as arguments of the predictor."""
    from cfnade.cli.user_input import parse_item

    arguments = given_options(ranking_options)
    for name in ("candidate_items", "exclude_items"):
        if name in arguments:
            arguments[name] = [parse_item(text, predictor) for text in arguments[name]]
    return arguments


def _report_unknown(users: list[Any], predictor: Predictor) -> None:
    unknown = [printable(str(user)) for user in users if predictor.users.index(user) < 0]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        print_status(f"unknown users get the items that suit all users: {names}")


def _report_hidden(frame: Any, least: int) -> None:
    if not len(frame):
        print_status("no item is left to recommend; remove a filter")
        return
    hidden = int(frame["n_hidden_items"].max() or 0)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        items = f"{count_of(hidden, 'item')} with fewer than {least} ratings {verb} hidden"
        print_status(f"{items}; --min-ratings 0 shows them")
