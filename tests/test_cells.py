"""Cells of a bundle, against the plain model and contexts written down rating by rating."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from cfnade import side_cells as module
from cfnade.bundle import Bundle
from cfnade.cells import Cells, cell_probabilities
from cfnade.data.ratings import Ratings, Side
from cfnade.data.scale import Scale
from cfnade.errors import PredictionError
from cfnade.models import CFNADE, Context
from cfnade.models.unseen import unseen_rule

N_USERS, N_ITEMS, STARS = 7, 6, (0.5, 1.0, 3.0, 4.0)
FloatArray = npt.NDArray[np.float64]

VARIANTS: dict[str, dict[str, Any]] = {
    "unshared": {"shared": False},
    "shared": {},
    "factored": {"factors": 3},
    "deep": {"hidden": (5, 4)},
    "deep-factored": {"hidden": (5, 4), "factors": 3, "shared": False},
    "sqrt": {"context_scale": "sqrt", "mean_context": 2.5},
}


def some_ratings(seed: int = 0) -> Ratings:
    """About half of all cells, in random order; user 0 and item 0 have none."""
    rng = np.random.default_rng(seed)
    cells = 1 + np.argwhere(rng.random((N_USERS - 1, N_ITEMS - 1)) < 0.5)
    cells = rng.permutation(cells)
    return Ratings(
        users=cells[:, 0].astype(np.int32),
        items=cells[:, 1].astype(np.int32),
        levels=rng.permutation(np.arange(len(cells)) % len(STARS)).astype(np.uint8),
        scale=Scale(STARS),
        user_ids=np.arange(N_USERS) * 10,
        item_ids=np.arange(N_ITEMS) + 100,
    )


def make_bundle(side: Side, **fields: Any) -> Bundle:
    """A float64 model with random parameters of order one."""
    context = some_ratings()
    columns = N_ITEMS if side == "user" else N_USERS
    model = CFNADE(**{"columns": columns, "levels": len(STARS), "hidden": (5,), **fields}).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    rows = context.rows(side)
    counts = np.zeros((columns, len(STARS)), np.int64)
    np.add.at(counts, (rows.columns, rows.levels), 1)
    return Bundle(model, side, context, counts)


def one_by_one(bundle: Bundle, user: int, item: int) -> FloatArray:
    """The plain model on a context made by a loop, without the cell itself; then the rule."""
    context, by_user = bundle.context, bundle.side == "user"
    row, column = (user, item) if by_user else (item, user)
    known = []
    for u, i, level in zip(context.users, context.items, context.levels, strict=True):
        r, c = (int(u), int(i)) if by_user else (int(i), int(u))
        if r == row and c != column:
            known.append((c, int(level)))
    offsets = torch.tensor([0, len(known)])
    columns, levels = (torch.tensor([k[j] for k in known], dtype=torch.int64) for j in (0, 1))
    target = torch.tensor([max(column, 0)])
    predicted = bundle.one_sided_model.predict(
        Context(offsets, columns, levels), torch.tensor([0]), target, STARS
    )
    counts = torch.from_numpy(bundle.column_counts)
    unseen = torch.tensor([column < 0 or int(counts[column].sum()) == 0])
    rule = unseen_rule("mean", counts=counts.sum(0), values=STARS)
    found = rule.apply(predicted, unseen_column=unseen, unseen_row=torch.tensor([False]))
    answer: FloatArray = found.probabilities[0].detach().numpy()
    return answer


def every_cell() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All cells, with unknown users and items (-1), in random order, some of them twice."""
    users, items = np.meshgrid(np.arange(-1, N_USERS), np.arange(-1, N_ITEMS))
    order = np.random.default_rng(1).permutation(users.size)
    order = np.concatenate([order, order[:9]])
    return users.ravel()[order], items.ravel()[order]


@pytest.mark.parametrize("piece", [1 << 23, 40])
@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_cell_is_what_the_plain_model_says(
    side: Side, variant: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE", piece)  # 40 numbers: a few cells at a time
    bundle = make_bundle(side, **VARIANTS[variant])
    users, items = every_cell()
    found = cell_probabilities(bundle, users, items)
    expected = [one_by_one(bundle, u, i) for u, i in zip(users, items, strict=True)]
    assert found.dtype == np.float64
    assert found == pytest.approx(np.array(expected), abs=1e-12)
    assert found.sum(1) == pytest.approx(np.ones(len(users)), abs=1e-14)


@pytest.mark.parametrize("side", ["user", "item"])
def test_a_cell_s_own_rating_changes_nothing(side: Side) -> None:
    bundle = make_bundle(side)
    context = bundle.context
    before = cell_probabilities(bundle, context.users, context.items)
    for place in range(len(context)):
        levels = context.levels.copy()
        levels[place] = (levels[place] + 1) % len(STARS)
        changed = replace(bundle, context=replace(context, levels=levels))
        after = cell_probabilities(changed, context.users, context.items)
        assert after[place] == pytest.approx(before[place], abs=1e-12)
        row = context.users if side == "user" else context.items
        others = (row == row[place]) & (np.arange(len(context)) != place)
        assert (np.abs(after - before)[others].max(axis=1) > 1e-6).all()
        assert np.array_equal(after[row != row[place]], before[row != row[place]])


@pytest.mark.parametrize("side", ["user", "item"])
def test_what_is_left_of_a_lone_rating_is_an_empty_row(side: Side) -> None:
    bundle = make_bundle(side)
    alone = replace(bundle, context=bundle.context.select(np.array([0])))
    cell = bundle.context.users[:1], bundle.context.items[:1]
    empty = replace(bundle, context=bundle.context.select(np.array([], np.int64)))
    assert np.array_equal(cell_probabilities(alone, *cell), cell_probabilities(empty, *cell))


@pytest.mark.parametrize("side", ["user", "item"])
def test_known_levels_are_looked_up(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 40)
    bundle = make_bundle(side)
    context = bundle.context
    table = {
        (int(u), int(i)): int(level)
        for u, i, level in zip(context.users, context.items, context.levels, strict=True)
    }
    users, items = every_cell()
    found = Cells(bundle).known_levels(users, items)
    assert found.tolist() == [table.get((u, i), -1) for u, i in zip(users, items, strict=True)]
    assert set(found.tolist()) == {-1, 0, 1, 2, 3}


def test_single_precision_is_close_to_double() -> None:
    bundle = make_bundle("item")
    users, items = every_cell()
    exact = cell_probabilities(bundle, users, items)
    single = replace(bundle, model=bundle.model.float())
    assert cell_probabilities(single, users, items) == pytest.approx(exact, abs=2e-5)


def test_nothing_asked_nothing_answered() -> None:
    assert cell_probabilities(make_bundle("user"), [], []).shape == (0, len(STARS))


def test_without_context_only_unknown_rows_can_be_asked_for() -> None:
    bundle = make_bundle("user")
    bare = replace(
        bundle,
        context=replace(bundle.context.select(np.array([], np.int64)), user_ids=np.arange(0)),
        has_context=False,
    )
    expected = cell_probabilities(bundle, [-1, -1], [0, 3])
    assert np.array_equal(cell_probabilities(bare, [-1, -1], [0, 3]), expected)
    kept = replace(bare, context=replace(bare.context, user_ids=bundle.context.user_ids))
    with pytest.raises(PredictionError, match=r"saved without its context.*of the users"):
        cell_probabilities(kept, [0], [0])


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        ([0, 7], [0, 0], r"users contains 7; it must lie in 0\.\.6, or be -1"),
        ([0], [-2], r"items contains -2; it must lie in 0\.\.5"),
        ([0, 1], [0], "2 users and 1 items"),
        ([0.5], [0], "users have dtype float64"),
        ([[0]], [0], r"users have dtype int64 and shape \(1, 1\)"),
    ],
)
def test_unusable_cells_are_refused(users: Any, items: Any, message: str) -> None:
    with pytest.raises(PredictionError, match=message):
        cell_probabilities(make_bundle("user"), users, items)


@pytest.mark.parametrize("side", ["user", "item"])
def test_the_papers_rule_is_three_stars_where_training_saw_nothing(side: Any) -> None:
    bundle = make_bundle(side)
    whole = replace(
        bundle, context=replace(bundle.context, scale=Scale(tuple(range(1, len(STARS) + 1))))
    )
    cells = Cells(whole, unseen="paper")
    found, usual = cells.probabilities(*every_cell()), Cells(whole).probabilities(*every_cell())
    ruled = found.max(1) == 1.0
    assert 0 < ruled.sum() < len(ruled)
    assert np.array_equal(found[~ruled], usual[~ruled])
    for users, items in (([-1], [0]), ([0], [-1])):
        assert cells.probabilities(users, items) @ whole.context.scale.array() == 3.0
