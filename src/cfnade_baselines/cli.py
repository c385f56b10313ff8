"""`cfnade compare`: CF-NADE and the other models on the same splits."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfnade.cli.options import Data, Json, Threads
from cfnade.exceptions import ModelError

if TYPE_CHECKING:
    from cfnade_baselines.compare import Outcome
    from cfnade_baselines.report import ModelStanding

_DIGITS = {
    "fit_seconds": 1,
    "fit_cpu_seconds": 1,
    "search_cpu_seconds": 1,
    "predict_seconds": 2,
    "peak_mb": 0,
}
PICTURE, FIGURES = "comparison.svg", "comparison.json"


def compare(
    data: Data,
    *,
    models: Annotated[
        str | None, typer.Option("--models", metavar="NAME,...", help="Models.  [default: all]")
    ] = None,
    splits: Annotated[
        str, typer.Option("--splits", metavar="NAME,...", help="Splits.")
    ] = "paper:0",
    ranking: Annotated[
        bool, typer.Option("--ranking", help="Compare recommendations, not ratings.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder that keeps finished results."),
    ] = None,
    as_json: Json = False,
    plot: Annotated[
        bool, typer.Option("--plot", help=f"Plot RMSE against seconds to {PICTURE}.")
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Random seed of every fit.")
    ] = 0,
    n_threads: Threads = None,
) -> None:
    """Compare models and baselines on the same splits.

    Every fit has a process of its own. Models whose library is missing are skipped with a message;
    a model that fails does not stop the others.

    \b
      cfnade compare ml-1m --models i-cfnade,biasmf --splits authors:1234
      cfnade compare ml-100k --splits u1,u2,u3,u4,u5 --out comparison --plot
      cfnade compare ml-1m --ranking --models ease,ials --splits liang:600
    """
    from cfnade.data.remote import pin_source, redact_url
    from cfnade_baselines.chart import draw, require_matplotlib
    from cfnade_baselines.compare import Task
    from cfnade_baselines.compare import compare as run

    if plot and ranking:
        raise ModelError("--plot is for the RMSE of ratings; omit it with --ranking")
    if plot:
        require_matplotlib()
    task = Task(*pin_source(data, {}), seed, n_threads, ranking)
    names = None if models is None else _names(models, "--models")
    split_names = _names(splits, "--splits")
    outcomes = run(task, names, split_names, out=out, say=_say)
    about = {"data": redact_url(data), "splits": split_names, "seed": seed, "threads": n_threads}
    table = _tell(outcomes, about, out, lists=ranking, as_json=as_json)
    if not any(row.splits for row in table):
        raise ModelError("no model could be fitted; the lines above say why")
    if plot:
        draw(table, (out or Path()) / PICTURE, f"{redact_url(data)}: {', '.join(split_names)}")


def _tell(
    outcomes: Sequence[Outcome],
    about: dict[str, Any],
    out: Path | None,
    *,
    lists: bool,
    as_json: bool,
) -> list[ModelStanding]:
    """Keep the figures if there is a folder, show them, and return what was shown."""
    from cfnade.utils.files import write_text
    from cfnade_baselines.report import COLUMNS, LIST_COLUMNS, standings
    from cfnade_baselines.report import as_json as figures

    columns = LIST_COLUMNS if lists else COLUMNS
    result = json.dumps(figures(outcomes, about, columns), indent=1)
    table = standings(outcomes, columns)
    if out is not None:
        write_text(out / FIGURES, result + "\n")
    if as_json:
        print(result)
    else:
        _show(table, columns, about["splits"])
    return table


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _show(table: list[ModelStanding], columns: dict[str, str], splits: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from cfnade_baselines.report import best

    top, most = best(table), max(len(row.splits) for row in table)
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("", min_width=18)
    for name in (*columns.values(), "splits"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in table:
        if row.splits:
            cells = [_cell(row, column, top, most) for column in columns]
            shown.add_row(row.title, *cells, str(len(row.splits)))
    # Where nobody looks at a screen of some width, lines may be as long as they need to be.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(shown)
    console.print("* best of the column" + _spread(table, splits))
    for row in table:
        if not row.splits:
            console.print(f"{row.title}: {next(iter(row.reasons.values()))}", markup=False)


def _spread(table: list[ModelStanding], splits: list[str]) -> str:
    """What ± is of."""
    if len(splits) > 1:
        return ", mean ± sd over splits"
    figures = [figure for row in table for figure in row.figures.values() if figure]
    return ", ± standard error over people" if any(f.sd is not None for f in figures) else ""


def _cell(row: ModelStanding, column: str, top: dict[str, float], most: int) -> str:
    figure = row.figures[column]
    if figure is None:
        return "– "
    digits = _DIGITS.get(column, 4)
    text = f"{figure.mean:.{digits}f}"
    if figure.sd is not None and column not in _DIGITS:
        text += f" ± {figure.sd:.4f}"
    wins = len(row.splits) == most and figure.mean == top.get(column)
    return f"[bold green]{text}*[/bold green]" if wins else f"{text} "


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ModelError(f"{option} {text!r}: write names with commas between, none of them empty")
    return names
