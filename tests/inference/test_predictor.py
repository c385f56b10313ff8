"""The CFNADE against the plain torch model, asked cell by cell with contexts built by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.folded import Cell, side_scores
from tests.inference.cases import (
    FOR_PEOPLE,
    ITEMS,
    KINDS,
    NEW_ITEM,
    NEW_USER,
    NOW,
    TIMELESS,
    UNTRAINED_ITEM,
    UNTRAINED_USER,
    USERS,
    FloatArray,
    estimator,
    history_of,
    known_cells,
    literal,
    make,
    make_kind,
    ratings,
)
from tests.support.close import assert_close

from cfnade.checkpoint import drop_context, save
from cfnade.data.dataset import Dataset
from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.similarity import embeddings
from cfnade.models.batch import Context


@cache
def fitted_of(kind: str) -> FittedModel:
    return make_kind(kind)


@cache
def literal_table(kind: str) -> FloatArray:
    """Distributions of all cells, not calibrated. Returns (users, items, K)."""
    fitted = fitted_of(kind)
    return np.array([[literal(fitted, u, i) for i in range(ITEMS)] for u in range(USERS)])


TRAINED_ITEMS = [100 + i for i in range(ITEMS) if i not in (UNTRAINED_ITEM, NEW_ITEM)]


def times_of(kind: str) -> int | None:
    return NOW if "time" in kind else None


def pairs(data: Dataset) -> tuple[list[Any], list[Any]]:
    users, items = data.user_ids.tolist(), data.item_ids.tolist()
    return [u for u in users for _ in items], items * len(users)


# -- given cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_is_what_the_model_says_without_that_cell(kind: str) -> None:
    fitted, times = fitted_of(kind), times_of(kind)
    values, raw = fitted.context.scale.array(), literal_table(kind)
    users, items = pairs(fitted.context)
    flat = raw.reshape(USERS * ITEMS, -1)
    model = estimator(fitted)
    assert fitted.calibration is not None
    honest = fitted.calibration.apply(flat, values)
    said = model.predict_proba(users, items, timestamp=times)
    np.testing.assert_allclose(said, honest, atol=2e-6)
    np.testing.assert_allclose(
        model.predict(users, items, timestamp=times), flat @ values, atol=1e-5
    )
    plain = estimator(replace(fitted, calibration=None))
    np.testing.assert_allclose(plain.predict_proba(users, items, timestamp=times), flat, atol=2e-6)
    for user in (0, UNTRAINED_USER, NEW_USER):  # a few are answered one by one
        few = plain.predict_proba(user * 10, fitted.context.item_ids, timestamp=times)
        np.testing.assert_allclose(few, raw[user], atol=2e-6)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_a_history_is_read_without_the_item_that_is_asked_for(kind: str) -> None:
    fitted, model = fitted_of(kind), estimator(fitted_of(kind))
    data = fitted.context
    for user in (0, 3, NEW_USER):
        history, cells = history_of(data, user), known_cells(data)
        mine = {(-1, i): level for (u, i), level in cells.items() if u == user}
        raw = np.array([literal(fitted, -1, i, cells | mine) for i in range(ITEMS)])
        said = model.predict("me", data.item_ids, histories={"me": history})
        np.testing.assert_allclose(said, raw @ data.scale.array(), atol=1e-5)
        listed = model.predict("me", data.item_ids, histories={"me": list(history.items())})
        assert_close(listed, said)
        one = model.predictor_.predict_items(
            model.predictor_.resolve_user(history=history), np.arange(ITEMS)
        )
        assert_close(one.predictions, said)
        assert one.n_user_ratings.tolist() == [len(history)] * ITEMS
        if kind.startswith("user"):  # weights of users are nowhere: it is the same person
            known = model.predict(user * 10, TRAINED_ITEMS)
            np.testing.assert_allclose(known, said[np.array(TRAINED_ITEMS) - 100], atol=2e-6)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_many_people_are_answered_in_one_call(kind: str) -> None:
    fitted = fitted_of(kind)
    model, data = estimator(fitted), fitted.context
    histories = {"a": history_of(data, 1), "b": {}, "c": history_of(data, 2)}
    users: list[Any] = ["c", np.int64(30), "a", "b", "c", 10]
    items = [100, 101, 102, 103, 104, 105]
    said = model.predict_proba(users, items, histories=histories)
    for user, item, one in zip(users, items, said, strict=True):
        people = {user: histories[user]} if user in histories else None
        alone = model.predict_proba([user], [item], histories=people)[0]
        np.testing.assert_allclose(one, alone, atol=2e-6)


@pytest.mark.parametrize("kind", ["user", "user-ridge", "user-deep-factored-sqrt", "both"])
def test_many_new_people_are_answered_as_each_of_them_alone(kind: str) -> None:
    """At once for more than a few: by matrix products, or threads, where one is answered alone."""
    model, rng = estimator(make_kind(kind)), np.random.default_rng(5)
    ids, stars = model.predictor_.items.table, model.scale_.array()
    histories = {
        f"p{n}": dict(
            zip(rng.permutation(ids)[: n % 6].tolist(), rng.choice(stars, 6), strict=False)
        )
        for n in range(40)
    }
    names = [name for name in histories for _ in range(9)]
    items = rng.choice(ids, len(names))
    chances = model.predict_proba(names, items, histories=histories)
    alone = [
        model.predict_proba(name, [item], histories={name: histories[name]})[0]
        for name, item in zip(names, items, strict=True)
    ]
    np.testing.assert_allclose(chances, alone, rtol=0, atol=2e-6)
    lists = model.recommend(histories=histories, n=4, min_ratings=0)
    assert lists["user"].unique(maintain_order=True).to_list() == list(histories)
    for name in ("p0", "p17", "p39"):
        expected = model.recommend(history=histories[name], n=4, min_ratings=0)
        found = lists.filter(pl.col("user") == name)
        assert found["item"].to_list() == expected["item"].to_list()
        np.testing.assert_allclose(found["prediction"], expected["prediction"], atol=1e-5)


def test_a_history_counts_instead_of_what_is_known() -> None:
    model = estimator(make("user"))
    other = model.predict(0, 105, histories={0: {101: 5}})
    assert_close(other, model.predict("x", 105, histories={"x": {101: 5}}))
    assert abs(float(other[0] - model.predict(0, 105)[0])) > 1e-3


@pytest.mark.parametrize("kind", TIMELESS)
def test_unknown_ids_follow_the_rule_and_are_counted(kind: str) -> None:
    fitted = fitted_of(kind)
    data, model = fitted.context, estimator(fitted)
    users, items = [0, 999, 0, 999, NEW_USER * 10, 0], [101, 101, 999, 999, 101, 100 + NEW_ITEM]
    frame = model.predict_frame(users, items, unknown="mean")
    indices = [(0, 1), (-1, 1), (0, -1), (-1, -1), (NEW_USER, 1), (0, NEW_ITEM)]
    raw = np.array([literal(fitted, u, i) for u, i in indices])
    np.testing.assert_allclose(frame["prediction"], raw @ data.scale.array(), atol=1e-5)
    of_user, of_item = (data.users == 0).sum(), (data.items == 1).sum()
    assert frame["n_user_ratings"].to_list() == [of_user, 0, of_user, 0, 0, of_user]
    assert frame["n_item_ratings"].to_list() == [of_item, of_item, 0, 0, of_item, 0]
    assert frame["user"].to_list() == users
    assert frame["item"].to_list() == items
    assert frame["title"].to_list() == ["Film 1", "Film 1", None, None, "Film 1", None]


def test_the_frame_holds_the_distribution() -> None:
    model = estimator(fitted_of("item"))
    users, items = pairs(model.fitted_.context)
    frame = model.predict_frame(users, items)
    values = model.scale_.array()
    names = [f"p_{value:g}" for value in values]
    assert names[:3] == ["p_0.5", "p_1", "p_1.5"]
    chances = frame.select(names).to_numpy()
    assert_close(chances, model.predict_proba(users, items))
    np.testing.assert_allclose(frame["prediction"], chances @ values, rtol=1e-8)
    variance = chances @ values**2 - (chances @ values) ** 2
    np.testing.assert_allclose(frame["std"], np.sqrt(variance), rtol=1e-6)


def test_one_time_for_all_is_that_time_for_each() -> None:
    model = estimator(fitted_of("both-time"))
    users, items = [0, 10, 20], [100, 101, 102]
    said = model.predict(users, items, timestamp=7)
    assert_close(said, model.predict(users, items, timestamp=[7, 7, 7]))
    one = model.predictor_.predict_items(model.predictor_.resolve_user(0), np.zeros(1, np.int64), 7)
    assert_close(one.predictions, said[:1])
    assert np.abs(said - model.predict(users, items, timestamp=70)).max() > 1e-3


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
    model = estimator(make("user"))
    assert_close(model.predict(users, items), model.predict([0, 10], [100, 101]))


def test_ids_too_large_for_the_table_are_unknown_not_wrapped() -> None:
    model = estimator(make("user"))
    huge = np.array([2**64 - 1, 2**63 + 100], np.uint64)
    assert model.predict_frame([0, 0], huge, unknown="mean")["n_item_ratings"].to_list() == [
        0,
        0,
    ]


def test_no_cells_no_answers() -> None:
    model = estimator(make("user"))
    assert model.predict_proba([], []).shape == (0, 10)
    assert model.predict_frame([], []).height == 0
    assert model.recommend([]).height == 0


# -- lists -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("kind", TIMELESS)
def test_lists_hold_the_best_of_all_items(kind: str, exclude_seen: bool) -> None:
    data, model = fitted_of(kind).context, estimator(fitted_of(kind))
    means = literal_table(kind) @ data.scale.array()  # (users, items)
    users = data.user_ids.tolist()
    for chosen in (users, users[:2]):  # many are scored together, a few one by one
        frame = model.recommend(chosen, n=6, exclude_seen=exclude_seen, min_ratings=0)
        assert frame["user"].unique(maintain_order=True).to_list() == chosen
        for number, user in enumerate(chosen):
            own = frame.filter(pl.col("user") == user)
            seen = set(data.items[data.users == number].tolist())
            allowed = [i for i in range(ITEMS) if not (exclude_seen and i in seen)]
            best = np.sort(means[number][allowed])[::-1][:6]
            assert own["rank"].to_list() == list(range(1, len(best) + 1))
            np.testing.assert_allclose(own["prediction"], best, atol=1e-5)
            items = [raw_id - 100 for raw_id in own["item"].to_list()]
            np.testing.assert_allclose(means[number][items], best, atol=2e-5)
            assert set(items) <= set(allowed)
            assert len(set(items)) == len(items)
            chances = model.predict_proba(user, own["item"])
            np.testing.assert_allclose(own.select("^p_.*$").to_numpy(), chances, atol=2e-6)


@pytest.mark.parametrize("kind", FOR_PEOPLE)
def test_a_history_gets_the_list_of_its_predictions(kind: str) -> None:
    model = estimator(fitted_of(kind))
    history = history_of(model.fitted_.context, 4)
    items = model.predictor_.items.table
    said = model.predict("me", items, histories={"me": history})
    frame = model.recommend(history=history, n=ITEMS, exclude_seen=False, min_ratings=0)
    assert "user" not in frame.columns
    np.testing.assert_allclose(frame["prediction"], said[frame["item"].to_numpy() - 100], atol=1e-5)
    new = model.recommend(history=history, n=ITEMS, min_ratings=0)
    assert set(new["item"]) == set(items.tolist()) - set(history)
    if kind.startswith("user"):
        known = model.recommend(40, n=ITEMS, min_ratings=0)
        assert_close(new, known.drop("user"))


def test_an_unknown_user_of_an_item_based_model_gets_what_the_mean_user_would() -> None:
    fitted = fitted_of("item")
    frame = estimator(fitted).recommend([999], n=3, min_ratings=0)
    known = {
        (int(u), int(i)): int(k)
        for u, i, k in zip(
            fitted.context.users, fitted.context.items, fitted.context.levels, strict=True
        )
    }
    stars = fitted.context.scale.array()
    for item, prediction in frame.select("item", "prediction").iter_rows():
        scores = [
            side_scores(fitted, member, 0, Cell(-1, item - 100), known) for member in fitted.members
        ]
        chances = np.mean([np.exp(one) / np.exp(one).sum() for one in scores], axis=0)
        assert prediction == pytest.approx(chances @ stars, abs=1e-5)
    assert frame["n_user_ratings"].to_list() == [0, 0, 0]


def test_text_ids_and_missing_titles() -> None:
    data = ratings(texts=True)
    fitted = make("user", data=data)
    frame = estimator(fitted).recommend(["u1", "zz"], n=99, exclude_seen=False, min_ratings=0)
    assert frame["user"].unique(maintain_order=True).to_list() == ["u1", "zz"]
    titles = dict(zip(frame["item"], frame["title"], strict=True))
    assert titles["i03"] == "Film 3"
    assert titles["i13"] is None
    untitled = estimator(replace(fitted, context=data.replace(titles=None)))
    assert untitled.recommend("u1", n=2)["title"].to_list() == [None, None]


# -- vectors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", ["user", "item"])
def test_a_vector_is_the_state_of_a_row_or_the_weights_of_a_column(kind: str, axis: Any) -> None:
    fitted = fitted_of(kind)
    frame = embeddings(fitted, axis)
    assert frame[axis].to_list() == fitted.context.ids(axis).tolist()
    assert ("title" in frame.columns) == (axis == "item")
    sides = [side for side in fitted.members[0].components.values() if side.axis]
    side = next((side for side in sides if side.axis == axis), sides[0])
    network: Any = side.network
    for number in (0, 3, 5):
        vector = (network.V if kind == "user-ridge" else network.output_table)[number].flatten()
        if side.axis == axis:
            rows = fitted.context.rows(axis)
            part = slice(rows.offsets[number], rows.offsets[number + 1])
            columns, levels = (
                torch.from_numpy(array[part].astype(np.int64))
                for array in (rows.columns, rows.levels)
            )
            vector = network.hidden(Context(torch.tensor([0, len(columns)]), columns, levels))[0]
        np.testing.assert_allclose(frame["vector"][number], vector.detach(), atol=1e-5)


def test_rows_have_no_vectors_without_their_ratings() -> None:
    with pytest.raises(PredictionError, match="saved without ratings"):
        embeddings(drop_context(make("user")), "user")
    assert embeddings(drop_context(make("user")), "item").height == ITEMS


# -- without context, and refusals -----------------------------------------------------------------


def test_without_context_histories_work_and_users_are_refused(tmp_path: Path) -> None:
    fitted = make("user")
    save(fitted, tmp_path, with_context=False)
    shared, whole = CFNADE.load(tmp_path), estimator(fitted)
    history = history_of(fitted.context, 2)
    # Of an item, only what training saw is known where the ratings since then are not there.
    lists = [
        one.recommend(history=history, n=ITEMS, min_ratings=0).filter(
            pl.col("item").is_in(TRAINED_ITEMS)
        )
        for one in (shared, whole)
    ]
    columns = ["item", "title", "prediction", "n_user_ratings", "n_hidden_items"]
    assert_close(lists[0].select(columns), lists[1].select(columns))
    trained = fitted.training_counts["item"].sum(1)
    assert lists[0]["n_item_ratings"].to_list() == [
        trained[raw - 100] for raw in lists[0]["item"].to_list()
    ]
    given = {"me": history}
    assert_close(
        shared.predict_proba("me", [100, 101], histories=given),
        whole.predict_proba("me", [100, 101], histories=given),
    )
    assert_close(
        shared.explain(history=history, item=105), whole.explain(history=history, item=105)
    )
    remedy = (
        "saved without the ratings.*give a history, or use a copy that was saved with its context"
    )
    with pytest.raises(PredictionError, match=remedy):
        shared.predict([0], [100])
    with pytest.raises(PredictionError, match=remedy):
        shared.recommend([0])
    with pytest.raises(PredictionError, match=remedy):
        shared.explain(user=0, item=100)
    with pytest.raises(PredictionError, match=remedy):
        shared.predict(["me", 0], [100, 100], histories=given)


def test_an_item_based_model_without_context_says_so() -> None:
    shared = estimator(drop_context(make("item")))
    with pytest.raises(
        PredictionError, match=r"saved without the ratings.*; use a copy that was saved"
    ):
        shared.predict([0], [100])


def test_item_based_models_refuse_histories_with_the_remedy() -> None:
    model = estimator(make("item"))
    remedy = 'item-based.*train one with side="user"'
    with pytest.raises(PredictionError, match=remedy):
        model.recommend(history={101: 5})
    with pytest.raises(PredictionError, match=remedy):
        model.predict("me", 101, histories={"me": {101: 5}})
    with pytest.raises(PredictionError, match=remedy):
        model.explain(history={101: 5}, item=102)


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
        estimator(make("user")).predict(users, items)


def test_lists_need_users_or_a_history() -> None:
    model = estimator(make("user"))
    with pytest.raises(PredictionError, match=r"^give users, or history= \(or histories=\) for"):
        model.recommend()
    with pytest.raises(PredictionError, match="either users or a history, not both"):
        model.recommend([0], history={101: 4})


def test_a_model_that_knows_time_refuses_what_has_none() -> None:
    model = estimator(fitted_of("both-time"))
    with pytest.raises(PredictionError, match="needs to know when; give timestamp="):
        model.predict([0], [100])
    with pytest.raises(PredictionError, match="depend on time, and histories have none"):
        model.predict("me", 100, histories={"me": {101: 5}}, timestamp=NOW)
    with pytest.raises(PredictionError, match="makes no lists or explanations"):
        model.recommend(0)
    with pytest.raises(PredictionError, match="makes no lists or explanations"):
        model.explain(user=0, item=100)
    with pytest.raises(PredictionError, match="do not depend on time; omit timestamp"):
        estimator(make("user")).predict([0], [100], timestamp=NOW)


def test_a_model_whose_parts_do_not_fit_is_refused() -> None:
    fitted = make("user")
    fewer = fitted.context.replace(item_ids=fitted.context.item_ids[:-1])
    with pytest.raises(PredictionError, match=r"component user: the id table has 13 columns, the"):
        estimator(replace(fitted, context=fewer))
