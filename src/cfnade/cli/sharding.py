"""`cfnade shard`: ratings cut by columns, for training on more than one machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cfnade.cli.arguments import panel, with_engine, with_reading_in_pieces
from cfnade.cli.folder import own_folder
from cfnade.exceptions import DataError

_division = panel("How ratings are divided")


@with_reading_in_pieces
@with_engine
def shard(
    ratings: Annotated[
        list[str], typer.Argument(help="Parquet, text or zip files, or folders; any number.")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    side: Annotated[
        str | None, _division("What rows may be: user, item or both (if not given).")
    ] = None,
    valid: Annotated[
        float | None, _division("The share held back for validation; 0.05 if not given.")
    ] = None,
    test: Annotated[
        float | None, _division("The share held back for a test; 0 if not given.")
    ] = None,
    seed: Annotated[int | None, _division("Another number divides otherwise.")] = None,
    running: dict[str, Any],
    reading: dict[str, Any],
) -> None:
    """Cut ratings into parts by columns, however many there are.

    Memory does not grow with them. The same command again goes on where a stopped one was. All
    workers must see the files and the folder under the same paths.

    \b
      cfnade shard ratings.parquet --out shards
      cfnade shard day-*.csv.gz --out shards --workers 4
      cfnade shard parts/ --out shards --engine spark
    """
    from dataclasses import fields

    from cfnade.data.load import LoadOptions
    from cfnade.distributed.build_shards import ShardOptions, build_shards

    said = {"side": side, "valid": valid, "test": test, "seed": seed}
    meant = {field.name for field in fields(ShardOptions)}
    chosen: dict[str, Any] = {k: v for k, v in said.items() if v is not None}
    chosen |= {name: reading.pop(name) for name in list(reading) if name in meant}
    engine = running["engine"] or "local"
    with own_folder(out, ".lock", DataError, "is writing to it; wait until that has ended"):
        shards = build_shards(
            ratings,
            out,
            ShardOptions(**chosen),
            LoadOptions(**reading),
            engine="duckdb" if engine == "local" else engine,
            n_workers=running["workers"],
            overwrite=bool(running["force"]),
            log=lambda line: print(line, file=sys.stderr),
        )
    print(f"{out}: {shards!r}"[:-1].replace("<Shards ", ""))
