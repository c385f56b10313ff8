"""The README.md of a saved model: a model card in the format of the Hugging Face hub.

Its last line holds a digest of the rest, so that an edited card is recognized and not replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cfnade.data.datasets import DATASETS
from cfnade.fitted_model import FittedModel
from cfnade.utils.safetensors_io import digest_text
from cfnade.utils.text import count_of

CARD = "README.md"
_MARK = "<!-- cfnade card "
_METRICS = {"rmse": "RMSE", "nll": "negative log-likelihood", "calibration_error": "ECE"}
_BASELINE = "means_rmse"
_TEMPLATE = """---
library_name: cfnade
license: other
license_name: see-below
tags:
- recommender-system
- collaborative-filtering
- cf-nade
{results}---

# A model of cfnade

{summary}

```python
import cfnade

model = cfnade.CFNADE.load("this folder")
model.recommend(history={{"an item id or title": 5}})
```

## Data

{data}

## Metrics

{metrics}

## License

The code is MIT-licensed. The model is derived from its data, whose terms apply:

> {terms}

## Limitations

- It knows only the items of its data; {new_users}.
- Predictions for items with few ratings are uncertain; `n_item_ratings` is their number of ratings.
- It reproduces the preferences of the users in its data, and what these data lack.

"""


def write_model_card(model: FittedModel, part: Path, folder: Path) -> None:
    """Write the card into `part`, unless `folder` holds an edited one."""
    if is_replaceable(folder / CARD):
        (part / CARD).write_text(render(model), encoding="utf-8")


def is_replaceable(path: Path) -> bool:
    """Return whether there is no card or an unedited one."""
    if not path.exists():
        return True
    text, mark, end = path.read_text(encoding="utf-8", errors="replace").rpartition(_MARK)
    return bool(mark) and end.removesuffix(" -->\n") == digest_text(text)


def render(model: FittedModel) -> str:
    """Return the text of the card."""
    printable = (char if char.isprintable() else " " for char in model.context.source)
    source = " ".join("".join(printable).split())
    valid = model.metadata.get("valid") or {}
    measured = (name for name in (*_METRICS, _BASELINE) if valid.get(name) is not None)
    metrics = {name: float(valid[name]) for name in measured}  # None stands for NaN
    published = DATASETS.get(source.split(" ")[0])
    text = _TEMPLATE.format(
        results=_model_index(source, metrics),
        summary=_summary(model),
        data="\n".join(_data(model, source)),
        metrics="\n".join(_metrics(metrics)),
        terms=published.terms if published else "those of the data that it was trained on.",
        new_users="new users need ratings"
        if model.takes_histories
        else "it predicts only for users and items of its data",
    )
    return f"{text}{_MARK}{digest_text(text)} -->\n"


def _model_index(source: str, metrics: Mapping[str, float]) -> str:
    """Return the YAML of the results, or nothing; JSON is YAML."""
    figures = [
        {"type": name, "name": f"validation {words}", "value": round(metrics[name], 4)}
        for name, words in _METRICS.items()
        if name in metrics
    ]
    dataset = {"name": source or "own data", "type": "ratings"}
    result = {"task": {"type": "ratings"}, "dataset": dataset, "metrics": figures}
    index = json.dumps([{"name": "cfnade", "results": [result]}], ensure_ascii=False)
    return f"model-index: {index}\n" if figures else ""


def _summary(model: FittedModel) -> str:
    scale, n_items, n_members = model.context.scale, model.context.n_items, len(model.members)
    if model.context.implicit:
        return (
            f"It predicts which of {n_items:,} items a user interacts with next, from the user's "
            "interactions."
        )
    lists = " It also predicts interactions." if model.interaction_model is not None else ""
    return (
        f"It predicts the distribution of the rating ({scale}) that a user gives an item (side "
        f"`{model.side}`, {count_of(n_members, 'member')}).{lists}"
    )


def _data(model: FittedModel, source: str) -> list[str]:
    data, ratings = model.metadata.get("data", {}), model.metadata.get("ratings", {})
    parts = ", ".join(f"{count:,} {name}" for name, count in ratings.items() if count)
    lines = [f"- Source: {source or 'not a published data set'}"]
    if data:
        lines.append(f"- {data['users']:,} users, {data['items']:,} items; ratings: {parts}")
    if not model.has_context:
        return [*lines, "- The folder contains no ratings."]
    content = f"{len(model.context):,} ratings ({model.metadata.get('context', 'all')})"
    return [*lines, f"- **The folder contains {content}** with ids: check before you share it."]


def _metrics(metrics: Mapping[str, float]) -> list[str]:
    if not metrics:
        return ["None were measured."]
    names = _METRICS | {_BASELINE: "RMSE of a baseline of means"}
    lines = ["| on the validation part | |", "|---|---|"]
    lines += [f"| {names[name]} | {value:.4f} |" for name, value in metrics.items()]
    note = "Epoch and calibration were selected on this part; a test part gives unbiased values."
    return [*lines, "", note]
