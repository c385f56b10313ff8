"""Figures as a person likes to see them in a terminal: tables with small pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # a look at a data set needs no torch
    from cfnade.data.scale import Scale
    from cfnade.data.summary import Counts, Summary
    from cfnade.evaluation import Bucket, Scores

_BLOCKS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 20


def _table(*names: str, left: tuple[str, ...] = ("", "item")) -> Table:
    """A table whose columns stand to the right, but for the first and those named."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 or name in left else "right")
    return table


# -- a model's scores ----------------------------------------------------------------------------


def show_scores(scores: Scores, what: str) -> None:
    """Print how good predictions were, and for whom."""
    console = Console(highlight=False)
    console.print(f"{scores.n:,} ratings: {what}\n", markup=False)
    table = _table("", "raw", "calibrated")
    table.add_row("RMSE", "", f"[bold]{scores.rmse:.4f}[/bold]")
    table.add_row("MAE (of the median)", "", f"{scores.mae_of_medians:.4f}")
    table.add_row("NLL (nats)", f"{scores.nll_raw:.4f}", f"{scores.nll:.4f}")
    errors = f"{scores.calibration_error_raw:.4f}", f"{scores.calibration_error:.4f}"
    table.add_row("calibration error", *errors)
    table.add_row("ranked probability score", f"{scores.rps_raw:.4f}", f"{scores.rps:.4f}")
    console.print(table)
    console.print()
    console.print(_by_ratings_known(scores))
    if scores.unseen_ratings:
        console.print(
            f"\n{scores.unseen_ratings:,} ratings of {scores.unseen_users:,} users and "
            f"{scores.unseen_items:,} items of which the model knows nothing"
        )


def _by_ratings_known(scores: Scores) -> Table:
    table = _table("ratings known", "RMSE by user", "ratings", "RMSE by item", "ratings ")
    for user, item in zip(scores.by_user, scores.by_item, strict=True):
        table.add_row(str(user), *_bucket(user), *_bucket(item))
    return table


def _bucket(bucket: Bucket) -> tuple[str, str]:
    return ("–" if bucket.rmse is None else f"{bucket.rmse:.4f}"), f"{bucket.n:,}"


# -- what it says --------------------------------------------------------------------------------


def show_recommendations(frame: Any, scale: Scale) -> None:
    """Print a list for each person: title, expected rating, how sure, and the distribution."""
    console = Console(highlight=False)
    low, high = f"{scale.values[0]:g}", f"{scale.values[-1]:g}"
    lists = frame.partition_by("user", maintain_order=True) if "user" in frame.columns else [frame]
    for one in lists:
        if "user" in one.columns:
            console.print(f"user {one['user'][0]}", markup=False)
        table = _table("", "item", "expected", "±", f"{low} … {high}", "ratings known")
        for row in one.to_dicts():
            chances = [value for name, value in row.items() if name.startswith("p_")]
            picture = Text(bars(chances), "cyan")
            figures = f"{row['prediction']:.2f}", f"{row['std']:.2f}"
            known = f"{row['known_of_item']:,}"
            table.add_row(str(row["rank"]), _label(row), *figures, picture, known)
        console.print(table)


def show_explanation(frame: Any) -> None:
    """Print which ratings moved a prediction."""
    console = Console(highlight=False)
    if len(frame) == 0:
        console.print("no rating is known that could have moved the prediction")
        return
    console.print(f"predicted {frame['prediction'][0]:.2f}")
    by_item = "item" in frame.columns
    table = _table("rated" if by_item else "others who rated it", "rating", "without", "change")
    for row in frame.to_dicts():
        what = _label(row) if by_item else Text(f"{row['count']:,}")
        change = Text(f"{row['change']:+.3f}", "green" if row["change"] > 0 else "red")
        table.add_row(what, f"{row['rating']:g}", f"{row['without']:.2f}", change)
    console.print(table)


def _label(row: dict[str, Any]) -> Text:
    return Text(row["title"] or str(row["item"]))


def bars(chances: list[float]) -> str:
    """A distribution as a row of small bars, at most twenty."""
    each = -(-len(chances) // _MOST_BARS)
    sums = [sum(chances[i : i + each]) for i in range(0, len(chances), each)]
    top = max(sums)
    return "".join(_HEIGHTS[1 + min(7, round(7 * chance / top))] for chance in sums)


# -- what a data set is like ---------------------------------------------------------------------


def show_summary(summary: Summary) -> None:
    """Print what a data set is like."""
    console = Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(summary):
        facts.add_row(name, value)
    for part in (facts, _activity(summary), _histogram(summary)):
        console.print(part)
        console.print()


def _facts(summary: Summary) -> list[tuple[str, str]]:
    beside = [word for word in ("titles", "genres") if getattr(summary, word)]
    return [
        ("source", summary.source or "own data"),
        ("ratings", f"{summary.ratings:,}, {100 * summary.density:.3g} % of all cells"),
        ("scale", f"{summary.scale_text} ({summary.levels} levels), mean {summary.mean:.3f}"),
        ("time", f"{summary.first} to {summary.last}" if summary.first else "not known"),
        ("items have", ", ".join(beside) or "ids only"),
        ("fingerprint", summary.fingerprint),
    ]


def _activity(summary: Summary) -> Table:
    """Who rates and is rated how much; the picture counts those with 1, 2–3, 4–7 … ratings."""
    names, picture = ("least", "median", "mean", "most ratings"), "with 1, 2–3, 4–7 … ratings"
    table = _table("", "how many", *names, picture, left=(picture,))
    for name, count, each in (
        ("users", summary.users, summary.per_user),
        ("items", summary.items, summary.per_item),
    ):
        figures = (f"{each.least:,}", f"{each.median:,.0f}", f"{each.mean:,.1f}", f"{each.most:,}")
        table.add_row(f"[bold]{name}", f"{count:,}", *figures, Text(_heights(each), "cyan"))
    return table


def _heights(counts: Counts) -> str:
    top = max(counts.octaves, default=0)
    return "".join(_HEIGHTS[0 if n == 0 else max(1, round(8 * n / top))] for n in counts.octaves)


def _histogram(summary: Summary) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    rows = _merged(summary)
    top = max(count for _, count in rows)
    for label, count in rows:
        share = count / max(1, summary.ratings)
        table.add_row(label, Text(_bar(count / top), "cyan"), f"{count:,}", f"{100 * share:.1f} %")
    return table


def _merged(summary: Summary) -> list[tuple[str, int]]:
    """One bar a level, or a bar for several of them if there are too many to read."""
    each = -(-summary.levels // _MOST_BARS)
    rows = []
    for start in range(0, summary.levels, each):
        values = summary.scale[start : start + each]
        label = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g}–{values[-1]:g}"
        rows.append((label, sum(summary.histogram[start : start + each])))
    return rows


def _bar(share: float, width: int = 40) -> str:
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)  # a rare level is still there
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
