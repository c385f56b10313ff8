"""Figures as a person likes to see them in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfnade.data.summary import Counts, Summary

_BLOCKS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 20


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
    known = [word for word in ("titles", "genres") if getattr(summary, word)]
    return [
        ("source", summary.source or "own data"),
        ("ratings", f"{summary.ratings:,}, {100 * summary.density:.3g} % of all cells"),
        ("scale", f"{summary.scale_text} ({summary.levels} levels), mean {summary.mean:.3f}"),
        ("time", f"{summary.first} to {summary.last}" if summary.first else "not known"),
        ("items have", ", ".join(known) or "ids only"),
        ("fingerprint", summary.fingerprint),
    ]


def _activity(summary: Summary) -> Table:
    """Who rates and is rated how much; the picture counts those with 1, 2–3, 4–7 … ratings."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", style="bold")
    for name in ("how many", "least", "median", "mean", "most ratings"):
        table.add_column(name, justify="right")
    table.add_column("with 1, 2–3, 4–7 … ratings")
    for name, count, each in (
        ("users", summary.users, summary.per_user),
        ("items", summary.items, summary.per_item),
    ):
        figures = (f"{each.least:,}", f"{each.median:,.0f}", f"{each.mean:,.1f}", f"{each.most:,}")
        table.add_row(name, f"{count:,}", *figures, Text(_heights(each), "cyan"))
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
