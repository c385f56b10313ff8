"""Write docs/results/lists.md from the records of ranking.py and of `cfnade compare --ranking`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import describe_machine, markdown_table
from cfnade_baselines.compare import FitResult, ResultsFile
from cfnade_baselines.registry import load_preset
from cfnade_baselines.report import summarize
from experiments.runner import RESULTS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "lists.md"
_HEAD = """# Recommendation lists

`python -m experiments.ranking` generates this page from `experiments/results/`. The figures of
cfnade are those of version 0.2, which had fewer [components](../how-to/implicit-feedback.md). To
compare models on your data, use `cfnade compare DATA --ranking`.

NDCG@100 and recall at k (R@k, with at most k relevant items) follow Liang et al. (2018); ± is the
standard error over users.
"""
RANKED_BY = {
    "picked and liked": "interaction and rating",
    "picked": "interaction",
    "nearer to ratings, taste 0.75": "interaction and rating, balance 0.75",
    "expected rating": "prediction",
}
"""Criteria by their names in the records."""
_IALS = ("factors", "unobserved_weight", "regularization", "epochs")
_PUBLISHED = [
    ["published: Mult-VAE", ".386", ".351", ".444"],
    ["published: EASE", ".393", ".362", ".445"],
    ["published: RecVAE", ".394", ".361", ".452"],
    ["published: VASP", ".406", ".372", ".457"],
    ["published: H+Vamp (gated)", ".409", ".376", ".463"],
]


def write_page() -> None:
    """Write the page from the records that exist."""
    records = {r["name"]: r for r in ResultsFile(RESULTS / "ranking.jsonl", ("name",)).records()}
    sections = {
        "netflix": _netflix,
        "people": _people,
        "rated": _rated,
        "tastes": _tastes,
    }
    parts = [_HEAD]
    for name, make in sections.items():
        if name in records:
            related = {key: records[key] for key in ("rivals", "search") if key in records}
            parts.append(make(records[name] | related))
    parts.append(_tuned_baselines())
    PAGE.write_text("\n".join(parts))


def _figure(pair: list[float]) -> str:
    return f"{pair[0]:.4f} ± {pair[1]:.4f}"


def _netflix(found: dict[str, Any]) -> str:
    names = {"cfnade": "**cfnade**", "cfnade: nade": "its CF-NADE alone"}
    names |= {"cfnade: linear": "its EASE component alone"}
    names |= {"cfnade: posterior": "its iALS component alone"}
    names |= {"cfnade: set-nade": "its CF-NADE alone", "cfnade: ease": "its EASE alone"}
    lines = [
        [names.get(name, name), *(_figure(scores[key]) for key in scores)]
        for name, scores in found["scores"].items()
    ]
    lines += _baseline_lines(found.get("rivals"))
    ahead = found["ahead_of"].get("cfnade: ease", found["ahead_of"].get("cfnade: linear"))
    seconds = found["seconds"]
    text = f"## Netflix, Liang's protocol, {found['people']:,} held-out users\n\n"
    text += "Commands: `python -m experiments.ranking netflix`, and `search` and `rivals` for the "
    text += "baselines.\n\n"
    text += f"{describe_machine(found['machine'])} 99.55 % of the ratings; training took "
    text += f"{seconds['reading and training'] / 60:.1f} minutes. The goal, to exceed the best "
    text += "published figures (.409/.376/.463), was missed.\n\n"
    text += markdown_table(["", "NDCG@100", "R@20", "R@50"], lines + _PUBLISHED)
    if ahead:
        text += f"\nThe paired difference from EASE is {_figure(ahead)} NDCG@100.\n"
    return text + _search(found.get("rivals"), found.get("search"))


def _baseline_lines(final: dict[str, Any] | None) -> list[list[str]]:
    """Return the lines of baselines on the same users."""
    if final is None:
        return []
    ials = f"iALS (irspack, {final['ials']['factors']} factors, tuned on a sample)"
    return [
        [ials if name == "iALS" else name, *(_figure(row[key]) for key in row)]
        for name, row in final["scores"].items()
    ]


def _search(final: dict[str, Any] | None, search: dict[str, Any] | None) -> str:
    """Describe the search of iALS and its final fit."""
    if search is None:
        return ""
    text = f"\niALS (irspack), tuned on {search['people']:,} training users and "
    text += f"{search['asked']:,} validation users (NDCG@100):\n\n"
    lines = [
        [*(f"{trial['options'][key]:g}" for key in _IALS), f"{trial['valid']:.4f}"]
        for trial in search["tried"]
    ]
    text += markdown_table(["factors", "unobserved weight", "penalty", "epochs", "NDCG@100"], lines)
    if final is None:
        return text + "\nThe selected setting was not yet fitted to all training users.\n"
    ials = final["ials"]
    text += f"\nThe selected setting ({ials['factors']} factors, {ials['unobserved_weight']:g}, "
    text += f"{ials['regularization']:g}, {ials['epochs']} epochs), fitted to all training users, "
    text += f"took {final['cpu_seconds']['ials'] / 60:.0f} CPU minutes (EASE: "
    text += f"{final['cpu_seconds']['ease'] / 60:.0f}). Its weight in the blend, selected on "
    return text + f"validation, is {final['weight']:g}.\n"


def _people(found: dict[str, Any]) -> str:
    rows = found["rows"]
    names = [*rows[0]["scores"]]
    lines = []
    for name in names:
        ndcg = [row["scores"][name]["ndcg@100"][0] for row in rows]
        recalls = [
            np.mean([row["scores"][name][key][0] for row in rows])
            for key in ("capped_recall@20", "capped_recall@50")
        ]
        gap = _paired([row["ahead_of"][name] for row in rows]) if name != "cfnade" else ""
        mean_ndcg = [f"{np.mean(ndcg):.4f} ± {np.std(ndcg, ddof=1):.4f}"]
        lines.append([name, *mean_ndcg, *(f"{value:.4f}" for value in recalls), gap])
    seeds = ", ".join(str(row["seed"]) for row in rows)
    text = f"## MovieLens 1M, {found['held']} held-out users, {len(rows)} seeds\n\n"
    text += "`python -m experiments.ranking people`\n\n"
    text += f"{describe_machine(found['machine'])} Seeds: {seeds}; ± is the standard deviation "
    text += "over seeds. Options of the baselines were chosen on validation of the first seed. "
    text += (
        "The test part of that seed was used during development, those of the others were not.\n\n"
    )
    head = ["", "NDCG@100", "R@20", "R@50", "cfnade is higher by (paired)"]
    return text + markdown_table(head, lines)


def _paired(gaps: list[list[float]]) -> str:
    """Return the mean of paired differences over seeds, with its standard error over users."""
    mean = np.mean([gap[0] for gap in gaps])
    error = np.sqrt(np.sum([gap[1] ** 2 for gap in gaps])) / len(gaps)
    return f"{mean:+.4f} ± {error:.4f}"


def _rated(found: dict[str, Any]) -> str:
    lines = [
        [RANKED_BY.get(name, name), *(_figure(row[key]) for key in row)]
        for name, row in found["rows"].items()
    ]
    text = "## Rating data: MovieLens 1M, authors:1234\n\n`python -m experiments.ranking rated`\n\n"
    text += f"{describe_machine(found['machine'])} Users with a test rating of at least 4; items "
    text += "rated in training or "
    text += 'validation data are excluded. `CFNADE(side="user", learn_interactions=True)` has a '
    text += (
        f"test RMSE of {found['rmse']:.4f} and took {found['seconds']:.0f} s to train, of which "
    )
    text += f"{found['seconds_of_lists']:.0f} s for the interaction model.\n\n"
    return text + markdown_table(["ranked by", "NDCG@10", "recall@20", "precision@10"], lines)


def _tastes(found: dict[str, Any]) -> str:
    text = "## New users with opposite tastes\n\n`python -m experiments.ranking tastes`\n\n"
    text += f"{describe_machine(found['machine'])} A new user gives five stars to the ten most "
    text += "popular films of a "
    text += (
        "genre of MovieLens 1M. The table shows the share of the top 20 that has the genre, and "
    )
    text += "the number of films that two lists share. No filters are used.\n\n"
    lines = []
    genres: list[str] = []
    for name in ("picked and liked", "picked"):
        fractions, overlaps = found[name]["shares"], found[name]["shared"]
        genres = [*fractions]
        shares = [f"{100 * fraction:.0f} %" for fraction in fractions.values()]
        mean = f"{100 * np.mean(list(fractions.values())):.0f} %"
        shared = f"{np.mean(overlaps):.2f}, at most {max(overlaps)}"
        lines.append([RANKED_BY[name], *shares, mean, shared])
    return text + markdown_table(["ranked by", *genres, "mean", "shared by two lists"], lines)


def _tuned_baselines() -> str:
    records = ResultsFile(RESULTS / "comparison.jsonl").records()
    results = [
        FitResult(name, load_preset(name, "ranking").title, record["split"], record["scores"])
        for record in records
        for name in [record["name"]]
        if record["task"] == "ranking"
    ]
    lines = []
    for row in summarize(results, "ranking"):
        metrics = ("ndcg@100", "capped_recall@20", "capped_recall@50", "fit_cpu_seconds")
        means = [figure.mean for name in metrics if (figure := row.figures[name])]
        lines.append([row.title, *(f"{mean:.4f}" for mean in means[:3]), f"{means[3]:.1f}"])
    text = "## Baselines, tuned on validation\n\n`python -m experiments.ranking compared`\n\n"
    text += "MovieLens 1M, `liang:600`, one thread of a shared AMD EPYC; CPU seconds of the final "
    text += "fit.\n\n"
    return text + markdown_table(["", "NDCG@100", "R@20", "R@50", "CPU s"], lines)
