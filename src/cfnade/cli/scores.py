"""Scores, recommendations and explanations as tables with small pictures."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfnade.data.scale import Scale
from cfnade.evaluation import Bucket, Scores

_HEIGHTS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 20


def show_scores(scores: Scores, what: str) -> None:
    """Print how good predictions were, and for whom."""
    console = Console(highlight=False)
    console.print(f"{scores.n:,} ratings: {what}\n", markup=False)
    table = _table("", "raw", "calibrated")
    table.add_row("RMSE", "", f"[bold]{scores.rmse:.4f}[/bold]")
    table.add_row("MAE (of the median)", "", f"{scores.mae:.4f}")
    table.add_row("NLL (nats)", f"{scores.nll_raw:.4f}", f"{scores.nll:.4f}")
    errors = f"{scores.calibration_error_raw:.4f}", f"{scores.calibration_error:.4f}"
    table.add_row("calibration error", *errors)
    table.add_row("ranked probability score", f"{scores.rps_raw:.4f}", f"{scores.rps:.4f}")
    console.print(table)
    console.print()
    console.print(_known(scores.by_user, scores.by_item))
    if scores.unseen_ratings:
        console.print(
            f"\n{scores.unseen_ratings:,} ratings of {scores.unseen_users:,} users and "
            f"{scores.unseen_items:,} items of which the model knows nothing"
        )


def _known(by_user: tuple[Bucket, ...], by_item: tuple[Bucket, ...]) -> Table:
    table = _table("ratings known", "RMSE by user", "ratings", "RMSE by item", "ratings ")
    for user, item in zip(by_user, by_item, strict=True):
        table.add_row(str(user), *_bucket(user), *_bucket(item))
    return table


def _bucket(bucket: Bucket) -> tuple[str, str]:
    return ("–" if bucket.rmse is None else f"{bucket.rmse:.4f}"), f"{bucket.n:,}"


def show_recommendations(found: Any, scale: Scale) -> None:
    """Print a list for each person: title, expected rating, how sure, and the distribution."""
    console = Console(highlight=False)
    low, high = f"{scale.values[0]:g}", f"{scale.values[-1]:g}"
    groups = found.partition_by("user", maintain_order=True) if "user" in found.columns else [found]
    for group in groups:
        if "user" in group.columns:
            console.print(f"user {group['user'][0]}", markup=False)
        table = _table("", "item", "expected", "±", f"{low} … {high}", "ratings known")
        for row in group.to_dicts():
            chances = [value for name, value in row.items() if name.startswith("p_")]
            label = Text(row["title"] or str(row["item"]))
            picture = Text(bars(chances), "cyan")
            figures = f"{row['prediction']:.2f}", f"{row['std']:.2f}"
            table.add_row(str(row["rank"]), label, *figures, picture, f"{row['known_of_item']:,}")
        console.print(table)


def show_explanation(found: Any) -> None:
    """Print which ratings moved a prediction."""
    console = Console(highlight=False)
    if len(found) == 0:
        console.print("no rating is known that could have moved the prediction")
        return
    console.print(f"predicted {found['prediction'][0]:.2f}")
    by_item = "item" in found.columns
    table = _table("rated" if by_item else "others who rated it", "rating", "without", "change")
    for row in found.to_dicts():
        what = Text((row["title"] or str(row["item"])) if by_item else f"{row['count']:,}")
        style = "green" if row["change"] > 0 else "red"
        change = Text(f"{row['change']:+.3f}", style)
        table.add_row(what, f"{row['rating']:g}", f"{row['without']:.2f}", change)
    console.print(table)


def bars(chances: list[float]) -> str:
    """A distribution as a row of small bars, at most twenty."""
    each = -(-len(chances) // _MOST_BARS)
    sums = [sum(chances[i : i + each]) for i in range(0, len(chances), each)]
    top = max(sums)
    return "".join(_HEIGHTS[min(7, round(7 * chance / top))] for chance in sums)


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for at, name in enumerate(names):
        table.add_column(name, justify="left" if at == 0 or name == "item" else "right")
    return table
