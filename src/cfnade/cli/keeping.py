"""`cfnade store …`: what people say, kept in a database."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfnade.cli.arguments import Command, Data, Json, with_reading
from cfnade.cli.dataset import check_name, write_table
from cfnade.data.remote import STORE, redact_url
from cfnade.exceptions import StoreError
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    import polars as pl

    from cfnade.data.dataset import Dataset
    from cfnade.online.prequential import StoreSummary

app = typer.Typer(
    no_args_is_help=True,
    help="Keep what people say in a database: SQLite or PostgreSQL.",
    rich_markup_mode="rich",
)
ADDRESS = (
    "A file of SQLite (ratings.db), a model's folder (store.db in it), or "
    "postgresql://user@host/name; the password may come from PGPASSWORD."
)
Address = Annotated[str, typer.Argument(help=ADDRESS, metavar="STORE", show_default=False)]


@app.command(cls=Command)
def init(store: Address) -> None:
    """Make a store; one that is there already is brought up to date and loses nothing.

    \b
      cfnade store init ratings.db
      cfnade store init postgresql://shop@db.example.org/ratings
    """
    from cfnade.online.engine import open_store

    opened = open_store(store, create=True)
    opened.close()
    print(f"{opened.shown}: ready; next: cfnade store import {opened.shown} RATINGS")


@app.command(cls=Command)
def info(store: Address, *, as_json: Json = False) -> None:
    """Say what is in a store, what came when, and how well models foresaw it.

    \b
      cfnade store info ratings.db
    """
    from cfnade.online.engine import open_store
    from cfnade.online.prequential import summary_of

    with closing(open_store(store)) as opened:
        summary = summary_of(opened)
    if as_json:
        print(json.dumps(asdict(summary), indent=1))
    else:
        _show(summary)


@app.command("import", cls=Command)
@with_reading
def bring(store: Address, data: Data, *, reading: dict[str, Any]) -> None:
    """Bring ratings or clicks of any file into a store, all of it or nothing.

    What is there already stays as it is, and people who were forgotten stay so.

    \b
      cfnade store import ratings.db ml-1m
      cfnade store import ratings.db ratings.csv
    """
    from cfnade.data.load import load
    from cfnade.online.bulk import import_events, scale_of
    from cfnade.online.engine import open_store

    with closing(open_store(store)) as opened:
        ratings = load(data, **reading)
        scale = () if ratings.implicit else ratings.scale.values
        if scale and "scale" not in reading:
            _check_scale(ratings, scale_of(opened) or [], redact_url(data))
        # where the events came from, in a word
        source = ratings.source or Path(redact_url(data)).name or "import"
        came = import_events(opened, table_of(ratings), source=source, scale=scale)
    if ratings.weights is not None:
        print("note: counts are not kept; a store holds who picked which item", file=sys.stderr)
    left = len(ratings) - came
    what = f"; {left:,} stayed out: there already, or of people who were forgotten" if left else ""
    print(f"{opened.shown}: {count_of(came, 'event')} came in{what}")


@app.command(cls=Command)
def export(
    store: Address,
    out: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
) -> None:
    """Write what counts in a store as Parquet, which `cfnade train` reads.

    \b
      cfnade store export ratings.db ratings.parquet
    """
    from cfnade.data.load import load

    check_name(out)
    write_table(load(store if store.startswith(STORE) else f"{STORE}{store}"), out)


@app.command(cls=Command)
def forget(
    store: Address,
    person: Annotated[str, typer.Argument(help="Whom to forget, by id.", metavar="PERSON")],
) -> None:
    """Remove everything that the store holds of a person.

    Models that were trained before still hold them: `cfnade refresh` makes one that does not.

    \b
      cfnade store forget ratings.db anna
    """
    from cfnade.online.engine import open_store
    from cfnade.online.erasure import forget as forget_person

    with closing(open_store(store)) as opened:
        forgot = forget_person(opened, person)
    if forgot.known:
        print(f"{opened.shown}: {count_of(forgot.events, 'event')} of {person!r} deleted")
        print("models trained before hold them until: cfnade refresh MODEL --store " + opened.shown)
    else:
        print(
            f"warning: {opened.shown} holds nothing of {person!r}, so nothing was changed; check "
            "the id, or it was forgotten before",
            file=sys.stderr,
        )
    if not forgot.wiped:
        print(
            "warning: a program reads the store at this moment, so bytes of it may still lie in "
            f"the database's own files; run once more: cfnade store forget {opened.shown} PERSON",
            file=sys.stderr,
        )


# -- parts ---------------------------------------------------------------------------------------


def _check_scale(ratings: Dataset, known: list[float], shown: str) -> None:
    """Stars out of ten among stars out of five are a mistake."""
    values = ratings.scale.values
    if known and not (known[0] <= values[0] and values[-1] <= known[-1]):
        raise StoreError(
            f"{shown}: its scale {ratings.scale} reaches beyond the store's, {known[0]:g} to "
            f"{known[-1]:g}; keep it in another store, or give scale= if stars mean the same"
        )


def table_of(ratings: Dataset) -> pl.DataFrame:
    """As the store takes it."""
    import polars as pl

    columns: dict[str, Any] = {
        "person": pl.Series(ratings.user_ids)[ratings.users].cast(pl.String),
        "item": pl.Series(ratings.item_ids)[ratings.items].cast(pl.String),
    }
    if not ratings.implicit:
        columns["rating"] = ratings.values
    if ratings.times is not None:
        columns["at"] = ratings.times
    for name, texts in (("title", ratings.titles), ("genres", ratings.genres)):
        if texts is not None:
            columns[name] = pl.Series(texts.tolist(), dtype=pl.String)[ratings.items]
    return pl.DataFrame(columns)


_BARS = "▁▂▃▄▅▆▇█"


def _show(summary: StoreSummary) -> None:
    from datetime import UTC, datetime

    def day(at: int) -> str:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")

    said = f"{count_of(summary.ratings, 'rating')}, {count_of(summary.picks, 'pick')}, "
    facts = {
        "store": f"{summary.store}, version {summary.version}",
        "events": f"{summary.events:,}: {said}{summary.withdrawals:,} withdrawals",
        "of": f"{count_of(summary.items, 'item')} by "
        f"{count_of(summary.people, 'person', 'people')}; {summary.forgotten:,} forgotten",
        "from": ", ".join(f"{name} {n:,}" for name, n in summary.sources.items()) or "nowhere yet",
    }
    if summary.first is not None and summary.last is not None:
        facts["time"] = f"{day(summary.first)} to {day(summary.last)}"
    if summary.online is not None:
        facts["foreseen"] = (
            f"RMSE {summary.online.rmse:.4f} of the last {count_of(summary.online.n, 'rating')}; "
            f"{100 * summary.online.unseen:.0f} % of people new to the model"
        )
    for name, fact in facts.items():
        print(f"{name:<11}{fact}")
    _draw(summary)
    for one in summary.models:
        print(f"{'model':<11}{one['model'][:12]}: RMSE {one['rmse']:.4f} of {one['ratings']:,}")


def _draw(summary: StoreSummary) -> None:
    """Events and the online error over time, a bar for each stretch."""
    if len(summary.over_time) < 2:
        return
    print(f"\n{'events':<11}{_bars([one['events'] for one in summary.over_time], least=0.0)}")
    errors = [one["rmse"] for one in summary.over_time]
    told = [error for error in errors if error is not None]
    if told:
        low, high = min(told), max(told)
        print(f"{'error':<11}{_bars(errors, least=low)}  {low:.3f} to {high:.3f}")
    print()


def _bars(values: list[Any], least: float) -> str:
    most = max(value for value in values if value is not None)
    span = max(most - least, 1e-12)
    steps = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[round(steps * (value - least) / span)] for value in values
    )
