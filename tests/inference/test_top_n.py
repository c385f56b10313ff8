"""Lists of many people at once: what each of them gets alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.inference.cases import FOR_PEOPLE, ITEMS, TIMELESS, history_of, make, make_kind

from cfnade.calibration.calibration import Calibration
from cfnade.fitted_model import FittedModel
from cfnade.inference import top_n
from cfnade.inference.predictor import Predictor
from cfnade.kernels.threads import torch_threads

CRITERIA: list[dict[str, Any]] = [
    {},
    {"exclude_seen": False},
    {"min_ratings": 3},
    {"rank_by": "threshold"},
    {"rank_by": "prediction", "personalization": 3.0, "exclude_seen": False},
]


def assert_same(many: pl.DataFrame, alone: list[pl.DataFrame]) -> None:
    """But for rounding, which may only swap items whose scores are as good as equal."""
    one_by_one = pl.concat(alone)
    assert many.columns == one_by_one.columns
    for name in many.columns:
        if name in ("item", "title", "n_item_ratings"):
            continue
        if many[name].dtype == pl.Float64:
            np.testing.assert_allclose(many[name], one_by_one[name], atol=2e-5, err_msg=name)
        else:
            assert many[name].equals(one_by_one[name]), name
    differ = many["item"] != one_by_one["item"]
    assert differ.sum() <= 0.02 * len(many)


@pytest.mark.parametrize("how", CRITERIA)
@pytest.mark.parametrize("kind", TIMELESS)
def test_many_users_get_the_lists_of_each(
    kind: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known ones, one without training, one unknown: in few pieces, many, and one by one."""
    calibration = Calibration(1.3, (), 0.7)
    fitted = replace(make_kind(kind), calibration=calibration)
    shares = ((0.7, 0.2), (0.2, 0.3), (0.1, 0.5)) if len(fitted.members) == 3 else ()
    predictor = Predictor(replace(fitted, member_weights=shares))
    users = [*predictor.users.table.tolist(), 999_999, int(predictor.users.table[0])]
    alone = [predictor.recommend([user], n=4, **how) for user in users]
    for listed, threads in ((1 << 21, 2), (1 << 9, 3), (1, 1)):
        monkeypatch.setattr(top_n, "LISTED", listed)
        with torch_threads(threads):
            many = predictor.recommend(users, n=4, **how)
        assert_same(many, alone)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_many_histories_get_the_lists_of_each(kind: str) -> None:
    predictor = Predictor(make_kind(kind))
    data = predictor.fitted.context
    told = {f"p{n}": history_of(data, n) for n in range(data.n_users)} | {"nobody": {}}
    many = predictor.recommend(histories=told, n=5)
    alone = [predictor.recommend(histories={name: one}, n=5) for name, one in told.items()]
    assert_same(many, alone)


def alike(fitted: FittedModel) -> FittedModel:
    """Every third item has the weights of the first."""
    with torch.no_grad():
        for member in fitted.members:
            network: Any = member.components["user"].network
            network.V[::3], network.b[::3] = network.V[:1].clone(), network.b[:1].clone()
    counts = np.ones_like(fitted.training_counts["item"])
    return replace(fitted, training_counts={"item": counts})


@pytest.mark.parametrize("hidden", [6, 20, 100])
@pytest.mark.parametrize("how", [{}, {"rank_by": "threshold"}])
def test_items_alike_are_listed_by_id_for_many_as_for_one(hidden: int, how: dict[str, Any]) -> None:
    predictor = Predictor(alike(make("user", hidden=(hidden,))))
    users = predictor.users.table.tolist()[:-1]  # of the last one nothing is known
    frame = predictor.recommend(users, n=ITEMS, min_ratings=0, **how)
    same = frame.filter((pl.col("item") - 100) % 3 == 0)
    for _, own in same.group_by("user"):
        assert own["item"].is_sorted()
        assert own["score"].n_unique() == 1


def test_nobody_gets_no_list() -> None:
    frame = Predictor(make("user")).recommend([])
    assert frame.height == 0
    assert frame.columns == Predictor(make("user")).recommend([0]).columns
