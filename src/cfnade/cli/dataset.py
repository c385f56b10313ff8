"""`cfnade data …`: get, look at, convert and split ratings."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfnade.cli.arguments import Command, Data, Json, with_reading
from cfnade.cli.terminal import printable
from cfnade.data.remote import redact_url
from cfnade.exceptions import CfnadeError

if TYPE_CHECKING:
    from cfnade.data.dataset import Dataset
    from cfnade.data.summary import Summary

app = typer.Typer(
    no_args_is_help=True,
    help="Get, look at, convert and split ratings.",
    rich_markup_mode="rich",
)


@app.command(cls=Command)
def get(
    name: Annotated[str, typer.Argument(help="The name of a data set, such as ml-1m.")],
) -> None:
    """Get a data set by name, and say what is in it.

    It is looked for in the folder that CFNADE_DATA names and in the cache, then downloaded.

    \b
      cfnade data get ml-1m
    """
    from cfnade.data.datasets import published_dataset
    from cfnade.data.load import load

    published_dataset(name)
    with _waiting(f"getting {name}"):
        ratings = load(name)
    print(ratings)


@app.command(cls=Command)
@with_reading
def info(
    data: Data,
    *,
    as_json: Json = False,
    reading: dict[str, Any],
) -> None:
    """Say what is in a file, folder or data set.

    cfnade data info ml-1m
    cfnade data info ratings.csv --json
    """
    from cfnade.data.load import load
    from cfnade.data.summary import summarize

    with _waiting(f"reading {redact_url(data)}"):
        summary = summarize(load(data, **reading))
    if as_json:
        print(json.dumps(asdict(summary), indent=1))
    elif summary.implicit:
        _show_interactions(summary)
    else:
        from cfnade.cli.show import show_summary

        show_summary(summary)


@app.command(cls=Command)
@with_reading
def convert(
    data: Data,
    out: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    *,
    reading: dict[str, Any],
) -> None:
    """Read any format and write Parquet, which every tool reads.

    cfnade data convert ml-1m.zip ml-1m.parquet
    """
    from cfnade.data.load import load

    check_name(out)
    with _waiting(f"reading {redact_url(data)}"):
        ratings = load(data, **reading)
    with _waiting(f"writing {out}"):
        write_table(ratings, out)


@app.command("split", cls=Command)
@with_reading
def split_command(
    data: Data,
    name: Annotated[str, typer.Argument(help="The split, such as paper:0 or authors:1234.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder to write the parts into.")],
    reading: dict[str, Any],
) -> None:
    """Cut ratings into train, valid and test, each a Parquet file.

    cfnade data split ml-1m authors:1234 --out parts
    cfnade data split ml-100k u1 --out parts
    """
    from cfnade.data.load import load_split
    from cfnade.utils.files import write_text

    with _waiting(f"splitting {redact_url(data)}"):
        split = load_split(data, name, **reading)
    sizes = {}
    for part, ratings in split.parts().items():
        if len(ratings) or part != "fold_in":
            write_table(ratings, out / f"{part}.parquet")
            sizes[part] = len(ratings)
    facts = {"split": split.name, "fingerprint": split.fingerprint, "ratings": sizes}
    write_text(out / "split.json", json.dumps(facts, indent=1) + "\n")


def check_name(out: Path) -> None:
    """Refuse a file that would be no table, before anything is read."""
    if out.suffix != ".parquet":
        raise CfnadeError(f"{out}: the name of the file to write must end in .parquet")


def write_table(ratings: Dataset, out: Path) -> None:
    """Write ratings as Parquet, and say how many."""
    from cfnade.data.readers.tables import write_parquet

    write_parquet(ratings, out)
    print(f"{out}: {len(ratings):,} {'interactions' if ratings.implicit else 'ratings'}")


def _show_interactions(summary: Summary) -> None:
    """What there is to say of data without ratings."""
    beside = [word for word in ("titles", "genres") if getattr(summary, word)]
    facts = {
        "source": summary.source or "own data",
        "interactions": f"{summary.ratings:,} of {summary.items:,} items by {summary.users:,} "
        f"users, {100 * summary.density:.3g} % of all cells",
        "of a user": str(summary.per_user),
        "of an item": str(summary.per_item),
        "weights": str(summary.weights) if summary.weights else "each counts once",
        "time": f"{summary.first} to {summary.last}" if summary.first else "not known",
        "items have": ", ".join(beside) or "ids only",
        "fingerprint": summary.fingerprint,
    }
    for name, fact in facts.items():
        print(f"{name:<14}{printable(fact)}")


def _waiting(what: str) -> Any:
    """A spinner on standard error while long work runs, if that is a terminal."""
    from rich.console import Console

    return Console(stderr=True).status(what)
