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
    from cfnade_baselines.compare import FitResult
    from cfnade_baselines.registry import Task
    from cfnade_baselines.report import Summary

_DIGITS = {
    "fit_seconds": 1,
    "fit_cpu_seconds": 1,
    "search_cpu_seconds": 1,
    "predict_seconds": 2,
    "peak_mb": 0,
}
PICTURE, SUMMARY, RESULTS = "comparison.svg", "comparison.json", "results.jsonl"


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
    from cfnade_baselines.compare import Comparison
    from cfnade_baselines.compare import compare as run
    from cfnade_baselines.report import draw, require_matplotlib

    if plot and ranking:
        raise ModelError("--plot is for the RMSE of ratings; omit it with --ranking")
    if plot:
        require_matplotlib()
    task: Task = "ranking" if ranking else "rating"
    names = None if models is None else _names(models, "--models")
    split_names = _names(splits, "--splits")
    results = run(
        Comparison(*pin_source(data, {}), seed, n_threads, task),
        names,
        split_names,
        results=None if out is None else out / RESULTS,
        report=_report,
    )
    source = redact_url(data)
    header = {"data": source, "splits": split_names, "seed": seed, "n_threads": n_threads}
    table = _show_results(results, header, out, task, as_json=as_json)
    if not any(row.splits for row in table):
        raise ModelError("no model could be fitted; the lines above say why")
    if plot:
        draw(table, (out or Path()) / PICTURE, f"{source}: {', '.join(split_names)}")


def _show_results(
    results: Sequence[FitResult],
    header: dict[str, Any],
    out: Path | None,
    task: Task,
    *,
    as_json: bool,
) -> list[Summary]:
    """Write the summary to the folder, if any, print it, and return the rows of the table."""
    from cfnade.utils.files import write_text
    from cfnade_baselines.report import as_json as summary_json
    from cfnade_baselines.report import summarize

    summary = json.dumps(summary_json(results, header, task), indent=1)
    table = summarize(results, task)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / SUMMARY, summary + "\n")
    if as_json:
        print(summary)
    else:
        _print_table(table, task, header["splits"])
    return table


def _report(text: str) -> None:
    print(text, file=sys.stderr)


def _print_table(summaries: list[Summary], task: Task, splits: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from cfnade_baselines.report import COLUMNS, best

    columns = COLUMNS[task]
    top, most = best(summaries), max(len(row.splits) for row in summaries)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", min_width=18)
    for name in (*columns.values(), "splits"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in summaries:
        if row.splits:
            cells = [_cell(row, column, top, most) for column in columns]
            table.add_row(row.title, *cells, str(len(row.splits)))
    # Lines that are not read on a terminal may be long.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print("* best of the column" + _spread_note(summaries, splits))
    for row in summaries:
        if not row.splits:
            console.print(f"{row.title}: {next(iter(row.reasons.values()))}", markup=False)


def _spread_note(table: list[Summary], splits: list[str]) -> str:
    """Return what ± means."""
    if len(splits) > 1:
        return ", mean ± standard deviation over splits"
    figures = [figure for row in table for figure in row.figures.values() if figure]
    return ", ± standard error over users" if any(f.std is not None for f in figures) else ""


def _cell(row: Summary, column: str, top: dict[str, float], most: int) -> str:
    figure = row.figures[column]
    if figure is None:
        return "– "
    digits = _DIGITS.get(column, 4)
    text = f"{figure.mean:.{digits}f}"
    if figure.std is not None and column not in _DIGITS:
        text += f" ± {figure.std:.4f}"
    is_best = len(row.splits) == most and figure.mean == top.get(column)
    return f"[bold green]{text}*[/bold green]" if is_best else f"{text} "


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ModelError(f"{option} {text!r}: write names with commas between, none of them empty")
    return names
