"""`cfnade store …`: ratings and interactions of users in a database."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cfnade.cli import options
from cfnade.cli.command import Command, command_group
from cfnade.cli.data import require_parquet, write_table
from cfnade.cli.options import Data, Json, argument, option
from cfnade.cli.process import print_status
from cfnade.exceptions import StoreError
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    import polars as pl

    from cfnade.data.dataset import Dataset
    from cfnade.online.prequential import StoreSummary

app = command_group(
    """Store the ratings of users in SQLite or PostgreSQL.

    \b
      cfnade store import ratings.db ratings.csv
      cfnade serve model --store ratings.db
      cfnade store erase ratings.db anna
    """
)
STORES = "SQLite file or postgresql://user@host/name."
StoreUrl = Annotated[str, argument("STORE", STORES)]


@app.command(cls=Command)
def create(store: StoreUrl) -> None:
    """Create a store; an existing one is kept.

    The password of PostgreSQL may come from PGPASSWORD. The store of a model folder is the file
    store.db in it.

    \b
      cfnade store create ratings.db
      cfnade store create model/
      cfnade store create postgresql://shop@db.example.org/ratings
    """
    from cfnade.online.event_store import EventStore

    opened = EventStore.open(store, create=True)
    opened.close()
    print(f"{opened.name}: ready; next: cfnade store import {opened.name} DATA")


@app.command(cls=Command)
def info(store: StoreUrl, *, as_json: Json = False) -> None:
    """Describe a store: events, users, items, online error.

    \b
      cfnade store info ratings.db
    """
    from cfnade.online.event_store import EventStore
    from cfnade.online.prequential import summarize

    with closing(EventStore.open(store)) as opened:
        summary = summarize(opened)
    if as_json:
        print(json.dumps(asdict(summary), indent=1))
    else:
        _print_summary(summary)


@app.command("import", cls=Command)
def import_(
    store: StoreUrl,
    data: Data,
    *,
    scale: Annotated[str | None, option("SCALE", 'Rating scale: "1-5" or "0.5-5/0.5".')] = None,
) -> None:
    """Import ratings or interactions, all of them or none.

    A missing SQLite store is created. Events that are in the store are kept, and erased users stay
    erased. `cfnade data convert` reads files whose columns are not recognized.

    \b
      cfnade store import ratings.db ml-1m
      cfnade store import ratings.db ratings.csv
    """
    from cfnade.data.load import load
    from cfnade.data.remote import redact_url
    from cfnade.online.bulk import import_events, scale_of
    from cfnade.online.engine import is_missing_file, parse_store_url
    from cfnade.online.event_store import EventStore

    parse_store_url(store, create=True)  # a wrong address fails before the data is read
    ratings = load(data, scale=scale)
    with closing(EventStore.open(store, create=is_missing_file(store))) as opened:
        values = () if ratings.implicit else ratings.scale.values
        if values and scale is None:
            _check_scale(ratings, scale_of(opened) or [], redact_url(data))
        source = ratings.source or Path(redact_url(data)).name or "import"
        added = import_events(opened, events_frame(ratings), source=source, scale=values)
    if ratings.weights is not None:
        print_status("note: counts are not stored, only which user chose which item")
    skipped = len(ratings) - added
    why = f"; {skipped:,} skipped: already stored, or of erased users" if skipped else ""
    print(f"{opened.name}: {count_of(added, 'event')} imported{why}")


@app.command(cls=Command)
def export(
    store: StoreUrl,
    out: options.ParquetFile,
) -> None:
    """Export the current ratings as Parquet.

    \b
      cfnade store export ratings.db ratings.parquet
    """
    from cfnade.data.load import load
    from cfnade.data.remote import STORE

    require_parquet(out)
    write_table(load(store if store.startswith(STORE) else f"{STORE}{store}"), out)


@app.command(cls=Command)
def erase(
    store: StoreUrl,
    user: Annotated[str, argument("USER", "Id of the user.")],
) -> None:
    """Erase a user: everything in the store about them.

    Models that were trained before still contain their ratings until `cfnade refresh`.

    \b
      cfnade store erase ratings.db anna
    """
    from cfnade.online.event_store import EventStore

    with closing(EventStore.open(store)) as opened:
        erasure = opened.erase_user(user)
    if erasure.n_events:
        print(f"{opened.name}: {count_of(erasure.n_events, 'event')} of {user!r} erased")
        print(f"earlier models contain them until: cfnade refresh MODEL --store {opened.name}")
    else:
        print_status(
            f"warning: {opened.name} has nothing about {user!r}, so nothing was changed; check "
            "the id, or the user was erased before"
        )
    if not erasure.purged:
        print_status(
            "warning: another program reads the store now, so erased bytes may remain in the "
            f"files of the database; repeat: cfnade store erase {opened.name} USER"
        )


def _check_scale(ratings: Dataset, stored: list[float], source: str) -> None:
    """Refuse ratings beyond the scale of the store, such as 1–10 among 1–5."""
    values = ratings.scale.values
    if stored and not (stored[0] <= values[0] and values[-1] <= stored[-1]):
        raise StoreError(
            f"{source}: its scale {ratings.scale} exceeds that of the store, {stored[0]:g} to "
            f"{stored[-1]:g}; use another store, or give --scale if both mean the same"
        )


def events_frame(ratings: Dataset) -> pl.DataFrame:
    """Return ratings as the columns of a store, which has no counts."""
    from cfnade.data.readers.tables import dataset_frame

    table = dataset_frame(ratings).drop("weight", strict=False)
    return table.rename({"user": "user_id", "item": "item_id"})


def _print_summary(summary: StoreSummary) -> None:
    from datetime import UTC, datetime

    from cfnade.cli.render import print_facts

    def minute(seconds: int) -> str:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")

    types = [
        count_of(summary.n_ratings, "rating"),
        count_of(summary.n_interactions, "interaction"),
        count_of(summary.n_withdrawals, "withdrawal"),
    ]
    facts = {
        "store": summary.store,
        "events": f"{summary.n_events:,}: {', '.join(types)}",
        "users": f"{summary.n_users:,}; {summary.n_erased_users:,} erased",
        "items": f"{summary.n_items:,}",
        "sources": ", ".join(f"{name} {n:,}" for name, n in summary.sources.items()) or "none yet",
    }
    if summary.first is not None and summary.last is not None:
        facts["time"] = f"{minute(summary.first)} to {minute(summary.last)}"
    if (online := summary.online_error) is not None:
        facts["online"] = (
            f"RMSE {online.rmse:.4f} on the last {count_of(online.n, 'rating')}; "
            f"{100 * online.new_users:.0f} % of them by users new to the model"
        )
    print_facts(facts)
    for model in summary.models:
        n = count_of(model["n_ratings"], "rating")
        print_facts({"model": f"{model['model'][:12]}: RMSE {model['rmse']:.4f} on {n}"})
