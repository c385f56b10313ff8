"""`cfnade compare`: CF-NADE and the other models on the same splits."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfnade.cli.arguments import Data, with_reading
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


@with_reading
def compare(
    data: Data,
    *,
    models: Annotated[
        str | None, typer.Option(help="Names with commas between; all if not given.")
    ] = None,
    splits: Annotated[
        str, typer.Option("--splits", "--split", help="Names with commas between.")
    ] = "paper:0",
    lists: Annotated[
        bool, typer.Option("--lists", help="Compare lists of what people may like, not ratings.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder that keeps results: what is done stays.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures for a machine.")] = False,
    picture: Annotated[
        bool, typer.Option("--picture", help=f"Draw RMSE against seconds into {PICTURE}.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Fixes every fit.")] = 0,
    threads: Annotated[int | None, typer.Option(help="CPU threads of a fit.")] = None,
    reading: dict[str, Any],
) -> None:
    """Fit several models on the same splits and score each on test, once.

    Every fit has a process of its own. A model whose library is missing is left out, and a line
    says what to install; one that fails does not end the others.

    \b
      cfnade compare ml-1m --models i-cfnade,i-autorec,biasmf --splits authors:1234,authors:2341
      cfnade compare ml-100k --splits u1,u2,u3,u4,u5 --out comparison --picture
      cfnade compare ml-1m --lists --models popularity,ease,ials --splits liang:600
    """
    from cfnade.data.remote import pin_source, redact_url
    from cfnade_baselines.chart import draw, require_matplotlib
    from cfnade_baselines.compare import Task
    from cfnade_baselines.compare import compare as run

    if picture and lists:
        raise ModelError("--picture draws the RMSE, which lists have not; leave it out")
    if picture:
        require_matplotlib()
    task = Task(*pin_source(data, reading), _seed(seed), threads, lists)
    names = None if models is None else _names(models, "--models")
    split_names = _names(splits, "--splits")
    outcomes = run(task, names, split_names, out=out, say=_say)
    about = {"data": redact_url(data), "splits": split_names, "seed": seed, "threads": threads}
    table = _tell(outcomes, about, out, lists=lists, as_json=as_json)
    if not any(row.splits for row in table):
        raise ModelError("no model could be fitted; the lines above say why")
    if picture:
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


def _seed(seed: int) -> int:
    if seed < 0:
        raise ModelError(f"--seed {seed}: must not be negative")
    return seed
