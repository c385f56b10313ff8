"""docs/results/implicit.md, made from the record of implicit_results.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "implicit.md"
Measurement = dict[str, Any]
_HEAD = """# Top-n recommendation with no settings

`python experiments/implicit_results.py` makes this page from `experiments/results/implicit.jsonl`.
`grid` in that script has the search ranges of the rivals.

- `cfnade` has no settings: it does what `cfnade train FILE` does. Rivals are tuned on a validation
  part, then fitted to all training data. They take every interaction as 1; cfnade chooses how
  counts weigh.
- Steam and Last.fm come as a training and a test file. Of other data a fifth of each user's
  interactions is hidden (of users with five or more); interactions are
  ratings in the upper quarter of the scale. All items but those of training are ranked.
- Seeds change the hidden interactions, synthetic data and random starts. ± is the standard error
  over users of the mean over seeds: synthetic data of two seeds differ more than models do. Bold:
  within one standard error of the best, on the seeds of both. Options are those of the first seed.
- "Not measured": EASE of Last.fm, whose search on 15,465 items takes some five minutes, and
  MultVAE where it takes longest.
- Seconds include the search and were measured on a shared machine; CPU seconds add up all threads.
"""
_NAMES = {
    "item-knn": "item-kNN",
    "ease": "EASE",
    "ials": "iALS (irspack)",
    "bpr": "BPR (implicit)",
    "mult-vae": "MultVAE (Cornac)",
}


def write_page(record: Path, rows: list[str], models: list[str]) -> None:
    """Write the page from what has been measured."""
    lines = record.read_text().splitlines() if record.exists() else []
    measured: list[Measurement] = [json.loads(line) for line in lines]
    found = list({(one["row"], one["model"], one["seed"]): one for one in measured}.values())
    compared = {row: own for row in rows if (own := _comparable(row, found))}
    parts = [_HEAD, _summary(compared)]
    parts += [_section(row, own, models) for row, own in compared.items()]
    missing = [row for row in rows if not any(one["row"] == row for one in found)]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(parts))


def _comparable(row: str, found: list[Measurement]) -> list[Measurement]:
    """Return the measurements of a row with the seeds of which cfnade has been measured."""
    own = [one for one in found if one["row"] == row]
    seeds = {one["seed"] for one in own if one["model"] == "cfnade"}
    return [one for one in own if not seeds or one["seed"] in seeds]


def _summary(compared: dict[str, list[Measurement]]) -> str:
    behind = [row for row, own in compared.items() if "cfnade" not in _leaders(own)]
    if not behind:
        return "cfnade is best or within one standard error of the best in every row.\n"
    return f"cfnade is best or within one standard error, but for: {', '.join(behind)}.\n"


def _leaders(own: list[Measurement]) -> set[str]:
    """Return the best model and those within one standard error of it, on the seeds of both."""
    models = {one["model"]: [each for each in own if each["model"] == one["model"]] for one in own}
    best = max(models, key=lambda model: _mean(models[model], "ndcg@20"))
    values = {one["seed"]: one["ndcg@20"][0] for one in models[best]}
    leaders = {best}
    for model, each in models.items():
        gaps = [values[o["seed"]] - o["ndcg@20"][0] for o in each if o["seed"] in values]
        if gaps and np.mean(gaps) <= _error(each):
            leaders.add(model)
    return leaders


def _section(row: str, own: list[Measurement], models: list[str]) -> str:
    users, items, count = own[0]["shape"]
    by_model = {m: [one for one in own if one["model"] == m] for m in models}
    leaders = _leaders(own)
    lines = [
        f"## {row}\n",
        f"{users:,} users × {items:,} items, {count:,} training interactions.\n",
        "| | seeds | NDCG@10 | NDCG@20 | Recall@20 | seconds | CPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, each in by_model.items():
        name = _NAMES.get(model, model)
        if not each:
            lines.append(f"| {name} | | not measured | | | | |")
            continue
        shown = f"{_mean(each, 'ndcg@20'):.4f} ± {_error(each):.4f}"
        shown = f"**{shown}**" if model in leaders else shown
        ndcg, recall = (_mean(each, key) for key in ("ndcg@10", "recall@20"))
        seconds, cpu = (np.mean([one[key] for one in each]) for key in ("seconds", "cpu_seconds"))
        lines.append(
            f"| {name} | {len(each)} | {ndcg:.4f} | {shown} | {recall:.4f} "
            f"| {seconds:.0f} | {cpu:.0f} |"
        )
    notes = [_note(model, each[0]) for model, each in by_model.items() if each]
    return "\n".join([*lines, "", "; ".join(filter(None, notes)) + ".", "", _machines(own)])


def _mean(each: list[Measurement], key: str) -> float:
    return float(np.mean([one[key][0] for one in each]))


def _error(each: list[Measurement]) -> float:
    """Return the standard error of the mean over seeds, from those over users."""
    return float(np.linalg.norm([one["ndcg@20"][1] for one in each]) / len(each))


def _note(model: str, one: dict[str, Any]) -> str:
    chosen = one.get("options") or one.get("weights") or {}
    values = ", ".join(f"{name} {value:.3g}" for name, value in chosen.items() if value)
    return f"{_NAMES.get(model, model)}: {values}" if values else ""


def _machines(own: list[Measurement]) -> str:
    found = {
        f"{one['machine']['cpu']}, {one['machine']['threads']} "
        f"thread{'s' if one['machine']['threads'] > 1 else ''}, {one['machine']['date'][:10]}, "
        f"commit {one['machine']['commit']}"
        for one in own
    }
    loads = [float(one["machine"]["load"]) for one in own]
    return f"{'; '.join(sorted(found))}; load {min(loads):.0f} to {max(loads):.0f}.\n"
