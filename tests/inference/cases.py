"""A small model of every kind with random weights, and what plain torch says of its cells.

User 4 and item 7 have ratings in the context, but training saw none of them; the last user and the
last item are in the id tables only.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from tests.folded import Cell, frequencies, side_scores, unknown
from tests.support.raw_tables import raw_table

from cfnade.calibration.calibration import Calibration
from cfnade.components import Member
from cfnade.components.optimizers import member_network
from cfnade.components.registry import component_names, new_member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.validate import build
from cfnade.estimator import CFNADE
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.results import TopN

FloatArray = npt.NDArray[np.float64]
Cells = Mapping[tuple[int, int], int]
"""Levels by user and item; user -1 is somebody new."""

KINDS: dict[str, dict[str, Any]] = {
    "user": {},
    "user-factored-unshared": {"factors": 3, "shared": False},
    "user-deep-factored-sqrt": {"hidden": (6, 5, 4), "factors": 3, "context_scale": "sqrt"},
    "user-seeds": {"seeds": 3},
    "user-ridge": {"ridge": 3},
    "item": {"side": "item"},
    "item-deep-unshared": {"side": "item", "hidden": (6, 5), "shared": False, "activation": "relu"},
    "item-seeds": {"side": "item", "seeds": 3},
    "both": {"side": "both"},
    "both-seeds-sqrt": {"side": "both", "seeds": 2, "context_scale": "sqrt"},
    "both-time": {"side": "both", "time": True},
}
TIMELESS = [kind for kind in KINDS if "time" not in kind]
FOR_PEOPLE = [kind for kind in TIMELESS if not kind.startswith("item")]
"""Kinds that make lists, and those of them that take histories."""

USERS, ITEMS = 9, 14
UNTRAINED_USER, UNTRAINED_ITEM = 4, 7
NEW_USER, NEW_ITEM = 8, 13
NOW = 50
"""When cells of a model that knows time are asked for."""


def ratings(*, texts: bool = False) -> Dataset:
    """70 ratings in half stars."""
    rng = np.random.default_rng(3)
    users, items = np.divmod(rng.choice((USERS - 1) * (ITEMS - 1), 70, replace=False), ITEMS - 1)
    users, items = np.append(users, NEW_USER), np.append(items, NEW_ITEM)
    values = rng.integers(1, 11, 71) / 2
    names = {i: f"Film {i}" for i in range(ITEMS - 1)}
    whole = build(
        raw_table(
            users=pl.Series([f"u{u}" for u in users]) if texts else users * 10,
            items=pl.Series([f"i{i:02d}" for i in items]) if texts else items + 100,
            ratings=values,
            times=np.arange(71),
            titles={(f"i{i:02d}" if texts else i + 100): t for i, t in names.items()},
        ),
        LoadOptions(scale="0.5-5/0.5"),
    )
    return whole.select(np.arange(70))


def make(
    side: str = "user",
    *,
    data: Dataset | None = None,
    seed: int = 0,
    seeds: int = 1,
    time: bool = False,
    **fields: Any,
) -> FittedModel:
    """A model of that side, with so many members."""
    context = ratings() if data is None else data
    trained = context.select((context.users != UNTRAINED_USER) & (context.items != UNTRAINED_ITEM))
    names = component_names(side, ridge=fields.get("ridge", 0), time=time)
    fields = {"hidden": (6,)} | fields
    members = [new_member(names, trained, fields, TrainingConfig()) for _ in range(seeds)]
    generator = torch.Generator().manual_seed(seed)
    for member in members:
        _fill(member, generator)
    counts = count_training_ratings(members[0].axes, trained)
    return FittedModel(tuple(members), side, context, counts, calibration=Calibration(1.3))


def make_kind(kind: str, **more: Any) -> FittedModel:
    """One of KINDS."""
    return make(**(KINDS[kind] | more))


@torch.no_grad()
def _fill(member: Member, generator: torch.Generator) -> None:
    for parameter in member_network(member).parameters():
        parameter.normal_(0.0, 0.4, generator=generator)


def estimator(fitted: FittedModel) -> CFNADE:
    """The public estimator of a model."""
    return CFNADE()._set_model(fitted)


def top_n_of(model: CFNADE, user: Any = None, *, history: Any = None, **options: Any) -> TopN:
    """The list of one user as arrays, as the service gets it."""
    predictor = model.predictor_
    users = predictor.resolve_user(user, history=history)
    return predictor.recommend(users, RankingOptions(**options))


def history_of(data: Dataset, user: int) -> dict[Any, float]:
    """All that a user rated, as raw ids and stars."""
    mine = data.users == user
    raw = data.item_ids[data.items[mine]].tolist()
    return dict(zip(raw, data.values[mine].tolist(), strict=True))


# -- what plain torch says -------------------------------------------------------------------------


def known_cells(data: Dataset) -> dict[tuple[int, int], int]:
    """The ratings of a context."""
    cells = zip(data.users.tolist(), data.items.tolist(), strict=True)
    return dict(zip(cells, data.levels.tolist(), strict=True))


def literal(
    fitted: FittedModel, user: int, item: int, cells: Cells | None = None, *, time: int = NOW
) -> FloatArray:
    """The distribution of one cell, not calibrated: members and sides one after another. (K,)."""
    cells = known_cells(fitted.context) if cells is None else cells
    if unknown(fitted, Cell(user, item), cells):
        return frequencies(fitted, Cell(user, item))
    members = []
    for member in fitted.members:
        total = np.zeros(len(fitted.context.scale))
        for number in range(len(member.components)):
            total += _side_scores(fitted, member, number, Cell(user, item), cells, time)
        weights = np.exp(total - total.max())
        members.append(weights / weights.sum())
    return np.asarray(np.mean(members, axis=0))


def _side_scores(
    fitted: FittedModel, member: Member, number: int, cell: Cell, cells: Cells, time: int
) -> FloatArray:
    """What one side says: given its row without the cell, or of what it has no weights for."""
    side = list(member.components.values())[number]
    if side.axis is not None:
        return side_scores(fitted, member, number, cell, cells)
    moment: Any = side
    features = moment.features.features([cell.user], [cell.item], [time])
    with torch.no_grad():
        scores = deepcopy(side.network).double()(torch.from_numpy(features).double())
    return np.asarray(scores[0].numpy())
