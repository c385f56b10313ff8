"""What a person likes to see in a terminal: tables with small pictures, and training as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfnade.cli.terminal import printable
from cfnade.utils.text import count_of

if TYPE_CHECKING:  # a look at a data set needs no torch
    from cfnade.data.scale import Scale
    from cfnade.data.summary import Summary
    from cfnade.evaluation.evaluate import Bucket, RankingScores, RatingScores
    from cfnade.evaluation.ranking_metrics import Estimate

_HEIGHTS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 20
_WIDTH = 40  # of the longest bar


def _table(*names: str, left: tuple[str, ...] = ("", "item")) -> Table:
    """A table whose columns stand to the right, but for the first and those named."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 or name in left else "right")
    return table


# -- a model's scores ----------------------------------------------------------------------------


def show_scores(scores: RatingScores, what: str) -> None:
    """Print how good predictions were, and for whom."""
    console = Console(highlight=False)
    console.print(f"{count_of(scores.n, 'rating')}: {what}\n", markup=False)
    table = _table("", "raw", "calibrated")
    table.add_row("RMSE", "", f"[bold]{scores.rmse:.4f}[/bold]")
    table.add_row("MAE (of the median)", "", f"{scores.mae_of_medians:.4f}")
    table.add_row("NLL (nats)", f"{scores.nll_raw:.4f}", f"{scores.nll:.4f}")
    errors = f"{scores.calibration_error_raw:.4f}", f"{scores.calibration_error:.4f}"
    table.add_row("calibration error", *errors)
    table.add_row("ranked probability score", f"{scores.rps_raw:.4f}", f"{scores.rps:.4f}")
    console.print(table)
    console.print()
    table = _table("ratings known", "RMSE by user", "ratings", "RMSE by item", "ratings ")
    for user, item in zip(scores.by_user, scores.by_item, strict=True):
        table.add_row(str(user), *_bucket(user), *_bucket(item))
    console.print(table)
    if scores.unseen_ratings:
        console.print(
            f"\nthe model knows nothing of: users {scores.unseen_users:,}, items "
            f"{scores.unseen_items:,}, ratings of theirs {scores.unseen_ratings:,}"
        )


def _bucket(bucket: Bucket) -> tuple[str, str]:
    return ("–" if bucket.rmse is None else f"{bucket.rmse:.4f}"), f"{bucket.n:,}"


_LIST_METRICS = {
    "ndcg": "NDCG",
    "recall": "recall",
    "capped_recall": "recall of at most k",
    "precision": "precision",
    "map": "MAP",
    "mrr": "MRR",
    "hit_rate": "hit rate",
    "coverage": "coverage",
    "novelty": "novelty (bits)",
}


def show_list_scores(scores: RankingScores) -> None:
    """Print how good lists were, each figure with its standard error."""
    console = Console(highlight=False)
    liked = "" if scores.threshold is None else f" who gave {scores.threshold:g} or more"
    console.print(f"\nlists of {scores.n_users:,} people{liked}\n")
    table = _table("", *(f"first {k:,}" for k in scores.by_k))
    for name, label in _LIST_METRICS.items():
        table.add_row(label, *(_estimate(of[name]) for of in scores.by_k.values()))
    console.print(table)


def _estimate(of: Estimate) -> str:
    return f"{of.mean:.4f}" + ("" if of.error is None else f" ± {of.error:.4f}")


# -- what it says --------------------------------------------------------------------------------


def show_recommendations(frame: Any, scale: Scale) -> None:
    """Print a list for each person: title, expected rating, how sure, and the distribution."""
    console = Console(highlight=False)
    low, high = f"{scale.values[0]:g}", f"{scale.values[-1]:g}"
    lists = frame.partition_by("user", maintain_order=True) if "user" in frame.columns else [frame]
    for one in lists:
        if "user" in one.columns:
            console.print(f"user {printable(str(one['user'][0]))}", markup=False)
        picked = ["picked"] if "pick" in one.columns else []
        rated = ["expected", "±", f"{low} … {high}"] if "prediction" in one.columns else []
        table = _table("", "item", *picked, *rated, "known" if not rated else "ratings known")
        for row in one.to_dicts():
            figures: list[Any] = [f"{100 * row['pick']:.2f} %"] if picked else []
            figures += _figures(row) if rated else []
            table.add_row(str(row["rank"]), _label(row), *figures, f"{row['known_of_item']:,}")
        console.print(table)


def _figures(row: dict[str, Any]) -> list[Any]:
    """What is said of a rating."""
    chances = [value for name, value in row.items() if name.startswith("p_")]
    return [f"{row['prediction']:.2f}", f"{row['std']:.2f}", Text(bars(chances), "cyan")]


def show_similar(frame: Any) -> None:
    """Print items that are like one."""
    table = _table("", "item", "likeness", "known")
    for row in frame.to_dicts():
        count = f"{row['known_of_item']:,}"
        table.add_row(str(row["rank"]), _label(row), f"{row['similarity']:.2f}", count)
    Console(highlight=False).print(table)


def show_explanation(frame: Any) -> None:
    """Print which ratings moved a prediction."""
    console = Console(highlight=False)
    if len(frame) == 0:
        console.print("no rating is known that could have moved the prediction")
        return
    if "pick" in frame.columns:
        _show_why_picked(console, frame)
        return
    console.print(f"predicted {frame['prediction'][0]:.2f}")
    by_item = "item" in frame.columns
    table = _table("rated" if by_item else "others who rated it", "rating", "without", "change")
    for row in frame.to_dicts():
        what = _label(row) if by_item else Text(f"{row['count']:,}")
        change = Text(f"{row['change']:+.3f}", "green" if row["change"] > 0 else "red")
        table.add_row(what, f"{row['rating']:g}", f"{row['without']:.2f}", change)
    console.print(table)
    if not any(f"{abs(change):.3f}" != "0.000" for change in frame["change"]):
        console.print("none of these ratings moves the prediction of this model")


def _show_why_picked(console: Console, frame: Any) -> None:
    console.print(f"picked next with a chance of {100 * frame['pick'][0]:.3f} %")
    table = _table("because of", "without it", "times as likely")
    for row in frame.to_dicts():
        times = Text(f"{row['times']:.2f}", "green" if row["times"] > 1 else "red")
        table.add_row(_label(row), f"{100 * row['without']:.3f} %", times)
    console.print(table)


def _label(row: dict[str, Any]) -> Text:
    return Text(printable(row["title"] or str(row["item"])))


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
    beside = [word for word in ("titles", "genres") if getattr(summary, word)]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("source", Text(printable(summary.source or "own data")))
    facts.add_row("ratings", f"{summary.ratings:,}, {100 * summary.density:.3g} % of all cells")
    scale = f"{summary.scale_text} ({summary.levels} levels), mean {summary.mean:.3f}"
    facts.add_row("scale", scale)
    facts.add_row("time", f"{summary.first} to {summary.last}" if summary.first else "not known")
    facts.add_row("items have", ", ".join(beside) or "ids only")
    facts.add_row("fingerprint", summary.fingerprint)
    for part in (facts, _activity(summary), _histogram(summary)):
        console.print(part)
        console.print()


def _activity(summary: Summary) -> Table:
    """Who rates and is rated how much; the picture counts those with 1, 2–3, 4–7 … ratings."""
    names, picture = ("least", "median", "mean", "most ratings"), "with 1, 2–3, 4–7 … ratings"
    table = _table("", "how many", *names, picture, left=(picture,))
    for name, count, each in (
        ("users", summary.users, summary.per_user),
        ("items", summary.items, summary.per_item),
    ):
        figures = (f"{each.min:,}", f"{each.median:,.0f}", f"{each.mean:,.1f}", f"{each.max:,}")
        top = max(each.octaves, default=0)
        heights = [_HEIGHTS[0 if n == 0 else max(1, round(8 * n / top))] for n in each.octaves]
        table.add_row(f"[bold]{name}", f"{count:,}", *figures, Text("".join(heights), "cyan"))
    return table


def _histogram(summary: Summary) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    rows = _merged(summary)
    top = max(count for _, count in rows)
    for label, count in rows:
        share = f"{100 * count / max(1, summary.ratings):.1f} %"
        least = 0.125 if count else 0  # a rare level is still there
        length = max(least, _WIDTH * count / top)
        table.add_row(
            label, Bar(_WIDTH, 0, length, width=_WIDTH, color="cyan"), f"{count:,}", share
        )
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


# -- training ------------------------------------------------------------------------------------


def show_tried(tried: Sequence[dict[str, Any]]) -> None:
    """What each member gave on the validation part, and what it counts."""
    if not tried:
        return
    table = _table("tried", "valid RMSE", "share", "for new people", "seconds")
    for one in tried:
        rmse = "–" if one["valid_rmse"] is None else f"{one['valid_rmse']:.4f}"
        shares = [f"{100 * one[key]:.0f} %" for key in ("share", "share_of_new")]
        table.add_row(one["side"], rmse, *shares, f"{one['seconds']:.1f}")
    Console().print(table)
