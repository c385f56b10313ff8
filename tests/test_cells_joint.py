"""Cells of a model of both sides and of an ensemble, against contexts written down one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from cfnade import side_cells
from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.models import CFNADE, Context
from cfnade.models.ensemble import Ensemble
from cfnade.models.joint import JointCFNADE

N_USERS, N_ITEMS, STARS = 7, 6, (0.5, 1.0, 3.0, 4.0)
FloatArray = npt.NDArray[np.float64]
VARIANTS: dict[str, dict[str, Any]] = {
    "shared": {},
    "unshared": {"shared": False},
    "sqrt": {"context_scale": "sqrt", "mean_context": 2.5},
    "deep-factored": {"hidden": (5, 4), "factors": 3},
}


def some_ratings(seed: int = 0) -> Ratings:
    """About half of all cells; user 0 and item 0 have none."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(1 + np.argwhere(rng.random((N_USERS - 1, N_ITEMS - 1)) < 0.7))
    return Ratings(
        users=cells[:, 0].astype(np.int32),
        items=cells[:, 1].astype(np.int32),
        levels=rng.permutation(np.arange(len(cells)) % len(STARS)).astype(np.uint8),
        scale=Scale(STARS),
        user_ids=np.arange(N_USERS),
        item_ids=np.arange(N_ITEMS),
    )


def random_joint(seed: int, **fields: Any) -> JointCFNADE:
    given: dict[str, Any] = {"levels": len(STARS), "hidden": (5,)} | fields
    sides = CFNADE(columns=N_ITEMS, **given), CFNADE(columns=N_USERS, **given)
    model, generator = JointCFNADE(*sides).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    return model


def make_bundle(seed: int = 3, **fields: Any) -> Bundle:
    """User 5 and item 4 have ratings in the context, but training saw none of them."""
    context, model = some_ratings(), random_joint(seed, **fields)
    items, users = (np.zeros((size, len(STARS)), np.int64) for size in (N_ITEMS, N_USERS))
    trained = (context.users != 5) & (context.items != 4)
    np.add.at(items, (context.items[trained], context.levels[trained]), 1)
    np.add.at(users, (context.users[trained], context.levels[trained]), 1)
    return Bundle(model, "both", context, items, row_counts=users)


def side_scores(side: CFNADE, known: list[tuple[int, int]], column: int) -> Tensor:
    columns, levels = (torch.tensor([k[j] for k in known], dtype=torch.int64) for j in (0, 1))
    context = Context(torch.tensor([0, len(known)]), columns, levels)
    return side.scores(side.hidden(context), torch.tensor([0]), torch.tensor([column]))[0]


def one_by_one(bundle: Bundle, user: int, item: int) -> FloatArray:
    """What both sides say; for what training did not see, smoothed logarithms of frequencies."""
    context, model = bundle.context, bundle.model
    assert isinstance(model, JointCFNADE)
    assert bundle.row_counts is not None
    of_user, of_item = [], []
    for u, i, level in zip(context.users, context.items, context.levels, strict=True):
        if u == user and i != item:
            of_user.append((int(i), int(level)))
        if i == item and u != user:
            of_item.append((int(u), int(level)))
    everyone = bundle.column_counts.sum(0) + 1.0
    frequency = torch.from_numpy(everyone / everyone.sum())

    def own(known: list[tuple[int, int]]) -> Tensor:
        counts = 5.0 * frequency.clone()
        for _, level in known:
            counts[level] += 1
        return torch.log(counts / counts.sum())

    if item >= 0 and bundle.column_counts[item].sum() > 0:
        scores = side_scores(model.user, of_user, item)
    else:
        scores = own(of_item)
    if user >= 0 and bundle.row_counts[user].sum() > 0:
        scores = scores + side_scores(model.item, of_item, user)
    else:
        scores = scores + own(of_user) - frequency.log()
    return np.asarray(scores.softmax(0).detach().numpy())


def every_cell() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    users, items = np.meshgrid(np.arange(-1, N_USERS), np.arange(-1, N_ITEMS))
    order = np.random.default_rng(1).permutation(users.size)
    return users.ravel()[order], items.ravel()[order]


@pytest.mark.parametrize("piece", [1 << 23, 40])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_cell_is_what_both_sides_say_without_its_own_rating(
    variant: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_cells, "PIECE", piece)
    bundle, (users, items) = make_bundle(**VARIANTS[variant]), every_cell()
    found = Cells(bundle).probabilities(users, items)
    for at, (user, item) in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
        np.testing.assert_allclose(found[at], one_by_one(bundle, user, item), rtol=1e-9)


def test_the_papers_rule_says_3_wherever_training_saw_nothing() -> None:
    bundle, (users, items) = make_bundle(), every_cell()
    found = Cells(bundle, unseen="paper").probabilities(users, items)
    usual = Cells(bundle).probabilities(users, items)
    assert bundle.row_counts is not None
    new_users = [-1, *np.flatnonzero(bundle.row_counts.sum(1) == 0)]
    new_items = [-1, *np.flatnonzero(bundle.column_counts.sum(1) == 0)]
    assert {-1, 0, 5} <= set(new_users) and {-1, 0, 4} <= set(new_items)  # noqa: PT018
    new = np.isin(users, new_users) | np.isin(items, new_items)
    np.testing.assert_array_equal(found[new], np.tile([0.0, 0.0, 1.0, 0.0], (new.sum(), 1)))
    np.testing.assert_array_equal(found[~new], usual[~new])


def test_unknown_are_users_and_items_of_which_nothing_is_known() -> None:
    users, items = every_cell()
    user, item = Cells(make_bundle()).unknown(users, items)
    # User 5 and item 4 were not trained on, but have ratings in the context.
    np.testing.assert_array_equal(user, np.isin(users, [-1, 0]))
    np.testing.assert_array_equal(item, np.isin(items, [-1, 0]))


def test_known_levels_are_those_of_the_context() -> None:
    bundle, (users, items) = make_bundle(), every_cell()
    context = bundle.context
    cells = zip(context.users.tolist(), context.items.tolist(), strict=True)
    levels = dict(zip(cells, context.levels.tolist(), strict=True))
    wanted = [levels.get(cell, -1) for cell in zip(users.tolist(), items.tolist(), strict=True)]
    assert Cells(bundle).known_levels(users, items).tolist() == wanted


def test_an_ensemble_says_the_mean_of_its_members_distributions() -> None:
    members, (users, items) = [random_joint(seed) for seed in (3, 4, 5)], every_cell()
    bundle = make_bundle()
    whole = replace(bundle, model=Ensemble(members))
    found = Cells(whole).probabilities(users, items)
    single = [Cells(replace(bundle, model=m)).probabilities(users, items) for m in members]
    np.testing.assert_allclose(found, np.mean(single, axis=0), rtol=1e-12)
    assert np.abs(single[0] - single[1]).max() > 0.01


def test_other_weights_can_be_asked_about_the_same_cells() -> None:
    bundle, (users, items) = make_bundle(), every_cell()
    cells, other = Cells(bundle), random_joint(9)
    before = cells.probabilities(users, items)
    again = cells.with_model(other).probabilities(users, items)
    wanted = Cells(replace(bundle, model=other)).probabilities(users, items)
    np.testing.assert_array_equal(again, wanted)
    np.testing.assert_array_equal(cells.probabilities(users, items), before)
