"""The Predictor against the plain torch model, asked cell by cell with contexts built by hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.predictor.given import (
    ITEMS,
    NEW_ITEM,
    NEW_USER,
    SIDES,
    USERS,
    VARIANTS,
    FloatArray,
    history_of,
    make,
    ratings,
)

from cfnade.bundle import Bundle
from cfnade.checkpoint import save, without_context
from cfnade.data.ratings import Ratings, Side
from cfnade.errors import PredictionError
from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADE
from cfnade.predictor import Predictor

# -- an independent answer -------------------------------------------------------------------------


def known_cells(data: Ratings) -> dict[tuple[int, int], int]:
    cells = zip(data.users.tolist(), data.items.tolist(), strict=True)
    return dict(zip(cells, data.levels.tolist(), strict=True))


def literal(
    bundle: Bundle, user: int, item: int, known: dict[tuple[int, int], int] | None = None
) -> FloatArray:
    """Raw probabilities of one cell: a context without it, plain torch in float64."""
    known = known_cells(bundle.context) if known is None else known
    if bundle.side == "user":
        row, column = user, item
        context = {i: k for (u, i), k in known.items() if u == user and i != item}
    else:
        row, column = item, user
        context = {u: k for (u, i), k in known.items() if i == item and u != user}
    counts = bundle.column_counts
    if column < 0 or counts[column].sum() == 0:
        return np.asarray(counts.sum(0) / counts.sum())
    if row < 0:
        context = {}
    model = CFNADE.from_config(bundle.one_sided_model.config).double()
    model.load_state_dict(bundle.model.state_dict())
    ends = torch.tensor([0, len(context)])
    batch = Context(ends, torch.tensor(list(context), dtype=torch.long), _long(context.values()))
    with torch.no_grad():
        said = model.predict(
            batch, torch.tensor([0]), torch.tensor([column]), bundle.context.scale.values
        )
    return said.probabilities[0].numpy()


def _long(values: Any) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.long)


def literal_table(bundle: Bundle) -> FloatArray:
    """Raw probabilities of all cells. Returns (users, items, K)."""
    cells = [[literal(bundle, u, i) for i in range(ITEMS)] for u in range(USERS)]
    return np.array(cells)


def pairs(data: Ratings) -> tuple[list[Any], list[Any]]:
    users, items = data.user_ids.tolist(), data.item_ids.tolist()
    return [u for u in users for _ in items], items * len(users)


# -- given cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_cell_is_what_the_model_says_without_that_cell(side: Side, variant: str) -> None:
    bundle = make(side, **VARIANTS[variant])
    values = bundle.context.scale.array()
    raw = literal_table(bundle).reshape(USERS * ITEMS, -1)
    predictor = Predictor(bundle)
    users, items = pairs(bundle.context)
    assert bundle.calibration is not None
    expected = bundle.calibration.apply(raw, values)
    np.testing.assert_allclose(predictor.predict_proba(users, items), expected, atol=2e-6)
    np.testing.assert_allclose(predictor.predict(users, items), raw @ values, atol=1e-5)
    plain = Predictor(replace(bundle, calibration=None))
    np.testing.assert_allclose(plain.predict_proba(users, items), raw, atol=2e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_history_says_the_same_as_a_known_user_who_gave_it(variant: str) -> None:
    bundle = make("user", **VARIANTS[variant])
    predictor = Predictor(bundle)
    items = bundle.context.item_ids
    for user in (0, 3, NEW_USER):
        history = history_of(bundle.context, user)
        raw_id = int(bundle.context.user_ids[user])
        known = predictor.predict_proba(raw_id, items)
        given = predictor.predict_proba("me", items, histories={"me": history})
        np.testing.assert_allclose(given, known, atol=2e-6)
        by_pairs = predictor.predict_proba("me", items, histories={"me": list(history.items())})
        assert np.array_equal(by_pairs, given)


def test_many_people_are_answered_in_one_call() -> None:
    bundle = make("user", **VARIANTS["deep-factored-sqrt"])
    predictor = Predictor(bundle)
    data = bundle.context
    histories = {"a": history_of(data, 1), "b": {}, "c": history_of(data, 2)}
    users = ["c", 30, "a", "b", "c", 10]
    items = [100, 101, 102, 103, 104, 105]
    found = predictor.predict_proba(
        [user if user != 30 else np.int64(30) for user in users], items, histories=histories
    )
    numbers = {"a": 1, "b": NEW_USER, "c": 2, 30: 3, 10: 1}
    raw = np.array(
        [literal(bundle, numbers[u], i - 100) for u, i in zip(users, items, strict=True)]
    )
    assert bundle.calibration is not None
    expected = bundle.calibration.apply(raw, data.scale.array())
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_history_counts_instead_of_what_is_known() -> None:
    predictor = Predictor(make("user"))
    other = predictor.predict(0, 105, histories={0: {101: 5}})
    assert np.array_equal(other, predictor.predict("x", 105, histories={"x": {101: 5}}))
    assert abs(float(other[0] - predictor.predict(0, 105)[0])) > 1e-3


@pytest.mark.parametrize("side", SIDES)
def test_unknown_ids_follow_the_rule_and_are_counted(side: Side) -> None:
    bundle = make(side)
    data = bundle.context
    predictor = Predictor(bundle)
    users, items = [0, 999, 0, 999, NEW_USER * 10, 0], [101, 101, 999, 999, 101, 100 + NEW_ITEM]
    frame = predictor.predict_frame(users, items)
    indices = [(0, 1), (-1, 1), (0, -1), (-1, -1), (NEW_USER, 1), (0, NEW_ITEM)]
    raw = np.array([literal(bundle, u, i) for u, i in indices])
    np.testing.assert_allclose(frame["prediction"], raw @ data.scale.array(), atol=1e-5)
    of_user, of_item = (data.users == 0).sum(), (data.items == 1).sum()
    assert frame["known_of_user"].to_list() == [of_user, 0, of_user, 0, 0, of_user]
    assert frame["known_of_item"].to_list() == [of_item, of_item, 0, 0, of_item, 0]
    assert frame["user"].to_list() == users
    assert frame["item"].to_list() == items
    assert frame["title"].to_list() == ["Film 1", "Film 1", None, None, "Film 1", None]


def test_the_frame_holds_the_distribution() -> None:
    predictor = Predictor(make("item"))
    users, items = pairs(predictor.bundle.context)
    frame = predictor.predict_frame(users, items)
    values = predictor.scale.array()
    names = [f"p_{value:g}" for value in values]
    assert names[:3] == ["p_0.5", "p_1", "p_1.5"]
    chances = frame.select(names).to_numpy()
    assert np.array_equal(chances, predictor.predict_proba(users, items))
    np.testing.assert_allclose(frame["prediction"], chances @ values, rtol=1e-8)
    variance = chances @ values**2 - (chances @ values) ** 2
    np.testing.assert_allclose(frame["std"], np.sqrt(variance), rtol=1e-6)


@pytest.mark.parametrize(
    ("users", "items"),
    [
        (np.array([0, 10]), np.array([100, 101])),
        (np.array([0, 10], np.uint8), np.array([100, 101], np.uint64)),
        (pl.Series([0, 10]), pl.Series([100, 101])),
        ((0, 10), iter([100, 101])),
        (np.array([0, 10], object), [np.int32(100), 101]),
    ],
)
def test_ids_may_come_in_any_sequence(users: Any, items: Any) -> None:
    predictor = Predictor(make("user"))
    assert np.array_equal(predictor.predict(users, items), predictor.predict([0, 10], [100, 101]))


def test_ids_too_large_for_the_table_are_unknown_not_wrapped() -> None:
    predictor = Predictor(make("user"))
    huge = np.array([2**64 - 1, 2**63 + 100], np.uint64)
    assert predictor.predict_frame([0, 0], huge)["known_of_item"].to_list() == [0, 0]


def test_no_cells_no_answers() -> None:
    predictor = Predictor(make("user"))
    assert predictor.predict_proba([], []).shape == (0, 10)
    assert predictor.predict_frame([], []).height == 0
    assert predictor.recommend([]).height == 0


# -- lists -----------------------------------------------------------------------------------------


def ranking(means: FloatArray, allowed: Sequence[int], n: int) -> list[int]:
    return sorted(allowed, key=lambda item: (-means[item], item))[:n]


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_lists_hold_the_best_of_all_items(side: Side, variant: str, exclude_seen: bool) -> None:
    bundle = make(side, **VARIANTS[variant])
    data, predictor = bundle.context, Predictor(bundle)
    raw = literal_table(bundle)
    means = raw @ data.scale.array()  # (users, items)
    users = data.user_ids.tolist()
    for chosen in (users, users[:2]):  # many are scored together, a few one by one
        frame = predictor.recommend(chosen, n=6, exclude_seen=exclude_seen, min_ratings=0)
        assert frame["user"].unique(maintain_order=True).to_list() == chosen
        for number, user in enumerate(chosen):
            own = frame.filter(pl.col("user") == user)
            seen = set(data.items[data.users == number].tolist())
            allowed = [i for i in range(ITEMS) if not (exclude_seen and i in seen)]
            best = ranking(means[number].round(5), allowed, 6)
            assert own["rank"].to_list() == list(range(1, len(best) + 1))
            expected = np.sort(means[number][allowed])[::-1][:6]
            np.testing.assert_allclose(own["prediction"], expected, atol=1e-5)
            found = [raw_id - 100 for raw_id in own["item"].to_list()]
            np.testing.assert_allclose(means[number][found], means[number][best], atol=2e-5)
            assert len(set(found)) == len(found)
            said = predictor.predict_proba(user, own["item"])
            names = [name for name in own.columns if name.startswith("p_")]
            np.testing.assert_allclose(own.select(names).to_numpy(), said, atol=2e-6)


def test_a_history_gets_the_list_of_the_user_who_gave_it() -> None:
    bundle = make("user", **VARIANTS["deep"])
    predictor = Predictor(bundle)
    for user in (0, 4):
        raw_id = int(bundle.context.user_ids[user])
        history = history_of(bundle.context, user)
        for exclude_seen in (True, False):
            known = predictor.recommend(raw_id, n=7, exclude_seen=exclude_seen)
            given = predictor.recommend(history=history, n=7, exclude_seen=exclude_seen)
            assert "user" not in given.columns
            assert given.equals(known.drop("user"))


def test_a_longer_list_than_the_catalogue_is_the_catalogue() -> None:
    predictor = Predictor(make("user"))
    whole = predictor.recommend(0, n=10**9, exclude_seen=False, min_ratings=0)
    assert sorted(whole["item"]) == list(range(100, 114))
    seen = set(history_of(predictor.bundle.context, 0))
    assert set(predictor.recommend(0, n=99, min_ratings=0)["item"]) == set(range(100, 114)) - seen


def test_someone_who_rated_everything_gets_an_empty_list() -> None:
    everything = dict.fromkeys(range(100, 114), 4.0)
    frame = Predictor(make("user")).recommend(history=everything)
    assert frame.height == 0
    assert frame["item"].dtype == pl.Int64


def test_equal_predictions_are_listed_by_id() -> None:
    bundle = make("user")
    with torch.no_grad():
        bundle.one_sided_model.V.zero_()
        bundle.one_sided_model.b.zero_()
        bundle.one_sided_model.b[2:9, 4] = 1.0
        bundle.one_sided_model.b[2:9, 5] = -1.0
    flat = replace(bundle, column_counts=np.ones_like(bundle.column_counts))
    frame = Predictor(flat).recommend(history={}, n=ITEMS)
    best = list(range(102, 109))
    assert frame["item"].to_list() in (
        [*best, *(i for i in range(100, 114) if i not in best)],
        [*(i for i in range(100, 114) if i not in best), *best],
    )
    assert frame["prediction"].n_unique() == 2
    cut = Predictor(flat).recommend(history={}, n=4)
    assert cut["item"].to_list() == frame["item"].to_list()[:4]


def test_an_unknown_user_of_an_item_based_model_gets_the_training_mean() -> None:
    bundle = make("item")
    frame = Predictor(bundle).recommend([999], n=3, min_ratings=0)
    counts = bundle.column_counts.sum(0)
    mean = counts @ bundle.context.scale.array() / counts.sum()
    np.testing.assert_allclose(frame["prediction"], mean, rtol=1e-12)
    assert frame["known_of_user"].to_list() == [0, 0, 0]
    assert frame["item"].to_list() == [100, 101, 102]


def test_text_ids_and_missing_titles() -> None:
    data = ratings(texts=True)
    bundle = make("user", data=data)
    frame = Predictor(bundle).recommend(["u1", "zz"], n=99, exclude_seen=False, min_ratings=0)
    assert frame["user"].unique(maintain_order=True).to_list() == ["u1", "zz"]
    titles = dict(zip(frame["item"], frame["title"], strict=True))
    assert titles["i03"] == "Film 3"
    assert titles["i13"] is None
    untitled = Predictor(replace(bundle, context=replace(data, titles=None)))
    assert untitled.recommend("u1", n=2)["title"].to_list() == [None, None]


# -- why -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("item", [2, 7])
def test_explaining_is_leaving_out_each_rating(variant: str, item: int) -> None:
    bundle = make("user", **VARIANTS[variant])
    data, predictor, user = bundle.context, Predictor(bundle), 3
    values, known = data.scale.array(), known_cells(data)
    others = [i for u, i in known if u == user and i != item]
    base = literal(bundle, user, item) @ values
    expected = {}
    for other in others:
        fewer = {cell: k for cell, k in known.items() if cell != (user, other)}
        expected[other + 100] = float(literal(bundle, user, item, fewer) @ values)
    frame = predictor.explain(user=user * 10, item=item + 100)
    assert frame.height == len(others) > 3
    for row in frame.iter_rows(named=True):
        assert row["prediction"] == pytest.approx(base, abs=1e-5)
        assert row["without"] == pytest.approx(expected[row["item"]], abs=1e-5)
        assert row["change"] == pytest.approx(base - expected[row["item"]], abs=2e-5)
        assert row["rating"] == history_of(data, user)[row["item"]]
        assert row["title"] == f"Film {row['item'] - 100}"
    strength = frame["change"].abs().to_list()
    assert strength == sorted(strength, reverse=True)
    given = predictor.explain(history=history_of(data, user), item=item + 100)
    assert given.sort("item").equals(frame.sort("item"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_item_based_explanations_are_by_level_and_name_nobody(variant: str) -> None:
    bundle = make("item", **VARIANTS[variant])
    data, predictor, user = bundle.context, Predictor(bundle), 3
    values, known = data.scale.array(), known_cells(data)
    item = next(i for u, i in known if u == user)  # rated by the user: left out as well
    base = literal(bundle, user, item) @ values
    others = {u: k for (u, i), k in known.items() if i == item and u != user}
    frame = predictor.explain(user=user * 10, item=item + 100)
    assert not {"user", "item"} & set(frame.columns)
    assert frame["count"].sum() == len(others)
    for row in frame.iter_rows(named=True):
        level = values.tolist().index(row["rating"])
        group = [u for u, k in others.items() if k == level]
        assert row["count"] == len(group)
        fewer = {cell: k for cell, k in known.items() if not (cell[1] == item and cell[0] in group)}
        without = literal(bundle, user, item, fewer) @ values
        single = []
        for one in group:
            fewer = {cell: k for cell, k in known.items() if cell != (one, item)}
            single.append(base - literal(bundle, user, item, fewer) @ values)
        assert row["prediction"] == pytest.approx(base, abs=1e-5)
        assert row["without"] == pytest.approx(without, abs=1e-5)
        assert row["change"] == pytest.approx(base - without, abs=2e-5)
        assert row["mean_change"] == pytest.approx(np.mean(single), abs=2e-5)


def test_nothing_moves_an_item_that_training_never_saw() -> None:
    predictor = Predictor(make("user"))
    frame = predictor.explain(user=0, item=100 + NEW_ITEM)
    assert frame["change"].to_list() == [0.0] * frame.height
    assert frame.height > 0
    expected = predictor.predict(0, 100 + NEW_ITEM)[0]
    assert frame["prediction"][0] == pytest.approx(expected, rel=1e-12)
    assert Predictor(make("item")).explain(user=NEW_USER * 10, item=101)["change"].abs().max() == 0


def test_someone_with_one_rating_and_someone_with_none() -> None:
    predictor = Predictor(make("user", **VARIANTS["sqrt"]))
    nothing = predictor.predict("x", 105, histories={"x": {}})[0]
    frame = predictor.explain(history={101: 5}, item=105)
    assert frame["without"].to_list() == [pytest.approx(nothing, abs=1e-6)]
    assert predictor.explain(history={}, item=105).height == 0
    assert predictor.explain(history={105: 5}, item=105).height == 0


# -- without context, and refusals -----------------------------------------------------------------


def test_without_context_histories_work_and_users_are_refused(tmp_path: Path) -> None:
    bundle = make("user")
    save(bundle, tmp_path, with_context=False)
    shared, whole = Predictor.load(tmp_path), Predictor(bundle)
    history = history_of(bundle.context, 2)
    assert shared.recommend(history=history).equals(whole.recommend(history=history))
    given = {"me": history}
    assert np.array_equal(
        shared.predict_proba("me", [100, 101], histories=given),
        whole.predict_proba("me", [100, 101], histories=given),
    )
    assert shared.explain(history=history, item=105).equals(
        whole.explain(history=history, item=105)
    )
    remedy = "saved without the ratings.*give a history, or use a copy saved with its context"
    with pytest.raises(PredictionError, match=remedy):
        shared.predict([0], [100])
    with pytest.raises(PredictionError, match=remedy):
        shared.recommend([0])
    with pytest.raises(PredictionError, match=remedy):
        shared.explain(user=0, item=100)
    with pytest.raises(PredictionError, match=remedy):
        shared.predict(["me", 0], [100, 100], histories=given)


def test_an_item_based_model_without_context_says_so() -> None:
    shared = Predictor(without_context(make("item")))
    with pytest.raises(PredictionError, match=r"saved without the ratings.*; use a copy saved"):
        shared.predict([0], [100])


def test_item_based_models_refuse_histories_with_the_remedy() -> None:
    predictor = Predictor(make("item"))
    remedy = 'item-based.*train one with side="user"'
    with pytest.raises(PredictionError, match=remedy):
        predictor.recommend(history={101: 5})
    with pytest.raises(PredictionError, match=remedy):
        predictor.predict("me", 101, histories={"me": {101: 5}})
    with pytest.raises(PredictionError, match=remedy):
        predictor.explain(history={101: 5}, item=102)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ({101: 7}, r"rating 7 of item 101 is off the model's scale 0\.5–5 by 0\.5; allowed"),
        ({101: 4, 102: 3.25}, r"rating 3\.25 of item 102 is off the model's scale"),
        ({101: float("nan")}, "rating nan of item 101 is not a finite number"),
        ({101: float("inf")}, "not a finite number"),
        ({101: 10**400}, "not a finite number"),
        ({101: "5"}, "rating '5' of item 101 is not a finite number"),
        ({101: True}, "rating True of item 101 is not a finite number"),
        ({101: None}, "not a finite number"),
        ([(101, 4), (102, 3), (101, 4)], "item 101 is rated more than once"),
        ([(777, 4), (777, 3)], "item 777 is rated more than once"),
        ({"101": 4}, "item id '101' is a str; the item ids of this model are integers"),
        ({1.5: 4}, "item id 1.5 is a float"),
        ([(101, 4, 3)], "a history is a mapping"),
        ([101, 102], "a history is a mapping"),
        ("101", "a history is a mapping"),
        (17, "a history is a mapping"),
    ],
)
def test_histories_that_cannot_be_read_are_refused(history: Any, message: str) -> None:
    predictor = Predictor(make("user"))
    with pytest.raises(PredictionError, match=message):
        predictor.recommend(history=history)
    with pytest.raises(PredictionError, match=message):
        predictor.predict("me", 101, histories={"me": history})


def test_unknown_items_of_a_history_are_counted_and_say_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    predictor = Predictor(make("user"))
    with caplog.at_level(logging.WARNING, "cfnade"):
        person = predictor.person({101: 5, 777: 4, 778: 3})
    assert person.unknown == (777, 778)
    assert len(person) == 1
    assert "2 of 3 items in a history are unknown" in caplog.text
    assert predictor.recommend(history=person).equals(predictor.recommend(history={101: 5}))
    said = predictor.predict_frame("me", 105, histories={"me": person})
    assert said["known_of_user"].to_list() == [1]


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        ([0, 10], [100, 101, 102], "2 users and 3 items"),
        (["0"], [100], "user id '0' is a str; the user ids of this model are integers, such as 0"),
        ([0], ["100"], "item id '100' is a str"),
        ([0.0], [100], "user id 0.0 is a float"),
        ([True], [100], "user id True is a bool"),
        ([None], [100], "user id None is a NoneType"),
        (np.zeros((2, 2), int), [100], r"ids have shape \(2, 2\)"),
        (object(), [100], "give one id or a list"),
    ],
)
def test_questions_that_make_no_sense_are_refused(users: Any, items: Any, message: str) -> None:
    with pytest.raises(PredictionError, match=message):
        Predictor(make("user")).predict(users, items)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3", None])
def test_n_is_a_whole_number(n: Any) -> None:
    with pytest.raises(PredictionError, match=r"n \(=.*\) must be a whole number"):
        Predictor(make("user")).recommend(0, n=n)


def test_lists_need_users_or_a_history() -> None:
    predictor = Predictor(make("user"))
    with pytest.raises(PredictionError, match="either users or a history"):
        predictor.recommend()
    with pytest.raises(PredictionError, match="either users or a history"):
        predictor.recommend([0], history={101: 4})
    with pytest.raises(PredictionError, match="either users or a history"):
        predictor.explain(item=101)


def test_explanations_refuse_unknown_ids() -> None:
    predictor = Predictor(make("user"))
    with pytest.raises(PredictionError, match="item 999 is unknown"):
        predictor.explain(user=0, item=999)
    with pytest.raises(PredictionError, match=r"user 999 is unknown.*give history="):
        predictor.explain(user=999, item=101)


def test_a_bundle_whose_parts_do_not_fit_is_refused() -> None:
    bundle = make("user")
    with pytest.raises(PredictionError, match=r"has 9 columns, the model 14"):
        Predictor(replace(bundle, side="item"))


def test_a_loaded_model_predicts_the_same_numbers(tmp_path: Path) -> None:
    for side in SIDES:
        bundle = make(side, **VARIANTS["factored"])
        save(bundle, tmp_path / side)
        loaded, kept = Predictor.load(tmp_path / side), Predictor(bundle)
        users, items = pairs(bundle.context)
        assert np.array_equal(loaded.predict_proba(users, items), kept.predict_proba(users, items))
        assert loaded.recommend(users[0]).equals(kept.recommend(users[0]))
        assert loaded.explain(user=30, item=105).equals(kept.explain(user=30, item=105))
