"""`cfnade predict | recommend | explain`: a saved model at work."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge

from cfnade.cli.arguments import Json, Model, panel, with_engine, with_options
from cfnade.cli.at_work import lasting
from cfnade.cli.terminal import printable
from cfnade.exceptions import PredictionError
from cfnade.utils.text import count_of
from cfnade.utils.validation import check_scalar

if TYPE_CHECKING:
    import polars as pl

    from cfnade.cli.sheets import Sheet
    from cfnade.inference.predictor import Predictor


class UnknownIds(StrEnum):
    """What `predict --unknown` takes."""

    MEAN = "mean"
    NAN = "nan"
    RAISE = "raise"


UnknownOption = Annotated[
    UnknownIds,
    typer.Option("--unknown", help="For unknown users and items: means, NaN, or an error."),
]
When = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="WHEN",
        help="For a model that needs times: when all are given, in seconds since 1970 or as a "
        "date such as 2005-09-06; a column time of the pairs if not given.",
    ),
]
User = Annotated[
    list[str] | None, typer.Option("--user", help="A known user's id; may be repeated.")
]
OneUser = Annotated[str | None, typer.Option("--user", help="A known user's id.")]
HistoryFile = Annotated[
    Path | None,
    typer.Option("--history", help="A CSV of a new person's ratings: item or title, rating."),
]
Typed = Annotated[
    list[str] | None,
    typer.Argument(
        help='A new person\'s ratings: "Alien (1979)=5"; titles alone where there are no ratings.',
        metavar="TITLE=STARS",
    ),
]
_ranking, _filters = panel("What comes first"), panel("Which items")
_WISHES: dict[str, Any] = {
    "rank": Annotated[
        str | None,
        _ranking(
            "By what: picked (picked and liked, if the model knows it), expected, at_least or "
            "quantile."
        ),
    ],
    "taste": Annotated[
        float | None,
        _ranking("With picked: 0 is what people like you pick, 1 what you would rate highest."),
    ],
    "threshold": Annotated[
        float | None, _ranking("With at_least or picked: the chance of this rating or more.")
    ],
    "quantile": Annotated[
        float | None, _ranking("With quantile: 0.2 is careful, 0.8 adventurous.")
    ],
    "min_ratings": Annotated[
        int | None, _ranking("Hide items with fewer known ratings; 0 shows all.")
    ],
    "genre": Annotated[list[str] | None, _filters("Only this genre; may be repeated.")],
    "only": Annotated[list[str] | None, _filters("Only this item; may be repeated.")],
    "without": Annotated[list[str] | None, _filters("Not this item; may be repeated.")],
    "diversity": Annotated[
        float | None, _filters("How unlike each other items should be, from 0 to 1.", "--diversity")
    ],
}


@with_engine
def predict(
    model: Model,
    pairs: Annotated[Path, typer.Argument(help="CSV or Parquet with columns user and item.")],
    *,
    at: When = None,
    new_items: Annotated[
        Path | None,
        typer.Option(
            "--new-items",
            help="A CSV of what known users said of new items, which pairs may then name: user, "
            "item, rating.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A .parquet or .csv file, standard output else; with --engine or a folder of "
            "pairs, a folder.",
        ),
    ] = None,
    unknown: UnknownOption = UnknownIds.MEAN,
    running: dict[str, Any],
) -> None:
    """Predict ratings of given users and items.

    \b
      cfnade predict model pairs.csv --out predictions.parquet
      cfnade predict model pairs/ --out predictions/ --engine ray
      cfnade predict model pairs.csv --at 2005-09-06
      cfnade predict model pairs.csv --new-items first-ratings.csv
    """
    from cfnade.cli.crowd import answer_all, is_large, refuse
    from cfnade.cli.sheets import Sheet, check_out, new_items_of, write_frame

    if is_large(pairs, running):
        other = None if unknown == UnknownIds.MEAN else unknown.value
        refuse(at=at, new_items=new_items, unknown=other)
        answer_all(model, "predict", str(pairs), out, running)
        return
    check_out(out)
    predictor, sheet = _predictor(model), Sheet(pairs)
    predictions = predictor.predict_frame(
        [predictor.users.typed(text) for text in sheet.column("user")],
        [predictor.items.typed(text) for text in sheet.column("item")],
        new_items=new_items_of(predictor, new_items),
        times=_times(predictor, sheet, at),
        unknown=unknown.value,
    )
    if unknown == UnknownIds.MEAN:
        _count_unknown(predictions)
    if out is None:
        sys.stdout.write(predictions.write_csv())
    else:
        write_frame(predictions, out)
        print(f"{out}: {count_of(len(predictions), 'prediction')}", file=sys.stderr)


def _times(predictor: Predictor, sheet: Sheet, at: str | None) -> Any:
    """When the ratings are given, for a model that needs to know; others leave the column alone."""
    from cfnade.cli.sheets import seconds_of

    if not predictor.fitted.needs_times:
        if at is not None:
            raise PredictionError(
                f"--at {at}: this model does not know time, it says the same of any day; leave "
                "--at out, or use a model that was trained with --know-time"
            )
        return None
    if at is not None:
        return seconds_of([at], lambda _: "--at")[0]
    texts = sheet.column_if_any("time")
    if texts is None:
        raise PredictionError(
            f"{sheet.file}: this model needs to know when ratings are given; give a column time, "
            "or one moment for all of them with --at"
        )
    return seconds_of(texts, sheet.where)


@with_engine
@with_options("wishes", _WISHES)
def recommend(
    model: Model,
    rated: Typed = None,
    *,
    user: User = None,
    history: HistoryFile = None,
    n: Annotated[int, typer.Option("-n", help="How many items.")] = 10,
    seen: Annotated[bool, typer.Option("--seen", help="Also items that were rated.")] = False,
    wishes: dict[str, Any],
    people: Annotated[
        str | None,
        typer.Option(
            "--people",
            help="Files or a folder of many people: a column user; of new ones also items and "
            "ratings, which hold lists. everybody: all users of the model.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="With --people: the folder to write.")
    ] = None,
    as_json: Json = False,
    running: dict[str, Any],
) -> None:
    """Recommend items to known users, or to a new person.

    \b
      cfnade recommend model --user 42
      cfnade recommend model "Alien (1979)=5" "Notting Hill (1999)=2"
      cfnade recommend model --history my-ratings.csv -n 20
      cfnade recommend model --user 42 --rank quantile --quantile 0.8
      cfnade recommend model --user 42 --taste 0.8 --genre Comedy --diversity 0.3
      cfnade recommend model --people everybody --out lists/ --engine ray
    """
    from cfnade.cli.crowd import answer_all, refuse, refuse_alone

    predictor = _predictor(model)
    how = {"n": n, "exclude_seen": not seen, **_wishes(predictor, **wishes)}
    if people is not None:
        refuse(user=user, history=history, rated=rated, as_json=as_json)
        del predictor  # the engine loads its own
        answer_all(model, "recommend", people, out, running, **how)
        return
    refuse_alone(out, running)
    users, person = _who(predictor, [] if user is None else user, history, rated)
    frame = predictor.recommend(users, history=person, **how)
    _name_unknown(users or [], predictor)
    least = how["min_ratings"]
    _count_hidden(frame, predictor.default_min_ratings if least is None else least)
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.show import show_recommendations

        show_recommendations(frame, predictor.scale)


def _wishes(
    predictor: Predictor,
    *,
    rank: str | None,
    genre: list[str] | None,
    only: list[str] | None,
    diversity: float | None,
    without: list[str] | None,
    **others: Any,
) -> dict[str, Any]:
    """The options of a list as arguments of the predictor."""
    from cfnade.cli.sheets import item_id

    return others | {
        "rank": rank and rank.replace("-", "_"),
        "genres": genre,
        "items": only and [item_id(text, predictor) for text in only],
        "without": without and [item_id(text, predictor) for text in without],
        "diversity": 0.0 if diversity is None else diversity,
    }


def similar(
    model: Model,
    item: Annotated[str, typer.Argument(help="The item: its id or title.")],
    *,
    n: Annotated[int, typer.Option("-n", help="How many items.")] = 10,
    as_json: Json = False,
) -> None:
    """List the items most like one, by who picks them.

    \b
      cfnade similar model "Blade Runner (1982)"
    """
    from cfnade.cli.sheets import item_id

    predictor = _predictor(model)
    frame = predictor.similar_items(item_id(item, predictor), n=n)
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.show import show_similar

        show_similar(frame)


def explain(
    model: Model,
    item: Annotated[str, typer.Argument(help="The item: its id or title.")],
    rated: Typed = None,
    *,
    user: OneUser = None,
    history: HistoryFile = None,
    n: Annotated[int, typer.Option("-n", help="How many ratings to show.")] = 10,
    of: Annotated[
        str | None,
        typer.Option("--of", help="rating, or pick: why it would be picked.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which ratings moved a prediction, and how much.

    \b
      cfnade explain model "Blade Runner (1982)" --user 42
      cfnade explain model "Blade Runner (1982)" "Alien (1979)=5" "Notting Hill (1999)=2"
    """
    from cfnade.cli.sheets import item_id

    check_scalar("n", n, int, Ge(1), error=PredictionError)
    predictor = _predictor(model)
    users, person = _who(predictor, [] if user is None else [user], history, rated)
    frame = predictor.explain(
        item=item_id(item, predictor),
        user=users[0] if users else None,
        history=person,
        of=of,  # type: ignore[arg-type]  # checked there
    )
    if as_json:
        print(json.dumps(frame.to_dicts(), indent=1))
    else:
        from cfnade.cli.show import show_explanation

        show_explanation(frame.head(n))


# -- shared --------------------------------------------------------------------------------------


def _predictor(model: Path) -> Predictor:
    with lasting():
        from cfnade.inference.predictor import Predictor

        return Predictor.load(model)


def _who(
    predictor: Predictor, users: list[str], file: Path | None, rated: list[str] | None
) -> tuple[list[Any] | None, dict[Any, float] | None]:
    """Known users or a new person's ratings: one of them, the other is None."""
    from cfnade.cli.sheets import history_of

    history = history_of(predictor, file, rated or [])
    if (history is None) == (not users):
        typed = "what was picked" if predictor.fitted.context.implicit else "ratings as TITLE=STARS"
        raise PredictionError(f"say who: --user ID, or --history FILE, or {typed}")
    return [predictor.users.typed(text) for text in users] or None, history


def _name_unknown(users: list[Any], predictor: Predictor) -> None:
    strangers = [printable(str(user)) for user in users if predictor.users.index(user) < 0]
    if strangers:
        _say_unknown("user " + ", ".join(strangers[:5]) + (", …" if len(strangers) > 5 else ""))


def _count_unknown(frame: pl.DataFrame) -> None:
    users = frame.filter(frame["known_of_user"] == 0)["user"].n_unique()
    items = frame.filter(frame["known_of_item"] == 0)["item"].n_unique()
    if users or items:
        _say_unknown(f"{count_of(users, 'user')} and {count_of(items, 'item')}")


def _say_unknown(who: str) -> None:
    stand_in = "the model's opinion of a stranger, or the mean, stands in"
    print(f"nothing is known of {who}: {stand_in}", file=sys.stderr)


def _count_hidden(frame: Any, least: int) -> None:
    if not len(frame):
        print("no item is left to recommend; loosen the filters", file=sys.stderr)
        return
    hidden = int(frame["hidden"].max() or 0)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        what = f"{count_of(hidden, 'item')} with fewer than {least} ratings {verb} hidden"
        print(f"{what}; --min-ratings 0 shows them", file=sys.stderr)
