"""`cfnade export`: what a model says, or the model itself, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfnade.cli.arguments import Model
from cfnade.exceptions import PredictionError
from cfnade.utils.text import count_of
from cfnade.utils.validation import check_choice

if TYPE_CHECKING:
    from cfnade.inference.predictor import Predictor

WHAT = ("recommendations", "items", "users")


def export(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Argument(help="The .parquet or .csv file to write.", show_default=False),
    ] = None,
    *,
    what: Annotated[
        str,
        typer.Option(
            help="recommendations (the best items of every user), items or users (embeddings)."
        ),
    ] = "recommendations",
    n: Annotated[int, typer.Option("-n", help="Recommendations a user.")] = 100,
    onnx: Annotated[
        Path | None,
        typer.Option(help="Write the pass for somebody new as an ONNX file.", show_default=False),
    ] = None,
    web: Annotated[
        Path | None,
        typer.Option(
            help="Write the page as static files that predict in the browser.", show_default=False
        ),
    ] = None,
    noun: Annotated[
        str | None,
        typer.Option(help="With --web: what one item is, such as book.", show_default=False),
    ] = None,
) -> None:
    """Write predictions or embeddings of all users or items as Parquet, or the model itself.

    \b
      cfnade export model best.parquet -n 50
      cfnade export model items.parquet --what items
      cfnade export model --onnx model.onnx
      cfnade export model --web site
    """
    from cfnade.inference.predictor import Predictor

    check_choice("what", what, WHAT, error=PredictionError)
    targets = [one for one in (out, onnx, web) if one is not None]
    if noun is not None and web is None:
        raise PredictionError(f"--noun {noun} is for the page; give it with --web, or leave it out")
    if len(targets) != 1:
        raise PredictionError(
            "say what to write: a .parquet or .csv FILE, or --onnx FILE, or --web FOLDER, one of "
            f"them; {len(targets) or 'none'} given"
        )
    if out is not None:
        _table(model, out, what, n)
    elif onnx is not None:
        _graph(Predictor.load(model), onnx)
    elif web is not None:
        from cfnade.integrations.static_site import write_web
        from cfnade.server.item_metadata import validate_item_name

        written = write_web(Predictor.load(model), web, noun=validate_item_name(noun))
        size = f"{written.bytes / 1e6:.2f} MB in all"
        print(f"{web}: a page with {count_of(written.items, 'item')}, {size}")
        print(f"to look at it: python -m http.server -d {web}; any web server can hand it out")


def _table(model: Path, out: Path, what: str, n: int) -> None:
    from cfnade.cli.sheets import check_out, write_frame
    from cfnade.inference.predictor import Predictor
    from cfnade.inference.similarity import embeddings

    check_out(out)
    predictor = Predictor.load(model)
    if what == "recommendations":
        frame = predictor.recommend(predictor.users.table.tolist(), n=n)
    else:
        frame = embeddings(predictor.fitted, "item" if what == "items" else "user")
    write_frame(frame, out)
    print(f"{out}: {count_of(len(frame), 'row')}")


def _graph(predictor: Predictor, out: Path) -> None:
    try:
        from cfnade.integrations.onnx import write_onnx
    except ImportError:
        raise PredictionError(
            "writing ONNX needs the package onnx; install it with: pip install 'cfnade[onnx]'"
        ) from None
    written = write_onnx(predictor.fitted, out)
    what = f"{count_of(len(written.items), 'item')}, {out.stat().st_size / 1e6:.1f} MB"
    print(f"{out}: the pass for somebody new, {what}")
