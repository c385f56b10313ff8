"""`cfnade export …`: recommendations, embeddings, or the model itself for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cfnade.cli.command import Command, command_group
from cfnade.cli.options import ItemName, Model, argument, option
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    import polars as pl

app = command_group(
    """Export recommendations, embeddings, ONNX or a static site.

    \b
      cfnade export recommendations model best.parquet
      cfnade export site model site
    """
)
TableFile = Annotated[Path, argument("OUT", ".parquet or .csv file to write.")]


@app.command(cls=Command)
def recommendations(
    model: Model,
    out: TableFile,
    *,
    n: Annotated[int, option("-n N", "Recommendations for each user.", min=1)] = 100,
) -> None:
    """Export the best items of every user.

    For models with many users, see `cfnade batch recommend`.

    \b
      cfnade export recommendations model best.parquet -n 50
    """
    from cfnade.cli.user_input import load_predictor, require_writable
    from cfnade.inference.ranking_options import RankingOptions

    require_writable(out)
    predictor = load_predictor(model)
    ids, users = predictor.resolve_users(predictor.users.table)
    _write(predictor.recommend(users, RankingOptions(n=n)).to_frame(ids), out)


@app.command(cls=Command)
def embeddings(
    model: Model,
    out: TableFile,
    *,
    side: Annotated[
        Literal["item", "user"], option("SIDE", "Whose embeddings: item or user.")
    ] = "item",
) -> None:
    """Export the embeddings of items or users.

    \b
      cfnade export embeddings model items.parquet
      cfnade export embeddings model users.parquet --side user
    """
    from cfnade.cli.user_input import load_predictor, require_writable
    from cfnade.inference import similarity

    require_writable(out)
    _write(similarity.embeddings(load_predictor(model).fitted, side), out)


@app.command(cls=Command)
def onnx(
    model: Model,
    out: Annotated[Path, argument("OUT", "ONNX file to write.")],
) -> None:
    """Export the predictions for a new user as an ONNX graph.

    \b
      cfnade export onnx model model.onnx
    """
    from cfnade.cli.user_input import load_predictor, require_writable
    from cfnade.integrations.onnx import export_onnx

    require_writable(out, ".onnx")
    result = export_onnx(load_predictor(model).fitted, out)
    size = f"{out.stat().st_size / 1e6:.1f} MB"
    print(f"{out}: predictions for a new user, {count_of(len(result.items), 'item')}, {size}")


@app.command(cls=Command)
def site(
    model: Model,
    out: Annotated[Path, argument("OUT", "Folder to write.")],
    *,
    item_name: ItemName = None,
) -> None:
    """Export the page as static files that predict in the browser.

    \b
      cfnade export site model site
    """
    from cfnade.cli.output_dir import require_no_model
    from cfnade.cli.user_input import load_predictor
    from cfnade.integrations.static_site import write_web
    from cfnade.server.settings import validate_item_name

    require_no_model(out)
    result = write_web(load_predictor(model), out, item_name=validate_item_name(item_name))
    size = f"{result.bytes / 1e6:.2f} MB in total"
    print(f"{out}: a page with {count_of(result.items, 'item')}, {size}")
    print(f"to look at it: python -m http.server -d {out}; any web server can host it")


def _write(frame: pl.DataFrame, out: Path) -> None:
    from cfnade.cli.user_input import write_frame

    write_frame(frame, out)
    print(f"{out}: {count_of(len(frame), 'row')}")
