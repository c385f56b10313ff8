"""README.md of a saved model: a model card as the Hugging Face hub shows it.

What is known of the model is written down: data, figures, licence, limits. Its last line holds a
digest of the rest, so that a card that somebody edited is told from one that may be replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfnade.data.array_files import digest_text
from cfnade.data.named import SETS
from cfnade.fitted import FittedModel

CARD = "README.md"
_MARK = "<!-- cfnade card "
_FIGURES = {"rmse": "RMSE", "nll": "negative log-likelihood", "calibration_error": "ECE"}


def write_card(fitted: FittedModel, part: Path, folder: Path) -> None:
    """Write the card into `part`, unless the folder holds one that is not ours alone."""
    if is_ours(folder / CARD):
        (part / CARD).write_text(card(fitted), encoding="utf-8")


def is_ours(path: Path) -> bool:
    """Whether the file may be replaced: it is not there, or as we wrote it."""
    if not path.exists():
        return True
    text, mark, end = path.read_text(encoding="utf-8", errors="replace").rpartition(_MARK)
    return bool(mark) and end.removesuffix(" -->\n") == digest_text(text)


def card(fitted: FittedModel) -> str:
    """The whole text."""
    lines = [*_head(fitted), "", "# A model of cfnade", "", _what(fitted), "", *_use(), ""]
    for name, body in (
        ("Data", _data(fitted)),
        ("Figures", _figures(fitted)),
        ("Licence", _licence(fitted)),
        ("Limits", _limits(fitted)),
    ):
        lines += [f"## {name}", "", *body, ""]
    text = "\n".join(lines)
    return f"{text}{_MARK}{digest_text(text)} -->\n"


def _head(fitted: FittedModel) -> list[str]:
    """What the hub reads: YAML between two lines of dashes."""
    tags = ["recommender-system", "collaborative-filtering", "cf-nade"]
    head = ["---", "library_name: cfnade", "license: other", "license_name: see-below"]
    head += ["tags:", *(f"- {tag}" for tag in tags)]
    valid = _valid(fitted)
    if valid:
        head += ["model-index:", "- name: cfnade", "  results:", "  - task:", "      type: ratings"]
        data = fitted.context.source or "own data"
        head += ["    dataset:", f'      name: "{data}"', "      type: ratings", "    metrics:"]
        for name, words in _finite(valid).items():
            head += [f"    - type: {name}", f"      name: validation {words}"]
            head += [f"      value: {valid[name]:.4f}"]
    return [*head, "---"]


def _finite(valid: dict[str, Any]) -> dict[str, str]:
    """The figures that there are: one that is not finite is None."""
    return {name: words for name, words in _FIGURES.items() if valid[name] is not None}


def _what(fitted: FittedModel) -> str:
    scale, items = fitted.context.scale, fitted.context.n_items
    if fitted.context.implicit:
        return f"It says which of {items:,} items a person picks next, given what they picked."
    kind = f"side `{fitted.side}`, {_counted(len(fitted.answering), 'member')}"
    lists = " It also knows what people pick." if fitted.interaction_model is not None else ""
    return (
        f"It gives the whole distribution of the rating ({scale}) that a person would give an "
        f"item ({kind}).{lists}"
    )


def _use() -> list[str]:
    return [
        "```python",
        "import cfnade",
        "",
        'model = cfnade.CFNADE.load("this folder")',
        'model.recommend(history={"an item id or title": 5})',
        "```",
    ]


def _data(fitted: FittedModel) -> list[str]:
    data, ratings = fitted.facts.get("data", {}), fitted.facts.get("ratings", {})
    parts = ", ".join(f"{count:,} {name}" for name, count in ratings.items() if count)
    lines = [f"- Source: {fitted.context.source or 'not a published set'}"]
    if data:
        lines.append(f"- {data['users']:,} users, {data['items']:,} items; ratings: {parts}")
    if not fitted.has_context:
        return [*lines, "- Nobody's ratings are in this folder."]
    held = f"{len(fitted.context):,} ratings ({fitted.facts.get('context', 'all')})"
    return [*lines, f"- **The folder holds {held}**, with ids: look before you share it."]


def _figures(fitted: FittedModel) -> list[str]:
    valid = _valid(fitted)
    if not valid:
        return ["None were measured."]
    lines = ["| on the validation part | |", "|---|---|"]
    lines += [f"| {words} | {valid[name]:.4f} |" for name, words in _finite(valid).items()]
    lines += [f"| RMSE of plain means, for comparison | {valid['means_rmse']:.4f} |"]
    note = "Epoch and calibration were chosen on this part: a test part says it more honestly."
    return [*lines, "", note]


def _licence(fitted: FittedModel) -> list[str]:
    published = SETS.get(fitted.context.source.split(" ")[0])
    terms = published.terms if published else "those of the data that it was trained on."
    return ["The code is MIT. A model is made of its data, whose terms count:", "", f"> {terms}"]


def _limits(fitted: FittedModel) -> list[str]:
    new = "new people are answered from their ratings" if fitted.takes_histories else ""
    alone = "it answers only for people and items of its data, by others' ratings of an item"
    return [
        f"- It knows the items of its data only; {new or alone}.",
        "- What few people rated is said with little ground: `known_of_item` tells.",
        "- It repeats the tastes, and the gaps, of those who rated.",
    ]


def _valid(fitted: FittedModel) -> dict[str, Any]:
    figures = fitted.facts.get("valid") or {}
    return figures if {*_FIGURES, "means_rmse"} <= {*figures} else {}


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
