"""Write docs/results/refresh.md and its picture from the records of replay.py.

python -m experiments.replay_report experiments/results/replay.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
NAMES = {
    "a": "not refreshed",
    "b": "means, updated online",
    "c": "trained from scratch each time",
    "d": "from scratch, including the newest tenth",
    "ours": "refreshed",
}
COLORS = {"a": "#999999", "b": "#d08770", "c": "#5e81ac", "d": "#88aadd", "ours": "#2e7d32"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    lines = [json.loads(line) for line in parser.parse_args().records.read_text().splitlines()]
    head, parts = lines[0], lines[1:]
    _draw(parts, ROOT / "docs" / "results" / "refresh.svg")
    (ROOT / "docs" / "results" / "refresh.md").write_text(_page(head, parts))


def _page(head: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    total = {name: _total_rmse(parts, name) for name in NAMES}
    refresh, scratch, on_all = (
        sum(part["refresh"]["cpu_seconds"] for part in parts),
        *(sum(part[f"{name}_cpu_seconds"] for part in parts) for name in ("scratch", "on_all")),
    )
    stopped = ""
    if len(parts) < head["parts"]:
        stopped = f" The run was stopped after part {len(parts)} of {head['parts']}."
    behind = [str(part["part"]) for part in parts if part["rmse"]["ours"] >= part["rmse"]["b"]]
    means = f"missed in part {', '.join(behind)}" if behind else "reached"
    compared = sum(part["http"]["compared"] for part in parts)
    gap = max(part["http"]["largest_gap"] for part in parts)
    rejected = sum(not part["refresh"]["published"] for part in parts)
    from_scratch, from_all = total["ours"] - total["c"], total["ours"] - total["d"]
    difference = f"{from_scratch:+.4f}; {from_all:+.4f} from training on all data"
    cost = (
        f"{refresh / scratch:.2f} ({refresh:.1f} CPU seconds for all refreshes, {scratch:.1f} for "
        f"training from scratch, {on_all:.1f} with all data)"
    )
    every = head["every_person"]
    users = "All users" if every == 1 else f"One of {every} users"
    return f"""# Refreshing a served model

How much does `cfnade refresh` gain when ratings arrive over time? `python -m
experiments.replay_report` generates this page from the records of `python -m experiments.replay
--every-person {every}`.

{users} of MovieLens 1M with all of their ratings ({head["people"]:,} users, {head["ratings"]:,}
ratings) are replayed in the order of time. The recipe `ml-1m-user` is trained on the first half.
The second half arrives in ten parts, with a refresh after each (tolerance {head["bar"]}; {rejected}
of {len(parts)} were not published). The prequential RMSE compares each rating with the prediction
made *before* it arrived, by the model served at that time and from all earlier ratings of the user.
Ratings of items that the first half does not have are stored, but not scored. Machine:
{head["machine"]}.{stopped}

The first ratings of each part were sent over HTTP to a running `cfnade serve --store --watch`, the
others were written to its store. Predictions were computed in the process of the experiment. The
service logged predictions for the {compared:,} ratings that it received; they differ from these by
at most {gap:.0e} stars.

{_table(parts, total)}

![Prequential RMSE of each part](refresh.svg)

| goal | result |
|---|---|
| RMSE at most 0.002 above training from scratch | {difference} |
| a tenth of its cost | missed: {cost} |
| lower RMSE than online means in every part | {means} |
"""


def _table(parts: list[dict[str, Any]], total: dict[str, float]) -> str:
    names = [*NAMES.values(), "refreshed − scratch"]
    lines = [f"| part | ratings | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    last = {"part": "all", "ratings": sum(part["ratings"] for part in parts), "rmse": total}
    for part in [*parts, last]:
        rmse = part["rmse"]
        cells = " | ".join(f"{rmse[name]:.4f}" for name in NAMES)
        gap = f"{rmse['ours'] - rmse['c']:+.4f}"
        lines.append(f"| {part['part']} | {part['ratings']:,} | {cells} | {gap} |")
    return "\n".join(lines)


def _total_rmse(parts: list[dict[str, Any]], name: str) -> float:
    weights = [part["ratings"] for part in parts]
    return float(np.sqrt(np.average([part["rmse"][name] ** 2 for part in parts], weights=weights)))


def _draw(parts: list[dict[str, Any]], path: Path) -> None:
    """Plot the error of each part; the same records give the same file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for name, label in NAMES.items():
        errors = [part["rmse"][name] for part in parts]
        numbers = [part["part"] for part in parts]
        axes.plot(numbers, errors, color=COLORS[name], marker="o", label=label)
    axes.set(xlabel="part", ylabel="prequential RMSE")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    with rc_context({"svg.hashsalt": "cfnade"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
