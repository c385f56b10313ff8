"""`cfnade recommend`: the best items for users."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from cfnade.cli import options
from cfnade.cli.options import Json, Model, given_options
from cfnade.cli.terminal import printable
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    from cfnade.inference.predictor import Predictor


def recommend(
    ctx: typer.Context,
    model: Model,
    ratings: options.TypedHistory = None,
    *,
    user: options.Users = None,
    history: options.HistoryFile = None,
    n: options.ItemCount = 10,
    as_json: Json = False,
    rank_by: options.RankBy = None,
    balance: options.Balance = None,
    threshold: options.Threshold = None,
    personalization: options.Personalization = None,
    diversity: options.Diversity = None,
    popularity_penalty: options.PopularityPenalty = None,
    min_ratings: options.MinRatings = None,
    genres: options.Genres = None,
    candidate_items: options.CandidateItems = None,
    exclude_items: options.ExcludeItems = None,
    exclude_seen: options.ExcludeSeen = True,
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

    predictor = load_predictor(model)
    ranking = ranking_arguments(ctx, predictor)
    users_given = [] if user is None else user
    users, new_user = parse_user(predictor, users_given, history, ratings or [])
    frame = predictor.recommend(users, history=new_user, n=n, **ranking)
    _report_unknown(users or [], predictor)
    least = ranking.get("min_ratings")
    _report_hidden(frame, predictor.default_min_ratings if least is None else least)
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.render import print_recommendations

        print_recommendations(frame, predictor.scale)


def ranking_arguments(ctx: typer.Context, predictor: Predictor) -> dict[str, Any]:
    """Return the ranking options on the command line as arguments of the predictor."""
    from cfnade.cli.user_input import parse_item

    arguments = given_options(ctx, options.RANKING_OPTIONS)
    for name in ("candidate_items", "exclude_items"):
        if name in arguments:
            arguments[name] = [parse_item(text, predictor) for text in arguments[name]]
    return arguments


def _report_unknown(users: list[Any], predictor: Predictor) -> None:
    unknown = [printable(str(user)) for user in users if predictor.users.index(user) < 0]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        print(f"unknown users get the items that suit all users: {names}", file=sys.stderr)


def _report_hidden(frame: Any, least: int) -> None:
    if not len(frame):
        print("no item is left to recommend; remove a filter", file=sys.stderr)
        return
    hidden = int(frame["n_hidden_items"].max() or 0)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        items = f"{count_of(hidden, 'item')} with fewer than {least} ratings {verb} hidden"
        print(f"{items}; --min-ratings 0 shows them", file=sys.stderr)
