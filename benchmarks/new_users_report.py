"""The section of docs/new_users.md about new users, made from a run: no figure is typed by hand."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.new_users_panel import FEWEST, GIVEN, MOST

BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"


def write_section(page: Path, text: str) -> None:
    """Replace what stands between the marks, or put it at the page's end."""
    old = page.read_text()
    before, found, rest = old.partition(BEGIN)
    after = rest.partition(END)[2] if found else "\n"
    page.write_text(f"{before if found else old + chr(10)}{BEGIN}\n{text}{END}{after}")


def section(found: dict[str, Any]) -> str:
    """How good the answers are, and how that was measured."""
    head = [f"RMSE, {g} given" for g in GIVEN] + [f"NLL, {g}" for g in GIVEN]
    lines = _lines(found["methods"])
    parts = [
        "## How good the answers are",
        _filled(_protocol(found)),
        _table(["", *head, "fit, s", "ms a person"], lines),
        "cfnade's RMSE less a rival's, from 1 to 20 given (± the standard error over people):",
        _gaps(found["gaps"]),
        _filled(_rivals(found)),
        _filled(_origin(found)),
        f"    python benchmarks/new_users.py {found['command']}",
    ]
    return "\n\n".join(parts) + "\n"


def _protocol(found: dict[str, Any]) -> str:
    return (
        f"{found['data']}, split `{found['split']}`: {found['held_out']:,} users are held out "
        f"whole, a tenth of those with more than {MOST} ratings. {MOST} ratings of each are given "
        "in a fixed random order and all others are asked: the same ones, however many are given. "
        f"Only the {found['scored']:,} users with {FEWEST} ratings or more are scored, on "
        f"{found['asked']:,} ratings. The model was trained once, on the other users (recipe "
        f"`{found['recipe']}`, 5 % of their ratings for validation), and answers each person in "
        "one pass."
    )


def _lines(methods: list[dict[str, Any]]) -> list[list[str]]:
    """A line a method; the best figure of a column is bold."""
    figures = [[f"{value:.4f}" for value in one["rmse"] + one["nll"]] for one in methods]
    best = [min(column, key=float) for column in zip(*figures, strict=True)]
    lines = []
    for one, line in zip(methods, figures, strict=True):
        marked = [f"**{x}**" if x == low else x for x, low in zip(line, best, strict=True)]
        times = [f"{one['fit_s']:.2g}", f"{one['user_ms']:.2g}"]
        lines.append([one["method"], *marked, *times])
    return lines


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _gaps(gaps: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        f"- {name}: " + ", ".join(f"{gap['rmse']:+.4f} ± {gap['error']:.4f}" for gap in of_name)
        for name, of_name in gaps.items()
    ]
    return "\n".join(lines)


def _rivals(found: dict[str, Any]) -> str:
    chosen = {one["method"]: one.get("chosen") for one in found["methods"]}
    pairs = "; ".join(f"{item:g} and {user:g}" for item, user in chosen["shrunken means"])
    als = chosen.get("LensKit ALS, fold-in")
    return (
        f"The rivals' settings were chosen on {found['tried']:,} of the training users, held out "
        "in the same way, for each number of given ratings separately; ours is one model. Shrunken "
        "means are the mean, the item's offset and the person's offset, both shrunken by imagined "
        f"ratings (chosen for item and person: {pairs}). {_als(als)} Rivals' predictions are "
        "clipped to the scale. They are numbers, not distributions: their NLL is that of a "
        "Gaussian around the number, cut into levels, with width and our calibration fitted on the "
        "same training users. The global mean's NLL is that of the training ratings' frequencies. "
        "Our calibration was fitted as always, on validation ratings of the training users, asked "
        "from few and from all of their ratings."
    )


def _als(chosen: list[dict[str, Any]] | None) -> str:
    if chosen is None:
        return "LensKit's ALS was not run."
    settings = "; ".join(
        f"{one['embedding_size']} and {_plain(one['regularization'])}" for one in chosen
    )
    return (
        "LensKit 2025.8.1 is `BiasedMFScorer`, asked with `history_items` and no user id (chosen "
        f"embedding size and regularisation: {settings}); its seconds are those of one fit."
    )


def _plain(regularisation: Any) -> str:
    if isinstance(regularisation, dict):
        return ", ".join(f"{value:g} ({side}s)" for side, value in regularisation.items())
    return f"{regularisation:g}"


def _origin(found: dict[str, Any]) -> str:
    at = found["machine"]
    changes = " with uncommitted changes" if at["uncommitted"] else ""
    return (
        f"One split, one training. {at['cpu']}, {at['threads']} threads of {at['cores']} cores, "
        f"load {at['load']} at the start, {at['date'][:10]}, commit {at['commit']}{changes}. To "
        "measure again (the script says how to install LensKit):"
    )


def _filled(text: str) -> str:
    return fill(text, 100, break_long_words=False, break_on_hyphens=False)
