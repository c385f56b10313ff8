"""Tables, facts and small charts in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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


def print_table(names: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows under names of columns: the first column and "item" are left-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 or name == "item" else "right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print a line for each fact."""
    for name, fact in facts.items():
        print(f"{name:<14}{printable(fact)}")


# -- scores ---------------------------------------------------------------------------------------


def print_scores(scores: RatingScores, description: str) -> None:
    """Print the accuracy of predictions, also by the number of known ratings."""
    print(f"{count_of(scores.n, 'rating')}: {printable(description)}\n")
    metrics = {
        "RMSE": (scores.rmse, scores.rmse),  # calibration keeps means
        "MAE (of the median)": (None, scores.mae_of_medians),
        "NLL (nats)": (scores.nll_raw, scores.nll),
        "calibration error": (scores.calibration_error_raw, scores.calibration_error),
        "ranked probability score": (scores.rps_raw, scores.rps),
    }
    print_table(
        ("", "raw", "calibrated"),
        ([name, *map(_score, values)] for name, values in metrics.items()),
    )
    print()
    print_table(
        ("known ratings", "RMSE by user", "ratings", "RMSE by item", "ratings "),
        (
            [str(user), *_bucket(user), *_bucket(item)]
            for user, item in zip(scores.by_user, scores.by_item, strict=True)
        ),
    )
    if scores.unseen_ratings:
        print(
            f"\nunknown to the model: {count_of(scores.unseen_users, 'user')}, "
            f"{count_of(scores.unseen_items, 'item')}, with "
            f"{count_of(scores.unseen_ratings, 'rating')}"
        )


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


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
    relevant = "" if scores.threshold is None else f", relevant from {scores.threshold:g}"
    print(f"\nrecommendations for {count_of(scores.n_users, 'user')}{relevant}\n")
    print_table(
        ("", *(f"@{k:,}" for k in scores.by_k)),
        (
            [label, *(_estimate(metrics[name]) for metrics in scores.by_k.values())]
            for name, label in _RANKING_METRICS.items()
        ),
    )


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.mean:.4f}" + ("" if estimate.error is None else f" ± {estimate.error:.4f}")


# -- predictions ----------------------------------------------------------------------------------


def print_recommendations(frame: Any, scale: Scale) -> None:
    """Print the recommended items of each user: title, prediction and its distribution."""
    names = ["", "item"]
    if "interaction_probability" in frame.columns:
        names.append("probability")
    if "prediction" in frame.columns:
        names += ["prediction", "±", f"{scale.values[0]:g} … {scale.values[-1]:g}", "ratings"]
    else:
        names.append("users")
    lists = frame.partition_by("user", maintain_order=True) if "user" in frame.columns else [frame]
    for recommended in lists:
        if "user" in recommended.columns:
            print(f"user {printable(str(recommended['user'][0]))}")
        print_table(names, map(_recommendation, recommended.to_dicts()))


def _recommendation(row: dict[str, Any]) -> list[str | Text]:
    cells: list[str | Text] = [str(row["rank"]), _label(row)]
    if "interaction_probability" in row:
        cells.append(f"{100 * row['interaction_probability']:.2f} %")
    if "prediction" in row:
        probabilities = [value for name, value in row.items() if name.startswith("p_")]
        cells += [
            f"{row['prediction']:.2f}",
            f"{row['std']:.2f}",
            Text(bars(probabilities), "cyan"),
        ]
    return [*cells, f"{row['n_item_ratings']:,}"]


def print_similar(frame: Any, known: str = "ratings") -> None:
    """Print similar items; `known` is what the items are counted by."""
    print_table(
        ("", "item", "similarity", known),
        (
            [
                str(row["rank"]),
                _label(row),
                f"{row['similarity']:.2f}",
                f"{row['n_item_ratings']:,}",
            ]
            for row in frame.to_dicts()
        ),
    )


def print_explanation(frame: Any) -> None:
    """Print the ratings behind a prediction."""
    if len(frame) == 0:
        print("no rating is known that could change the prediction")
    elif "interaction_probability" in frame.columns:
        print(f"probability of an interaction {100 * frame['interaction_probability'][0]:.3f} %")
        print_table(
            ("item", "without it", "lift"),
            (
                [
                    _label(row),
                    f"{100 * row['prediction_without']:.3f} %",
                    _signed(f"{row['lift']:.2f}", row["lift"] - 1),
                ]
                for row in frame.to_dicts()
            ),
        )
    else:
        print(f"prediction {frame['prediction'][0]:.2f}")
        by_item = "item" in frame.columns
        print_table(
            ("item" if by_item else "users", "rating", "without it", "difference"),
            (
                [
                    _label(row) if by_item else f"{row['count']:,}",
                    f"{row['rating']:g}",
                    f"{row['prediction_without']:.2f}",
                    _signed(f"{row['difference']:+.3f}", row["difference"]),
                ]
                for row in frame.to_dicts()
            ),
        )
        if not any(f"{abs(value):.3f}" != "0.000" for value in frame["difference"]):
            print("none of these ratings changes the prediction")


def _signed(text: str, value: float) -> Text:
    return Text(text, "green" if value > 0 else "red")


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
    noun = "interactions" if summary.implicit else "ratings"
    sizes = f"{summary.ratings:,} of {summary.items:,} items by {summary.users:,} users"
    facts = {
        "source": summary.source or "own data",
        noun: f"{sizes}, {100 * summary.density:.3g} % of all cells",
        "per user": str(summary.per_user),
        "per item": str(summary.per_item),
    }
    if summary.implicit:
        facts["weights"] = str(summary.weights) if summary.weights else "all equal"
    else:
        levels = f"{summary.scale_text} ({summary.levels} levels)"
        facts["scale"] = f"{levels}, mean {summary.mean:.3f}"
    columns = [name for name in ("titles", "genres") if getattr(summary, name)]
    print_facts(
        facts
        | {
            "time": f"{summary.first} to {summary.last}" if summary.first else "not known",
            "items have": ", ".join(columns) or "ids only",
            "fingerprint": summary.fingerprint,
        }
    )
    if not summary.implicit:
        print()
        _print_histogram(summary)


def _print_histogram(summary: Summary) -> None:
    """Print a bar for each level, or for several if there are too many."""
    group_size = -(-summary.levels // _MAX_BARS)
    counts = {}
    for start in range(0, summary.levels, group_size):
        values = summary.scale[start : start + group_size]
        label = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g}–{values[-1]:g}"
        counts[label] = sum(summary.histogram[start : start + group_size])
    width, largest = max(map(len, counts)), max(counts.values())
    for label, count in counts.items():
        bar = "█" * round(_WIDTH * count / largest) or ("▏" if count else "")
        share = f"{100 * count / max(1, summary.ratings):.1f} %"
        print(f"{label:>{width}}  {bar:<{_WIDTH}}  {count:>12,}  {share:>7}")


def print_tried(tried: Sequence[dict[str, Any]]) -> None:
    """Print the validation RMSE and the ensemble weight of each member."""
    rows = [
        [
            member["side"],
            "–" if member["valid_rmse"] is None else f"{member['valid_rmse']:.4f}",
            f"{100 * member['share']:.0f} %",
            f"{100 * member['share_of_new']:.0f} %",
            f"{member['seconds']:.1f}",
        ]
        for member in tried
    ]
    if rows:
        print_table(("member", "valid RMSE", "weight", "for new users", "seconds"), rows)
