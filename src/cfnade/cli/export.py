"""`cfnade export`: predictions or embeddings for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfnade.cli.use import Model, check_out, write_frame
from cfnade.errors import PredictionError

WHAT = ("recommendations", "items", "users")


def export(
    model: Model,
    out: Annotated[Path, typer.Argument(help="The .parquet or .csv file to write.")],
    *,
    what: Annotated[
        str,
        typer.Option(
            help="recommendations (the best items of every user), items or users (embeddings)."
        ),
    ] = "recommendations",
    n: Annotated[int, typer.Option("-n", help="Recommendations a user.")] = 100,
) -> None:
    """Write predictions or embeddings of all users or items as Parquet.

    \b
      cfnade export model best.parquet -n 50
      cfnade export model items.parquet --what items
    """
    from cfnade.predictor import Predictor
    from cfnade.predictor.embeddings import embeddings

    if what not in WHAT:
        raise PredictionError(f"--what {what}: choose one of {', '.join(WHAT)}")
    check_out(out)
    predictor = Predictor.load(model)
    if what == "recommendations":
        frame = predictor.recommend(predictor.users.table.tolist(), n=n)
    else:
        frame = embeddings(predictor.bundle, "item" if what == "items" else "user")
    write_frame(frame, out)
    print(f"{out}: {len(frame):,} rows")
