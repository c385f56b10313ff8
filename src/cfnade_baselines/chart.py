"""RMSE against the seconds of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cfnade.exceptions import ModelError
from cfnade_baselines.report import ModelStanding


def require_matplotlib() -> Any:
    """matplotlib's Figure, or a message that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ModelError(
            "a picture needs matplotlib; install it with: pip install 'cfnade[plot]'"
        ) from None
    return Figure


def draw(table: Sequence[ModelStanding], path: Path, title: str) -> None:
    """A point a model, seconds on a logarithmic axis; the ending of `path` says the format."""
    points = [
        (row.title, row.figures["fit_seconds"].mean, row.figures["rmse"])
        for row in table
        if row.figures["rmse"] is not None and row.figures["fit_seconds"] is not None
    ]
    if not points:
        raise ModelError("no model has figures, so there is nothing to draw")
    figure = require_matplotlib()(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for name, seconds, rmse in points:
        ours = "CF-NADE" in name
        colour = "tab:red" if ours else "tab:blue"
        axes.errorbar(seconds, rmse.mean, yerr=rmse.sd or 0.0, fmt="o", color=colour, capsize=2)
        axes.annotate(
            name, (seconds, rmse.mean), xytext=(5, 3), textcoords="offset points", fontsize=8
        )
    axes.set_xscale("log")
    axes.set(xlabel="seconds of a fit", ylabel="RMSE on test", title=title)
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Neither a date nor random ids: the same figures give the same file.
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "cfnade"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
