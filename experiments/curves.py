"""Points of a figure, its table and its SVG, which is the same for the same records."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import markdown_table
from experiments.plan import Plan
from experiments.tables import Records, spread, test_rmse


def draw(plan: Plan, records: Records, path: Path) -> None:
    """Plot test RMSE against x, with a line for each label."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "cfnade"
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for label, points in curves(plan, records).items():
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set_xlabel(axis_of(plan))
    axes.set_ylabel("test RMSE")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def axis_of(plan: Plan) -> str:
    """Return the name of x, the field that entries change."""
    return "λ" if "λ" in plan.title else "hidden units"


def curves(plan: Plan, records: Records) -> dict[str, list[tuple[float, float]]]:
    """Return for each label its points (x, mean test RMSE) by rising x."""
    points_of: dict[str, list[tuple[float, float]]] = {}
    splits = common_splits(records)
    for entry in plan.entries:
        runs = [run for run in records.get(entry.name, []) if run["split"] in splits]
        if runs:
            point = (float(entry.facts["x"]), spread(runs, test_rmse).mean)
            points_of.setdefault(entry.label, []).append(point)
    return {label: sorted(points) for label, points in points_of.items()}


def common_splits(records: Records) -> list[str]:
    """Return the splits of all entries, so that means are of the same ratings."""
    splits = [{run["split"] for run in runs} for runs in records.values()]
    return sorted(set.intersection(*splits)) if splits else []


def curve(plan: Plan, records: Records) -> str:
    """Return a table with a line for each x and a column for each label."""
    found = {label: dict(points) for label, points in curves(plan, records).items()}
    xs = sorted({x for points in found.values() for x in points})
    lines = [
        [f"{x:g}", *(f"{points[x]:.4f}" if x in points else "–" for points in found.values())]
        for x in xs
    ]
    splits = ", ".join(common_splits(records))
    return markdown_table([axis_of(plan), *found], lines) + f"\nMeans over {splits}.\n"
