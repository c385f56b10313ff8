"""Where training starts: a model of the data's sizes, random weights, biases from the ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import torch

from cfnade.bundle import Bundle, Sides
from cfnade.data.ratings import Ratings, Side
from cfnade.data.rows import Rows
from cfnade.data.when import FEATURES
from cfnade.errors import TrainingError
from cfnade.models.cfnade import CFNADE
from cfnade.models.joint import JointCFNADE
from cfnade.training.settings import Settings

_BY_COLUMN = ("W", "V", "A", "P", "b")


@overload
def new_model(
    ratings: Ratings,
    side: Side,
    fields: Mapping[str, Any],
    settings: Settings,
    start: Bundle | None = None,
) -> CFNADE: ...
@overload
def new_model(
    ratings: Ratings,
    side: Literal["both"],
    fields: Mapping[str, Any],
    settings: Settings,
    start: Bundle | None = None,
) -> JointCFNADE: ...
def new_model(
    ratings: Ratings,
    side: Sides,
    fields: Mapping[str, Any],
    settings: Settings,
    start: Bundle | None = None,
) -> CFNADE | JointCFNADE:
    """A model for these ratings with its start values."""
    generator = torch.Generator().manual_seed(settings.seed)
    model: CFNADE | JointCFNADE
    if side == "both":
        by_user, by_item = ratings.rows("user"), ratings.rows("item")
        features = len(FEATURES) if fields.get("time") else 0
        model = JointCFNADE(_sized(by_user, fields), _sized(by_item, fields), features)
        model.initialise(generator)
        counts = [torch.from_numpy(level_counts(rows)) for rows in (by_user, by_item)]
        model.initialise_biases(*counts, smoothing=settings.smoothing)
        for one, seen in zip((model.user, model.item), counts, strict=True):
            _silence(one, seen.sum(1) == 0)
    else:
        rows = ratings.rows(side)
        model = _sized(rows, fields)
        model.initialise(generator)
        model.initialise_biases(torch.from_numpy(level_counts(rows)), smoothing=settings.smoothing)
    if start is not None:
        _take_over(model, start, ratings, side)
    return model


def _silence(side: CFNADE, unseen: torch.Tensor) -> None:
    """A column without training ratings says nothing, where it would say its random start."""
    with torch.no_grad():
        side.input_table[unseen] = 0.0
        side.output_table[unseen] = 0.0


def _sized(rows: Rows, fields: Mapping[str, Any]) -> CFNADE:
    """A one-sided model for these rows, without start values."""
    sizes: dict[str, Any] = {"columns": rows.n_columns, "levels": rows.n_levels}
    if fields.get("context_scale") == "sqrt" and fields.get("mean_context") is None:
        sizes["mean_context"] = rows.n_ratings / max(1, int((rows.counts() > 0).sum()))
    own = {name: value for name, value in fields.items() if name != "time"}
    return CFNADE(**{**own, **sizes})


def level_counts(rows: Rows) -> npt.NDArray[np.int64]:
    """How many ratings each column has at each level. Returns (M, K)."""
    cells = rows.columns.astype(np.int64) * rows.n_levels + rows.levels
    counts = np.bincount(cells, minlength=rows.n_columns * rows.n_levels)
    return counts.reshape(rows.n_columns, rows.n_levels)


# -- weights of an earlier model ------------------------------------------------------------------


def _take_over(model: CFNADE | JointCFNADE, start: Bundle, ratings: Ratings, side: Sides) -> None:
    """Weights of an earlier model: all dense ones, and those of the columns that it knows."""
    if start.side != side or start.context.scale != ratings.scale:
        what = "side" if start.side != side else "scale"
        raise TrainingError(f"the earlier model cannot be continued: its {what} differs")
    if start.n_members > 1:
        raise TrainingError(
            f"the earlier model cannot be continued: it is the mean of {start.n_members} models"
        )
    tables = {
        "user": (ratings.item_ids, start.context.item_ids),
        "item": (ratings.user_ids, start.context.user_ids),
    }
    for view in start.sides():
        own = getattr(model, view.side) if isinstance(model, JointCFNADE) else model
        _take_side(own, view.one_sided_model, *tables[view.side])


def _take_side(
    model: CFNADE, earlier: CFNADE, ids: npt.NDArray[Any], old_ids: npt.NDArray[Any]
) -> None:
    same = ("levels", "hidden", "factors", "shared", "activation")
    differ = [n for n in same if getattr(earlier.config, n) != getattr(model.config, n)]
    if differ:
        raise TrainingError(
            f"the earlier model cannot be continued: its {', '.join(differ)} differs"
        )
    place = {raw: i for i, raw in enumerate(old_ids.tolist())}
    pairs = [(i, place[raw]) for i, raw in enumerate(ids.tolist()) if raw in place]
    new, old = (torch.tensor([pair[i] for pair in pairs], dtype=torch.long) for i in (0, 1))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            source = earlier.get_parameter(name)
            if name in _BY_COLUMN:
                weight[new] = source[old]
            else:
                weight.copy_(source)
