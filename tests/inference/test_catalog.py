"""Ids and titles as indices, wherever an item is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.inference.cases import estimator, make, ratings
from tests.support.close import assert_close

from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex

TITLES = [
    "Matrix, The (1999)",
    "Matrix Reloaded, The (2003)",
    "Hamlet (1948)",
    "Hamlet (1996)",
    "Amélie (2001)",
    "1984 (1984)",
    "Star Wars: Episode IV - A New Hope (1977)",
    *(f"Film {i} (1990)" for i in range(7, 13)),
    "",
]


def titled_model(*, texts: bool = False) -> CFNADE:
    data = ratings(texts=texts).replace(titles=np.array(TITLES, object))
    return estimator(make("user", data=data))


def model_with_ids(ids: list[str]) -> CFNADE:
    """The same model of a file with texts in place of ids, as a copy of MovieLens 1M has."""
    data = ratings().replace(item_ids=np.array(ids, object), titles=None)
    return estimator(make("user", data=data))


def items_of(model: CFNADE, history: Any) -> list[int]:
    return model.predictor_.parse_history(history).items.tolist()  # type: ignore[no-any-return]


TITLES_AS_IDS = [title or "Untitled" for title in TITLES]


@pytest.mark.parametrize("texts", [False, True])
def test_histories_take_titles_and_ids(texts: bool) -> None:
    model = titled_model(texts=texts)
    ids = model.predictor_.items.table.tolist()
    by_id = {ids[0]: 5, ids[4]: 3, ids[3]: 1, ids[6]: 2}
    mixed = {"the matrix": 5, "AMELIE": 3, ids[3]: 1, "new hope": 2}
    assert items_of(model, mixed) == [0, 4, 3, 6]
    for history in (mixed, list(mixed.items())):
        assert_close(model.recommend(history=history), model.recommend(history=by_id))
        assert_close(
            model.predict("me", ids[:3], histories={"me": history}),
            model.predict("me", TITLES[:3], histories={"me": by_id}),
        )
        explained = model.explain(history=history, item="Hamlet (1948)")
        assert_close(explained, model.explain(history=by_id, item=ids[2]))
    frame = model.predict_frame("me", ["the matrix", ids[1]], histories={"me": by_id})
    assert frame["item"].to_list() == ids[:2]
    assert frame["title"].to_list() == TITLES[:2]


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("Hamlet", r"'Hamlet' is in 2 titles, say which one: Hamlet \(19\d\d\); Hamlet \(19\d\d\)"),
        ("film", r"'film' is in 6 titles, say which one: (Film \d+ \(1990\); ){5}…"),
        ("Matrx", r"neither an item id nor part of a title; did you mean: Matrix, The \(1999\)"),
        ("Casablanca", "'Casablanca' is neither an item id nor part of a title$"),
        ("", "neither an item id nor part of a title"),
    ],
)
def test_titles_of_no_item_or_of_several_are_refused(title: str, message: str) -> None:
    model = titled_model()
    for ask in (
        lambda: model.recommend(history={title: 4}),
        lambda: model.explain(history={101: 4}, item=title),
        lambda: model.predict("me", [title], histories={"me": {101: 4}}),
    ):
        with pytest.raises(PredictionError, match=message):
            ask()


def test_a_number_as_text_is_a_title_or_an_id_of_the_wrong_type() -> None:
    model = titled_model()
    assert items_of(model, {"1984": 5}) == [5]
    with pytest.raises(PredictionError, match="item id '101' is a str"):
        items_of(model, {"101": 5})


def test_with_ids_that_are_texts_an_unknown_text_is_an_unknown_id() -> None:
    model = titled_model(texts=True)
    history = model.predictor_.parse_history({"i00": 5, "tt0133093": 4, "Amélie": 3})
    assert history.items.tolist() == [0, 4]
    assert history.unknown == (1,)
    with pytest.raises(PredictionError, match="is in 2 titles"):
        items_of(model, {"Hamlet": 4})


def test_an_item_rated_by_id_and_by_title_is_rated_twice() -> None:
    message = "item 'the matrix' is rated more than once in a history, also as 100"
    with pytest.raises(PredictionError, match=message):
        items_of(titled_model(), [(100, 5), ("the matrix", 4)])
    # An unknown id that equals the index of a known item is no repetition.
    assert titled_model().predictor_.parse_history({100: 5, 0: 4}).unknown == (1,)


def test_without_titles_there_are_only_ids() -> None:
    model = estimator(make("user", data=ratings().replace(titles=None)))
    with pytest.raises(PredictionError, match="item id 'Matrix' is a str"):
        items_of(model, {"Matrix": 4})
    with pytest.raises(PredictionError, match="knows no titles"):
        model.find_items("Matrix")
    with pytest.raises(PredictionError, match="not an item id, and this model knows no"):
        model.predictor_.catalog.parse("Matrix")
    assert model.predictor_.catalog.match("Matrix", 1999) is None


def test_ids_can_be_titles() -> None:
    model, plain = model_with_ids(TITLES_AS_IDS), titled_model()
    history = {"the matrix": 5, "AMELIE": 3, "Hamlet (1996)": 1, "Star Wars (1977)": 2}
    assert items_of(model, history) == items_of(plain, history) == [0, 4, 3, 6]
    frame = model.recommend(history=history)
    assert frame["title"].to_list() == frame["item"].to_list()
    for text in ("matrx", "new hope", "film"):
        assert model.find_items(text)["item"].to_list() == plain.find_items(text)["title"].to_list()
    catalog = model.predictor_.catalog
    for text, item in {"new hope": 6, "reloaded": 1, "1984": 5, "Hamlet (1948)": 2}.items():
        assert catalog.parse(text) == plain.predictor_.catalog.parse(text) == item
    for text, message in {"Matrx": "did you mean: Matrix, The", "Hamlet": "is in 2 titles"}.items():
        with pytest.raises(PredictionError, match=message):
            catalog.parse(text)
    # An unknown id is not taken for a title that contains it.
    cells = ["Matrix", "Reloaded", "A New Hope", "Hamlet (1964)", "Casablanca (1942)"]
    assert catalog.indices(cells).tolist() == [0, -1, -1, -1, -1]


@pytest.mark.parametrize(
    "model", [titled_model(texts=True), model_with_ids(TITLES_AS_IDS)], ids=["ids", "titles"]
)
def test_an_unknown_text_is_refused_with_the_closest_titles(model: CFNADE) -> None:
    history = {model.predictor_.items.raw(0): 4}
    with pytest.raises(PredictionError, match=r"'Matrx' is unknown .*; did you mean: Matrix, The"):
        model.explain(history=history, item="Matrx")
    with pytest.raises(PredictionError, match=r"'Casablanca' is unknown to the model$"):
        model.explain(history=history, item="Casablanca")


def test_codes_are_no_titles() -> None:
    model = model_with_ids([f"item_{n}" for n in range(2, 30, 2)])
    catalog = model.predictor_.catalog
    assert catalog.titles is None
    assert catalog.indices(["item_1", "ITEM-2", "item_12"]).tolist() == [-1, -1, 5]
    assert model.recommend(history={"item_2": 5})["title"].null_count() == 10
    with pytest.raises(PredictionError, match="'item_1' is not an item id"):
        catalog.parse("item_1")


@pytest.mark.parametrize("texts", [False, True])
def test_a_person_may_type_more_than_a_service_accepts(texts: bool) -> None:
    """(text, certain index, index of what a person types; None where that is an error)."""
    model = titled_model(texts=texts)
    catalog, raw = model.predictor_.catalog, model.predictor_.items.raw(3)
    for text, certain, typed in [
        (str(raw), 3 if texts else None, 3),  # a service tells "103" from 103, a shell cannot
        ("The Matrix", 0, 0),
        ("matrix, the (1999)", 0, 0),
        ("The Matrix (1998)", 0, 0),  # a year apart, as in other catalogs
        ("Star Wars (1977)", 6, 6),
        ("new hope", None, 6),
        ("Hamlet", None, None),
        ("Casablanca", None, None),
        ("", None, None),
    ]:
        assert catalog.certain(text) == certain
        if typed is None:
            with pytest.raises(PredictionError):
                catalog.parse(text)
        else:
            assert catalog.parse(text) == typed
    assert catalog.certain(raw) == 3
    assert catalog.certain(4444) is None


def test_a_typed_number_is_an_id_before_it_is_a_title() -> None:
    ids = np.array([*range(100, 113), 1984])
    data = ratings().replace(item_ids=ids, titles=np.array(TITLES, object))
    catalog = estimator(make("user", data=data)).predictor_.catalog
    assert catalog.parse("1984") == 13
    assert catalog.index("1984") == 5
    assert titled_model().predictor_.catalog.parse("1984") == 5


def test_find_items_returns_ids_with_titles_and_distances() -> None:
    model = titled_model()
    frame = model.find_items("matrx", n=3)
    assert frame.columns == ["item", "title", "n_item_ratings", "distance"]
    assert frame["item"].to_list() == [100, 101]
    counts = np.bincount(model.fitted_.context.items)
    assert frame["n_item_ratings"].to_list() == counts[:2].tolist()
    assert frame["distance"].is_sorted()
    for n in (0, 1.5, True, None):
        with pytest.raises(PredictionError, match=r"n \(=.*\) must be a whole number"):
            model.find_items("matrix", n=n)  # type: ignore[arg-type]


# -- ids -------------------------------------------------------------------------------------------


def test_arrays_and_lists_have_the_same_indices() -> None:
    table = np.unique(np.random.default_rng(0).integers(-50, 50, 40))
    ids, raws = IdIndex("item", table), np.arange(-60, 60)
    expected = [table.tolist().index(raw) if raw in table else -1 for raw in raws.tolist()]
    for given in (raws, raws.tolist(), raws.astype(np.int8)):
        assert ids.indices(given).tolist() == expected


def test_an_id_beyond_64_bits_is_not_wrapped_onto_a_negative_one() -> None:
    ids = IdIndex("item", np.array([-1, 5]))
    assert ids.indices(np.array([2**64 - 1, 5], np.uint64)).tolist() == [-1, 1]
    assert ids.indices([2**64 - 1, 5]).tolist() == [-1, 1]


def test_texts_are_not_integers() -> None:
    ids = IdIndex("user", np.array(["7", "x"], object))
    assert ids.indices(["x", "y", "7"]).tolist() == [1, -1, 0]
    for numbers in ([7], np.array([7])):
        with pytest.raises(PredictionError, match="user ids of this model are texts, such as '7'"):
            ids.indices(numbers)


def test_an_id_is_parsed_in_the_type_of_the_table() -> None:
    numbers = IdIndex("user", np.array([5, 7]))
    assert numbers.parse("-7") == -7
    assert IdIndex("user", np.array(["5", "x"], object)).parse("7") == "7"
    with pytest.raises(PredictionError, match="user 'anna': the user ids of this model are whole"):
        numbers.parse("anna")
    for text in (str(2**63), str(-(2**63) - 1), "9" * 99):
        with pytest.raises(PredictionError, match="an id is a whole number from -922"):
            numbers.parse(text)
    assert numbers.parse(str(2**63 - 1)) == 2**63 - 1
