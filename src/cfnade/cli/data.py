"""`cfnade data …`: download, inspect, convert, split and shard ratings."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cfnade.cli import options
from cfnade.cli.help import Command, Group
from cfnade.cli.options import Data, Json, given_options, load_arguments
from cfnade.exceptions import CfnadeError, DataError

if TYPE_CHECKING:
    from cfnade.data.dataset import Dataset

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Download, inspect, convert, split and shard ratings.

    \b
      cfnade data info ratings.csv
      cfnade data convert orders.csv orders.parquet --user customer --item product
    """,
)


@app.command(cls=Command)
def download(
    name: Annotated[str, typer.Argument(help="Name of a data set, such as ml-1m.", metavar="NAME")],
) -> None:
    """Download a published data set.

    A copy in the folder CFNADE_DATA or in the cache is used if there is one.

    \b
      cfnade data download ml-1m
    """
    from cfnade.data.datasets import published_dataset
    from cfnade.data.load import load

    published_dataset(name)
    with _spinner(f"getting {name}"):
        ratings = load(name)
    print(ratings)


@app.command(cls=Command)
def info(
    ctx: typer.Context,
    data: Data,
    *,
    as_json: Json = False,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    time: options.TimeColumn = None,
    no_time: options.NoTime = False,
    weight: options.WeightColumn = None,
    no_weight: options.NoWeight = False,
    implicit: options.Implicit = False,
    separator: options.Separator = None,
    header: options.Header = None,
    encoding: options.Encoding = None,
    skip_bad_lines: options.SkipBadLines = False,
    item_features: options.ItemFeatures = None,
    query: options.Query = None,
    scale: options.RatingScale = None,
    bins: options.Bins = None,
    duplicates: options.Duplicates = None,
    min_rating: options.MinRating = None,
    weighting: options.Weighting = None,
    cache: options.Cache = True,
) -> None:
    """Describe ratings: format, columns, scale, users and items.

    \b
      cfnade data info ml-1m
      cfnade data info ratings.csv --json
      cfnade data info orders.csv --user customer --item product --implicit
    """
    from cfnade.cli.render import print_summary
    from cfnade.data.load import load
    from cfnade.data.remote import redact_url
    from cfnade.data.summary import summarize

    with _spinner(f"reading {redact_url(data)}"):
        summary = summarize(load(data, **load_arguments(ctx)))
    if as_json:
        print(json.dumps(asdict(summary), indent=1))
    else:
        print_summary(summary)


@app.command(cls=Command)
def convert(
    ctx: typer.Context,
    data: Data,
    out: Annotated[Path, typer.Argument(help="Parquet file to write.", metavar="OUT")],
    *,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    time: options.TimeColumn = None,
    no_time: options.NoTime = False,
    weight: options.WeightColumn = None,
    no_weight: options.NoWeight = False,
    implicit: options.Implicit = False,
    separator: options.Separator = None,
    header: options.Header = None,
    encoding: options.Encoding = None,
    skip_bad_lines: options.SkipBadLines = False,
    item_features: options.ItemFeatures = None,
    query: options.Query = None,
    scale: options.RatingScale = None,
    bins: options.Bins = None,
    duplicates: options.Duplicates = None,
    min_rating: options.MinRating = None,
    weighting: options.Weighting = None,
    cache: options.Cache = True,
) -> None:
    """Convert ratings of any format to Parquet.

    Other commands read the result without options.

    \b
      cfnade data convert ml-1m.zip ml-1m.parquet
      cfnade data convert export.csv ratings.parquet --separator ";" --scale 1-10
    """
    from cfnade.data.load import load
    from cfnade.data.remote import redact_url

    require_parquet(out)
    with _spinner(f"reading {redact_url(data)}"):
        ratings = load(data, **load_arguments(ctx))
    with _spinner(f"writing {out}"):
        write_table(ratings, out)


@app.command("split", cls=Command)
def split_command(
    data: Data,
    split: Annotated[
        str, typer.Argument(help="Name, such as paper:0 or liang:100.", metavar="SPLIT")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for the parts.")],
) -> None:
    """Split ratings into training, validation and test part.

    Each part is a Parquet file.

    \b
      cfnade data split ml-1m authors:1234 --out parts
      cfnade data split ml-100k u1 --out parts
    """
    from cfnade.data.load import load_split
    from cfnade.data.remote import redact_url
    from cfnade.utils.files import write_text

    with _spinner(f"splitting {redact_url(data)}"):
        parts = load_split(data, split)
    _require_same_split(out / "split.json", parts.fingerprint)
    sizes = {}
    for part, ratings in parts.parts().items():
        if len(ratings) or part != "fold_in":
            write_table(ratings, out / f"{part}.parquet")
            sizes[part] = len(ratings)
    facts = {"split": parts.name, "fingerprint": parts.fingerprint, "ratings": sizes}
    write_text(out / "split.json", json.dumps(facts, indent=1) + "\n")


def _require_same_split(file: Path, fingerprint: str) -> None:
    """Refuse to replace another split, whose parts would be mixed with those of this one."""
    if file.exists() and json.loads(file.read_text()).get("fingerprint") != fingerprint:
        raise DataError(f"{file.parent}: has another split; give another folder with --out")


@app.command(cls=Command)
def shard(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(help="Parquet, text or zip files, or folders of them.", metavar="FILES"),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for the shards.")],
    side: Annotated[
        Literal["user", "item", "both"] | None,
        typer.Option(
            "--side", metavar="SIDE", help="Models to train: user, item or both.  [default: both]"
        ),
    ] = None,
    valid: Annotated[
        float | None,
        typer.Option(
            "--valid", metavar="SHARE", help="Share of the validation part.  [default: 0.05]"
        ),
    ] = None,
    test: Annotated[
        float | None,
        typer.Option("--test", metavar="SHARE", help="Share of the test part.  [default: 0]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Random seed of the parts.")
    ] = None,
    engine: Annotated[
        Literal["local", "spark"],
        typer.Option(
            "--engine",
            metavar="NAME",
            help="local or spark.  [default: local]",
            rich_help_panel="Large jobs",
            show_default=False,
        ),
    ] = "local",
    workers: options.Workers = None,
    overwrite: options.OverwriteJob = False,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    weight: options.WeightColumn = None,
    no_weight: options.NoWeight = False,
    implicit: options.Implicit = False,
    separator: options.Separator = None,
    header: options.Header = None,
    encoding: options.Encoding = None,
    skip_bad_lines: options.SkipBadLines = False,
    scale: options.RatingScale = None,
    bins: options.Bins = None,
    duplicates: options.Duplicates = None,
    min_rating: options.MinRating = None,
) -> None:
    """Partition ratings into shards for distributed training.

    DuckDB does the work, or Spark (--engine spark), whose workers must see the files and the folder
    under the same paths. Memory use is bounded, and an interrupted job resumes.

    \b
      cfnade data shard ratings.parquet --out shards
      cfnade data shard day-*.csv.gz --out shards --workers 4
      cfnade data shard parts/ --out shards --engine spark
    """
    from cfnade.cli.output_dir import locked_output_dir
    from cfnade.data.load import LoadOptions
    from cfnade.distributed.build_shards import ShardOptions, build_shards

    arguments = load_arguments(ctx)
    shard_arguments: dict[str, Any] = given_options(ctx, ("side", "valid", "test", "seed"))
    names = {field.name for field in fields(ShardOptions)}
    shard_arguments |= {name: arguments.pop(name) for name in list(arguments) if name in names}
    shard_options, load_options = ShardOptions(**shard_arguments), LoadOptions(**arguments)
    with locked_output_dir(out, ".lock", DataError, "is writing to it; wait until it ends"):
        shards = build_shards(
            files,
            out,
            shard_options,
            load_options,
            engine=engine,
            n_workers=workers,
            overwrite=overwrite,
            log=lambda line: print(line, file=sys.stderr),
        )
    print(f"{out}: {shards!r}"[:-1].replace("<Shards ", ""))


def require_parquet(out: Path) -> None:
    """Refuse another kind of output file before anything is read."""
    if out.suffix != ".parquet":
        raise CfnadeError(f"{out}: the name of the file to write must end in .parquet")


def write_table(ratings: Dataset, out: Path) -> None:
    """Write ratings as Parquet and print their number."""
    from cfnade.data.readers.tables import write_parquet

    write_parquet(ratings, out)
    print(f"{out}: {len(ratings):,} {'interactions' if ratings.implicit else 'ratings'}")


def _spinner(text: str) -> AbstractContextManager[Any]:
    """Return a spinner on standard error, which shows on a terminal only."""
    from rich.console import Console

    return Console(stderr=True).status(text)
