"""Predictors of both sides and of ensembles say what Cells say, in every form of question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from cfnade.bundle import Bundle
from cfnade.cells import Cells
from cfnade.data.synthetic import synthetic
from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADE
from cfnade.models.ensemble import Ensemble
from cfnade.models.joint import JointCFNADE
from cfnade.predictor import Predictor
from cfnade.predictor.embeddings import embeddings
from cfnade.training.start import level_counts

USERS, ITEMS, LEVELS = 30, 20, 5
KINDS = ("joint", "ensemble of joints", "ensemble of user", "ensemble of item")
NEW_USER, NEW_ITEM = 4, 7  # they have ratings in the context, but training saw none of them


def random_model(kind: str, seed: int = 0) -> Any:
    if kind.startswith("ensemble of "):
        single = kind.removeprefix("ensemble of ").removesuffix("s")
        return Ensemble([random_model(single, seed) for seed in range(3)])
    fields: dict[str, Any] = {
        "levels": LEVELS,
        "hidden": (6,),
        "context_scale": "sqrt",
        "mean_context": 9.0,
    }
    sides = {
        "user": CFNADE(columns=ITEMS, **fields),
        "item": CFNADE(columns=USERS, **fields),
    }
    model = JointCFNADE(sides["user"], sides["item"]) if kind == "joint" else sides[kind]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return model


def make(kind: str) -> Bundle:
    context = synthetic(USERS, ITEMS, 250, seed=2).ratings
    seen = context.select((context.users != NEW_USER) & (context.items != NEW_ITEM))
    items, users = level_counts(seen.rows("user")), level_counts(seen.rows("item"))
    side: Any = "both" if "joint" in kind else kind.rpartition(" ")[2]
    counts = users if side == "item" else items
    row_counts = users if side == "both" else None
    return Bundle(random_model(kind), side, context, counts, row_counts=row_counts)


@pytest.fixture(scope="module", params=KINDS)
def predictor(request: pytest.FixtureRequest) -> Predictor:
    return Predictor(make(request.param))


def stars(predictor: Predictor, users: Any, items: Any) -> Any:
    values = predictor.scale.array()
    return Cells(predictor.bundle).probabilities(users, items) @ values


def test_cells_asked_one_by_one_and_all_at_once_are_the_same(predictor: Predictor) -> None:
    users, items = (grid.ravel() for grid in np.meshgrid(np.arange(USERS), np.arange(ITEMS)))
    wanted = stars(predictor, users, items)
    context = predictor.bundle.context
    raw_users, raw_items = context.user_ids[users], context.item_ids[items]
    np.testing.assert_allclose(predictor.predict(raw_users, raw_items), wanted, rtol=1e-5)
    for user in range(0, USERS, 3):
        own = users == user
        found = predictor.predict(int(context.user_ids[user]), raw_items[own].tolist())
        np.testing.assert_allclose(found, wanted[own], rtol=1e-5)


def test_unknown_users_and_items_are_what_cells_say(predictor: Predictor) -> None:
    context = predictor.bundle.context
    user, item = context.user_ids[3], context.item_ids[2]
    found = predictor.predict([user, -99, -99], [-99, item, -99])
    wanted = stars(predictor, np.array([3, -1, -1]), np.array([-1, 2, -1]))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("people", [1, 12])  # few are scored one by one, many by torch
def test_lists_hold_what_cells_say(predictor: Predictor, people: int) -> None:
    ids = predictor.bundle.context.user_ids[:people]
    frame = predictor.recommend(ids.tolist(), n=ITEMS, exclude_seen=False, min_ratings=0)
    assert len(frame) == people * ITEMS
    users, items = predictor.users.indices(frame["user"]), predictor.items.indices(frame["item"])
    wanted = stars(predictor, users, items)
    np.testing.assert_allclose(frame["prediction"].to_numpy(), wanted, rtol=1e-5)
    first = frame.filter(frame["user"] == ids[0])["prediction"].to_numpy()
    assert np.all(np.diff(first) <= 1e-7)


HISTORY = {0: 5.0, 3: 1.0, 11: 4.0, NEW_ITEM: 3.0}


def history_of(predictor: Predictor) -> dict[Any, float]:
    ids = predictor.bundle.context.item_ids
    return {int(ids[item]): value for item, value in HISTORY.items()}


def one_new_person(bundle: Bundle, item: int, history: dict[int, float]) -> float:
    """By hand: the user side reads the history, the item side knows only how the person rates."""
    model, values = cast(JointCFNADE, bundle.model), bundle.context.scale.array()
    known = {i: int(np.searchsorted(values, v)) for i, v in history.items() if i != item}
    context = bundle.context.select(np.array([], np.int64))
    row = replace(
        context,
        users=np.zeros(len(known), np.int32),
        items=np.array(list(known), np.int32),
        levels=np.array(list(known.values()), np.uint8),
    )
    user_side = Cells(Bundle(model.user, "user", row, np.ones_like(bundle.column_counts)))
    scores = np.log(user_side.probabilities([0], [item])[0])
    everyone = bundle.column_counts.sum(0) + 1.0
    frequency = everyone / everyone.sum()

    def own(levels: Any) -> Any:
        counts = np.bincount(levels, minlength=LEVELS) + 5.0 * frequency
        return np.log(counts / counts.sum())

    if bundle.column_counts[item].sum() == 0:
        scores = own(bundle.context.levels[bundle.context.items == item])
    scores = scores + own(np.array(list(known.values()), np.int64)) - np.log(frequency)
    chances = np.exp(scores - scores.max())
    return float(chances @ values / chances.sum())


def test_a_new_person_is_read_by_one_side_and_known_by_habit_on_the_other() -> None:
    predictor = Predictor(make("joint"))
    ids, history = predictor.bundle.context.item_ids, history_of(predictor)
    found = predictor.predict("new", ids, histories={"new": history})
    wanted = [one_new_person(predictor.bundle, item, HISTORY) for item in range(ITEMS)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    frame = predictor.recommend(history=history, n=ITEMS, exclude_seen=False, min_ratings=0)
    order = predictor.items.indices(frame["item"])
    np.testing.assert_allclose(frame["prediction"], np.array(wanted)[order], rtol=1e-5)


def test_a_history_is_answered_by_the_mean_of_the_members() -> None:
    for kind in ("ensemble of joints", "ensemble of user"):
        bundle = make(kind)
        whole = Predictor(bundle)
        ids, histories = bundle.context.item_ids, {"new": history_of(whole)}
        each = [
            Predictor(one).predict_proba("new", ids, histories=histories)
            for one in bundle.members()
        ]
        found = whole.predict_proba("new", ids, histories=histories)
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-6)


@pytest.mark.parametrize("item", [5, NEW_ITEM])
@pytest.mark.parametrize("kind", ["joint", "ensemble of joints", "ensemble of user"])
def test_what_an_explanation_leaves_out_is_really_left_out(kind: str, item: int) -> None:
    predictor = Predictor(make(kind))
    raw, history = int(predictor.bundle.context.item_ids[item]), history_of(predictor)
    rest = {i: value for i, value in history.items() if i != raw}
    frame = predictor.explain(item=raw, history=history)
    assert set(frame["item"]) == set(rest)
    prediction = predictor.predict("new", raw, histories={"new": rest})[0]
    np.testing.assert_allclose(frame["prediction"], prediction, rtol=1e-5)
    for line in frame.to_dicts():
        less = {i: value for i, value in rest.items() if i != line["item"]}
        without = predictor.predict("new", raw, histories={"new": less})[0]
        assert line["without"] == pytest.approx(without, rel=1e-5)
        assert line["change"] == pytest.approx(prediction - without, abs=1e-5)


def test_a_known_user_is_explained_with_what_others_said_in_place() -> None:
    """Leave a rating out of the context itself: only the user side may lose it here."""
    bundle = make("joint")
    predictor, context = Predictor(bundle), bundle.context
    user, item = 9, int(np.setdiff1d(np.arange(ITEMS), context.items[context.users == 9])[0])
    ids = context.user_ids, context.item_ids
    frame = predictor.explain(item=int(ids[1][item]), user=int(ids[0][user]))
    assert len(frame) == (context.users == user).sum()
    prediction = stars(predictor, np.array([user]), np.array([item]))[0]
    np.testing.assert_allclose(frame["prediction"], prediction, rtol=1e-5)
    # No rating of this item is the user's, so the item side does not change with them.
    first = predictor.items.index(frame["item"][0])
    less = context.select(~((context.users == user) & (context.items == first)))
    without = Cells(replace(bundle, context=less)).probabilities([user], [item])[0]
    assert frame["without"][0] == pytest.approx(without @ predictor.scale.array(), rel=1e-5)


def test_levels_of_an_item_based_ensemble_are_explained_by_the_mean() -> None:
    bundle = make("ensemble of item")
    user, item = int(bundle.context.user_ids[2]), int(bundle.context.item_ids[3])
    whole = Predictor(bundle).explain(item=item, user=user).sort("rating")
    each = [Predictor(one).explain(item=item, user=user).sort("rating") for one in bundle.members()]
    for name in ("prediction", "without", "change", "mean_change"):
        mean = np.mean([one[name].to_numpy() for one in each], axis=0)
        np.testing.assert_allclose(whole[name], mean, rtol=1e-6, atol=1e-9)
    assert whole["count"].to_list() == each[0]["count"].to_list()


@pytest.mark.parametrize("kind", ["joint", "ensemble of joints"])
def test_embeddings_are_the_states_of_each_side(kind: str) -> None:
    bundle = make(kind)
    joint = bundle.members()[0].model
    assert isinstance(joint, JointCFNADE)
    for side, model in (("user", joint.user), ("item", joint.item)):
        frame = embeddings(bundle, cast(Any, side))
        row = bundle.context.rows(cast(Any, side))
        part = slice(row.offsets[3], row.offsets[4])
        columns, levels = (
            torch.from_numpy(array[part].astype(np.int64)) for array in (row.columns, row.levels)
        )
        wanted = model.hidden(Context(torch.tensor([0, len(columns)]), columns, levels))[0]
        np.testing.assert_allclose(frame["vector"][3].to_numpy(), wanted.detach(), rtol=1e-4)
