"""`cfnade evaluate | predict | recommend | explain`: a saved model at work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfnade.cli.reading import with_reading
from cfnade.errors import PredictionError

if TYPE_CHECKING:
    from cfnade.predictor import Predictor

Model = Annotated[Path, typer.Argument(help="The folder of a saved model.", metavar="MODEL")]
Json = Annotated[bool, typer.Option("--json", help="Print figures for a machine.")]
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
        help='Ratings of a new person, such as "Alien (1979)=5".', metavar="TITLE=STARS"
    ),
]


@with_reading
def evaluate(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help="Ratings to score; the test part of its own split if not given."),
    ] = None,
    *,
    as_json: Json = False,
    reading: dict[str, Any],
) -> None:
    """Score a model on ratings that it has not seen.

    \b
      cfnade evaluate model
      cfnade evaluate model new-ratings.csv --json
    """
    from cfnade import checkpoint
    from cfnade.evaluation import evaluate

    bundle = checkpoint.load(model)
    test, what = _test_part(bundle, data, reading)
    scores = evaluate(bundle, test)
    if as_json:
        print(json.dumps({"on": what, **scores.as_dict()}, indent=1))
    else:
        from cfnade.cli.scores import show_scores

        show_scores(scores, what)


def _test_part(bundle: Any, data: str | None, reading: dict[str, Any]) -> tuple[Any, str]:
    from cfnade.data.load import load
    from cfnade.data.parts import load_split

    if data is None and reading:
        raise PredictionError(
            f"--{min(reading).replace('_', '-')} says how to read ratings; give those to score "
            "too, or leave it out"
        )
    if data is not None:
        return load(data, **{"scale": bundle.context.scale, **reading}), data
    job = bundle.facts.get("job")
    if job is None:
        raise PredictionError("this model does not say on what data it was trained; give the data")
    parts = load_split(job["data"], job["split"], **job["reading"])
    known = bundle.facts["run"]["split"]["fingerprint"]
    if parts.fingerprint != known:
        raise PredictionError(
            f"{job['data']} is not the data that this model was trained on (its split "
            f"{job['split']} has another fingerprint); give the data to score"
        )
    return parts.test, f"test part of {job['data']}, {job['split']}"


def predict(
    model: Model,
    pairs: Annotated[Path, typer.Argument(help="CSV or Parquet with columns user and item.")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="A .parquet or .csv file; standard output else.")
    ] = None,
) -> None:
    """Predict ratings of given users and items.

    \b
      cfnade predict model pairs.csv --out predictions.parquet
    """
    from cfnade.cli.people import column_of, table_of

    check_out(out)
    predictor = _predictor(model)
    frame = table_of(pairs)
    users = column_of(frame, ("user", "userid", "uid"), pairs)
    items = column_of(frame, ("item", "itemid", "movieid", "movie", "iid"), pairs)
    said = predictor.predict_frame(
        [predictor.users.typed(text) for text in users],
        [predictor.items.typed(text) for text in items],
    )
    _count_unknown(said)
    if out is None:
        sys.stdout.write(said.write_csv())
    else:
        write_frame(said, out)
        print(f"{out}: {len(said):,} predictions", file=sys.stderr)


def recommend(
    model: Model,
    rated: Typed = None,
    *,
    user: User = None,
    history: HistoryFile = None,
    n: Annotated[int, typer.Option("-n", help="How many items.")] = 10,
    seen: Annotated[bool, typer.Option("--seen", help="Also items that were rated.")] = False,
    rank: Annotated[
        str, typer.Option("--rank", help="By what: expected rating, at_least, or quantile.")
    ] = "expected",
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="With at_least: the chance of this rating or more."),
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option("--quantile", help="With quantile: 0.2 is careful, 0.8 adventurous."),
    ] = None,
    min_ratings: Annotated[
        int | None,
        typer.Option("--min-ratings", help="Hide items with fewer known ratings; 0 shows all."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recommend items to known users, or to a new person.

    \b
      cfnade recommend model --user 42
      cfnade recommend model "Alien (1979)=5" "Notting Hill (1999)=2"
      cfnade recommend model --history my-ratings.csv -n 20
      cfnade recommend model --user 42 --rank quantile --quantile 0.8
    """
    from cfnade.cli.people import history_of

    predictor = _predictor(model)
    person = history_of(predictor, history, rated or [])
    if (person is None) == (not user):
        raise PredictionError("say who: --user ID, or --history FILE, or ratings as TITLE=STARS")
    known = [predictor.users.typed(text) for text in user] if user else None
    found = predictor.recommend(
        known,
        history=person,
        n=n,
        exclude_seen=not seen,
        rank=rank.replace("-", "_"),  # type: ignore[arg-type]  # checked there
        threshold=threshold,
        quantile=quantile,
        min_ratings=min_ratings,
    )
    if known is not None:
        _name_unknown(known, predictor)
    _count_hidden(found, predictor.default_min_ratings if min_ratings is None else min_ratings)
    if as_json:
        print(json.dumps(found.to_dicts(), indent=1))
    else:
        from cfnade.cli.scores import show_recommendations

        show_recommendations(found, predictor.scale)


def explain(
    model: Model,
    item: Annotated[str, typer.Argument(help="The item: its id or title.")],
    rated: Typed = None,
    *,
    user: OneUser = None,
    history: HistoryFile = None,
    n: Annotated[int, typer.Option("-n", help="How many ratings to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Say which ratings moved a prediction, and how much.

    \b
      cfnade explain model "Blade Runner (1982)" --user 42
      cfnade explain model "Blade Runner (1982)" "Alien (1979)=5" "Notting Hill (1999)=2"
    """
    from cfnade.cli.people import history_of, item_id

    if n < 1:
        raise PredictionError(f"n (={n}) must be a whole number of at least 1")
    predictor = _predictor(model)
    person = history_of(predictor, history, rated or [])
    if (person is None) == (user is None):
        raise PredictionError("say who: --user ID, or --history FILE, or ratings as TITLE=STARS")
    known = None if user is None else predictor.users.typed(user)
    wanted = item_id(item, predictor)
    found = predictor.explain(item=wanted, user=known, history=person)
    if as_json:
        print(json.dumps(found.to_dicts(), indent=1))
    else:
        from cfnade.cli.scores import show_explanation

        show_explanation(found.head(n))


def check_out(out: Path | None) -> None:
    """Refuse a file that could not be written, before the work is done."""
    if out is None:
        return
    if out.suffix not in (".parquet", ".csv"):
        raise PredictionError(f"{out}: the name of the file to write must end in .parquet or .csv")
    if out.is_dir():
        raise PredictionError(f"{out}: is a folder; name a file to write")
    if not out.parent.is_dir():
        raise PredictionError(f"{out}: there is no folder {out.parent}; make it first")


def write_frame(frame: Any, out: Path) -> None:
    """Write a frame as Parquet or CSV, by its name, atomically."""
    from cfnade.files import replacing

    with replacing(out) as file:
        if out.suffix == ".parquet":
            frame.write_parquet(file)
        else:
            frame.write_csv(file)


def _predictor(model: Path) -> Predictor:
    from cfnade.predictor import Predictor

    return Predictor.load(model)


def _name_unknown(users: list[Any], predictor: Predictor) -> None:
    known = [len(predictor.users.table) > 0 and predictor.users.index(user) >= 0 for user in users]
    strangers = [str(user) for user, is_known in zip(users, known, strict=True) if not is_known]
    if strangers:
        names = ", ".join(strangers[:5]) + (", …" if len(strangers) > 5 else "")
        print(
            f"nothing is known of user {names}: the model's opinion of a stranger, or the mean, "
            "stands in",
            file=sys.stderr,
        )


def _count_hidden(found: Any, least: int) -> None:
    hidden = int(found["hidden"].max() or 0)
    if hidden:
        print(
            f"{hidden:,} items with fewer than {least} ratings are hidden; --min-ratings 0 shows "
            "them",
            file=sys.stderr,
        )


def _count_unknown(said: Any) -> None:
    users = said.filter(said["known_of_user"] == 0)["user"].n_unique()
    items = said.filter(said["known_of_item"] == 0)["item"].n_unique()
    if users or items:
        print(
            f"nothing is known of {users:,} users and {items:,} items: the model's opinion of a "
            "stranger, or the mean, stands in",
            file=sys.stderr,
        )
