"""`cfnade data …`: download, inspect, convert, split and shard ratings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from cfnade.cli import options
from cfnade.cli.command import Command, command_group, with_option_groups
from cfnade.cli.options import (
    Data,
    Json,
    LoadArguments,
    ParquetFile,
    TableArguments,
    argument,
    given_options,
    load_arguments,
    option,
)
from cfnade.cli.process import print_status
from cfnade.exceptions import CfnadeError, DataError

if TYPE_CHECKING:
    from cfnade.data.dataset import Dataset

app = command_group(
    """Download, inspect, convert, split and shard ratings.

    \b
      cfnade data info ratings.csv
      cfnade data convert orders.csv orders.parquet --user customer --item product
    """
)


@app.command(cls=Command)
def download(
    name: Annotated[str, argument("NAME", "Name of a data set, such as ml-1m.")],
) -> None:
    """Download a published data set.

    A copy in the folder CFNADE_DATA or in the cache is used if there is one.

    \b
      cfnade data download ml-1m
    """
    from cfnade.data.datasets import published_dataset

    published_dataset(name)
    print(_load(name, {}))


@app.command(cls=Command)
@with_option_groups
def info(
    data: Data,
    *,
    as_json: Json = False,
    **load_options: Unpack[LoadArguments],
) -> None:
    """Describe ratings: format, columns, scale, users and items.

    \b
      cfnade data info ml-1m
      cfnade data info ratings.csv --json
      cfnade data info orders.csv --user customer --item product --implicit
    """
    from cfnade.cli.render import print_summary
    from cfnade.data.summary import summarize

    summary = summarize(_load(data, load_options))
    if as_json:
        print(json.dumps(asdict(summary), indent=1))
    else:
        print_summary(summary)


@app.command(cls=Command)
@with_option_groups
def convert(
    data: Data,
    out: ParquetFile,
    **load_options: Unpack[LoadArguments],
) -> None:
    """Convert ratings of any format to Parquet.

    Other commands read the result without options.

    \b
      cfnade data convert ml-1m.zip ml-1m.parquet
      cfnade data convert export.csv ratings.parquet --separator ";" --scale 1-10
    """
    require_parquet(out)
    ratings = _load(data, load_options)
    with _spinner(f"writing {out}"):
        write_table(ratings, out)


@app.command("split", cls=Command)
def split_command(
    data: Data,
    split: Annotated[str, argument("SPLIT", "Name, such as paper:0 or liang:100.")],
    *,
    out: Annotated[Path, option("FOLDER", "Folder for the parts.")],
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
@with_option_groups
def shard(
    files: Annotated[
        list[str], argument("FILES", "Parquet, text or zip files, or folders of them.")
    ],
    *,
    out: Annotated[Path, option("FOLDER", "Folder for the shards.")],
    side: Annotated[
        str | None, option("SIDE", "Models to train: user, item or both.  [default: both]")
    ] = None,
    valid: Annotated[
        float | None, option("SHARE", "Share of the validation part.  [default: 0.05]")
    ] = None,
    test: Annotated[float | None, option("SHARE", "Share of the test part.  [default: 0]")] = None,
    seed: Annotated[int | None, option("N", "Random seed of the parts.")] = None,
    engine: Annotated[
        Literal["local", "spark"],
        option("NAME", "local or spark.", panel="Large jobs"),
    ] = "local",
    workers: options.Workers = None,
    overwrite: options.OverwriteJob = False,
    **table_options: Unpack[TableArguments],
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

    arguments = load_arguments(table_options)
    arguments |= given_options({"side": side, "valid": valid, "test": test, "seed": seed})
    names = {field.name for field in fields(ShardOptions)}
    shard_options = ShardOptions(**{n: v for n, v in arguments.items() if n in names})
    load_options = LoadOptions(**{n: v for n, v in arguments.items() if n not in names})
    with locked_output_dir(out, ".lock", DataError, "is writing to it; wait until it ends"):
        shards = build_shards(
            files,
            out,
            shard_options,
            load_options,
            engine=engine,
            n_workers=workers,
            overwrite=overwrite,
            log=print_status,
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


def _load(data: str, load_options: Mapping[str, Any]) -> Dataset:
    from cfnade.data.load import load
    from cfnade.data.remote import redact_url

    with _spinner(f"reading {redact_url(data)}"):
        return load(data, **load_arguments(load_options))


def _spinner(text: str) -> AbstractContextManager[Any]:
    """Return a spinner on standard error, which shows on a terminal only."""
    from rich.console import Console

    return Console(stderr=True).status(text)
