"""Tables and small charts in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfnade.cli.process import printable
from cfnade.utils.text import count_of

if TYPE_CHECKING:  # a look at a data set needs no torch
    from cfnade.data.scale import Scale
    from cfnade.data.summary import Summary
    from cfnade.evaluation.evaluate import Bucket, RankingScores, RatingScores
    from cfnade.evaluation.ranking_metrics import Estimate

_HEIGHTS = " ▁▂▃▄▅▆▇█"
_MAX_BARS = 20
_WIDTH = 40  # of the longest bar


def _table(*names: str, left_aligned: tuple[str, ...] = ("", "item")) -> Table:
    """Return a table, all of whose columns but the first and these are right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 or name in left_aligned else "right")
    return table


# -- scores ---------------------------------------------------------------------------------------


def print_scores(scores: RatingScores, description: str) -> None:
    """Print the accuracy of predictions, also by the number of known ratings."""
    console = Console(highlight=False)
    console.print(f"{count_of(scores.n, 'rating')}: {description}\n", markup=False)
    table = _table("", "raw", "calibrated")
    table.add_row("RMSE", "", f"[bold]{scores.rmse:.4f}[/bold]")
    table.add_row("MAE (of the median)", "", f"{scores.mae_of_medians:.4f}")
    table.add_row("NLL (nats)", f"{scores.nll_raw:.4f}", f"{scores.nll:.4f}")
    errors = f"{scores.calibration_error_raw:.4f}", f"{scores.calibration_error:.4f}"
    table.add_row("calibration error", *errors)
    table.add_row("ranked probability score", f"{scores.rps_raw:.4f}", f"{scores.rps:.4f}")
    console.print(table)
    console.print()
    table = _table("known ratings", "RMSE by user", "ratings", "RMSE by item", "ratings ")
    for user, item in zip(scores.by_user, scores.by_item, strict=True):
        table.add_row(str(user), *_bucket(user), *_bucket(item))
    console.print(table)
    if scores.unseen_ratings:
        console.print(
            f"\nunknown to the model: {count_of(scores.unseen_users, 'user')}, "
            f"{count_of(scores.unseen_items, 'item')}, with "
            f"{count_of(scores.unseen_ratings, 'rating')}"
        )


def _bucket(bucket: Bucket) -> tuple[str, str]:
    return ("–" if bucket.rmse is None else f"{bucket.rmse:.4f}"), f"{bucket.n:,}"


_RANKING_METRICS = {
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


def print_ranking_scores(scores: RankingScores) -> None:
    """Print ranking metrics with their standard errors."""
    console = Console(highlight=False)
    relevant = "" if scores.threshold is None else f", relevant from {scores.threshold:g}"
    console.print(f"\nrecommendations for {count_of(scores.n_users, 'user')}{relevant}\n")
    table = _table("", *(f"@{k:,}" for k in scores.by_k))
    for name, label in _RANKING_METRICS.items():
        table.add_row(label, *(_estimate(metrics[name]) for metrics in scores.by_k.values()))
    console.print(table)


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.mean:.4f}" + ("" if estimate.error is None else f" ± {estimate.error:.4f}")


# -- predictions ----------------------------------------------------------------------------------


def print_recommendations(frame: Any, scale: Scale) -> None:
    """Print the recommended items of each user: title, prediction and its distribution."""
    console = Console(highlight=False)
    low, high = f"{scale.values[0]:g}", f"{scale.values[-1]:g}"
    lists = frame.partition_by("user", maintain_order=True) if "user" in frame.columns else [frame]
    for rows in lists:
        if "user" in rows.columns:
            console.print(f"user {printable(str(rows['user'][0]))}", markup=False)
        probable = ["probability"] if "interaction_probability" in rows.columns else []
        rated = ["prediction", "±", f"{low} … {high}"] if "prediction" in rows.columns else []
        table = _table("", "item", *probable, *rated, "ratings" if rated else "users")
        for row in rows.to_dicts():
            figures: list[Any] = (
                [f"{100 * row['interaction_probability']:.2f} %"] if probable else []
            )
            figures += _figures(row) if rated else []
            table.add_row(str(row["rank"]), _label(row), *figures, f"{row['n_item_ratings']:,}")
        console.print(table)


def _figures(row: dict[str, Any]) -> list[Any]:
    """Return the cells of a predicted rating."""
    probabilities = [value for name, value in row.items() if name.startswith("p_")]
    return [f"{row['prediction']:.2f}", f"{row['std']:.2f}", Text(bars(probabilities), "cyan")]


def print_similar(frame: Any) -> None:
    """Print similar items."""
    table = _table("", "item", "similarity", "ratings")
    for row in frame.to_dicts():
        count = f"{row['n_item_ratings']:,}"
        table.add_row(str(row["rank"]), _label(row), f"{row['similarity']:.2f}", count)
    Console(highlight=False).print(table)


def print_explanation(frame: Any) -> None:
    """Print the ratings behind a prediction."""
    console = Console(highlight=False)
    if len(frame) == 0:
        console.print("no rating is known that could change the prediction")
        return
    if "interaction_probability" in frame.columns:
        _print_interaction_effects(console, frame)
        return
    console.print(f"prediction {frame['prediction'][0]:.2f}")
    by_item = "item" in frame.columns
    table = _table("item" if by_item else "users", "rating", "without it", "difference")
    for row in frame.to_dicts():
        label = _label(row) if by_item else Text(f"{row['count']:,}")
        difference = row["difference"]
        effect = Text(f"{difference:+.3f}", "green" if difference > 0 else "red")
        table.add_row(label, f"{row['rating']:g}", f"{row['prediction_without']:.2f}", effect)
    console.print(table)
    if not any(f"{abs(value):.3f}" != "0.000" for value in frame["difference"]):
        console.print("none of these ratings changes the prediction")


def _print_interaction_effects(console: Console, frame: Any) -> None:
    probability = 100 * frame["interaction_probability"][0]
    console.print(f"probability of an interaction {probability:.3f} %")
    table = _table("item", "without it", "lift")
    for row in frame.to_dicts():
        times = Text(f"{row['lift']:.2f}", "green" if row["lift"] > 1 else "red")
        table.add_row(_label(row), f"{100 * row['prediction_without']:.3f} %", times)
    console.print(table)


def _label(row: dict[str, Any]) -> Text:
    return Text(printable(row["title"] or str(row["item"])))


def bars(probabilities: list[float]) -> str:
    """Return a distribution as a row of at most twenty small bars."""
    group_size = -(-len(probabilities) // _MAX_BARS)
    sums = [
        sum(probabilities[i : i + group_size]) for i in range(0, len(probabilities), group_size)
    ]
    top = max(sums)
    return "".join(_HEIGHTS[1 + min(7, round(7 * value / top))] for value in sums)


# -- data sets ------------------------------------------------------------------------------------


def print_summary(summary: Summary) -> None:
    """Print the sizes of a data set and the distribution of its ratings."""
    if summary.implicit:
        _print_interactions(summary)
        return
    console = Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("source", Text(printable(summary.source or "own data")))
    facts.add_row("ratings", f"{summary.ratings:,}, {100 * summary.density:.3g} % of all cells")
    scale = f"{summary.scale_text} ({summary.levels} levels), mean {summary.mean:.3f}"
    facts.add_row("scale", scale)
    facts.add_row("time", f"{summary.first} to {summary.last}" if summary.first else "not known")
    facts.add_row("items have", _item_columns(summary))
    facts.add_row("fingerprint", summary.fingerprint)
    for part in (facts, _activity(summary), _histogram(summary)):
        console.print(part)
        console.print()


def _item_columns(summary: Summary) -> str:
    names = [name for name in ("titles", "genres") if getattr(summary, name)]
    return ", ".join(names) or "ids only"


def _print_interactions(summary: Summary) -> None:
    sizes = f"{summary.ratings:,} of {summary.items:,} items by {summary.users:,} users"
    facts = {
        "source": summary.source or "own data",
        "interactions": f"{sizes}, {100 * summary.density:.3g} % of all cells",
        "per user": str(summary.per_user),
        "per item": str(summary.per_item),
        "weights": str(summary.weights) if summary.weights else "all equal",
        "time": f"{summary.first} to {summary.last}" if summary.first else "not known",
        "items have": _item_columns(summary),
        "fingerprint": summary.fingerprint,
    }
    for name, fact in facts.items():
        print(f"{name:<14}{printable(fact)}")


def _activity(summary: Summary) -> Table:
    """Return the ratings of users and items, with a histogram of octaves."""
    names, picture = ("min", "median", "mean", "max"), "with 1, 2–3, 4–7 … ratings"
    table = _table("", "number", *names, picture, left_aligned=(picture,))
    for name, count, activity in (
        ("users", summary.users, summary.per_user),
        ("items", summary.items, summary.per_item),
    ):
        figures = (
            f"{activity.min:,}",
            f"{activity.median:,.0f}",
            f"{activity.mean:,.1f}",
            f"{activity.max:,}",
        )
        top = max(activity.octaves, default=0)
        heights = [_HEIGHTS[0 if n == 0 else max(1, round(8 * n / top))] for n in activity.octaves]
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
        least = 0.125 if count else 0  # a rare level is still visible
        length = max(least, _WIDTH * count / top)
        table.add_row(
            label, Bar(_WIDTH, 0, length, width=_WIDTH, color="cyan"), f"{count:,}", share
        )
    return table


def _merged(summary: Summary) -> list[tuple[str, int]]:
    """Return a bar for each level, or for several if there are too many."""
    group_size = -(-summary.levels // _MAX_BARS)
    rows = []
    for start in range(0, summary.levels, group_size):
        values = summary.scale[start : start + group_size]
        label = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g}–{values[-1]:g}"
        rows.append((label, sum(summary.histogram[start : start + group_size])))
    return rows


def print_tried(tried: Sequence[dict[str, Any]]) -> None:
    """Print the validation RMSE and the ensemble weight of each member."""
    if not tried:
        return
    table = _table("member", "valid RMSE", "weight", "for new users", "seconds")
    for member in tried:
        rmse = "–" if member["valid_rmse"] is None else f"{member['valid_rmse']:.4f}"
        shares = [f"{100 * member[key]:.0f} %" for key in ("share", "share_of_new")]
        table.add_row(member["side"], rmse, *shares, f"{member['seconds']:.1f}")
    Console().print(table)
