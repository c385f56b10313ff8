"""Items by id or title, wherever an item is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.close import assert_close
from tests.inference.cases import make, ratings

from cfnade.data.dataset import Dataset
from cfnade.exceptions import PredictionError
from cfnade.inference.predictor import Predictor

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


def predictor(*, texts: bool = False) -> Predictor:
    data: Dataset = ratings(texts=texts).replace(titles=np.array(TITLES, object))
    return Predictor(make("user", data=data))


def titles_as_ids(titles: list[str] = TITLES) -> Predictor:
    """The same model of a file that has titles in place of ids, as a copy of MovieLens 1M has."""
    names = [title or "Untitled" for title in titles]
    return Predictor(
        make("user", data=ratings().replace(item_ids=np.array(names, object), titles=None))
    )


@pytest.mark.parametrize("texts", [False, True])
def test_histories_take_titles_and_ids(texts: bool) -> None:
    ask = predictor(texts=texts)
    ids = ask.items.table.tolist()
    by_id = {ids[0]: 5, ids[4]: 3, ids[3]: 1, ids[6]: 2}
    mixed = {"the matrix": 5, "AMELIE": 3, ids[3]: 1, "new hope": 2}
    assert ask.person(mixed).items.tolist() == [0, 4, 3, 6]
    for given in (mixed, list(mixed.items())):
        assert_close(ask.recommend(history=given), ask.recommend(history=by_id))
        assert_close(
            ask.predict("me", ids[:3], histories={"me": given}),
            ask.predict("me", TITLES[:3], histories={"me": by_id}),
        )
        named = ask.explain(history=given, item="Hamlet (1948)")
        assert_close(named, ask.explain(history=by_id, item=ids[2]))
    frame = ask.predict_frame("me", ["the matrix", ids[1]], histories={"me": by_id})
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
def test_titles_that_fit_no_item_or_several_are_refused(title: str, message: str) -> None:
    ask = predictor()
    with pytest.raises(PredictionError, match=message):
        ask.recommend(history={title: 4})
    with pytest.raises(PredictionError, match=message):
        ask.explain(history={101: 4}, item=title)
    with pytest.raises(PredictionError, match=message):
        ask.predict("me", [title], histories={"me": {101: 4}})


def test_a_number_is_a_title_if_there_is_one_and_an_id_of_the_wrong_type_if_not() -> None:
    ask = predictor()
    assert ask.person({"1984": 5}).items.tolist() == [5]
    with pytest.raises(PredictionError, match="item id '101' is a str"):
        ask.person({"101": 5})


def test_where_ids_are_texts_a_text_that_is_neither_is_an_unknown_id() -> None:
    ask = predictor(texts=True)
    person = ask.person({"i00": 5, "tt0133093": 4, "Amélie": 3})
    assert person.items.tolist() == [0, 4]
    assert person.unknown == (1,)
    with pytest.raises(PredictionError, match="is in 2 titles"):
        ask.person({"Hamlet": 4})


def test_an_item_rated_by_id_and_by_title_is_rated_twice() -> None:
    message = "item 'the matrix' is rated more than once in a history, also as 100"
    with pytest.raises(PredictionError, match=message):
        predictor().person([(100, 5), ("the matrix", 4)])
    # An unknown id that happens to be a known item's index is no repetition.
    assert predictor().person({100: 5, 0: 4}).unknown == (1,)


def test_without_titles_ids_alone_count() -> None:
    ask = Predictor(make("user", data=ratings().replace(titles=None)))
    with pytest.raises(PredictionError, match="item id 'Matrix' is a str"):
        ask.person({"Matrix": 4})
    with pytest.raises(PredictionError, match="knows no titles"):
        ask.search("Matrix")
    with pytest.raises(
        PredictionError, match="'Matrix' is not an item id, and this model knows no"
    ):
        ask.catalog.typed("Matrix")
    assert ask.match("Matrix", 1999) is None


def test_titles_that_are_ids_are_titles() -> None:
    ask, plain = titles_as_ids(), predictor()
    named = {"the matrix": 5, "AMELIE": 3, "Hamlet (1996)": 1, "Star Wars (1977)": 2}
    assert ask.person(named).items.tolist() == plain.person(named).items.tolist() == [0, 4, 3, 6]
    assert ask.match("Hamlet", 1948) == "Hamlet (1948)"
    shown = ask.recommend(history=named)
    assert shown["title"].to_list() == shown["item"].to_list()
    for text in ("matrx", "new hope", "film"):
        assert ask.search(text)["item"].to_list() == plain.search(text)["title"].to_list()
    for text, item in {"new hope": 6, "reloaded": 1, "1984": 5, "Hamlet (1948)": 2}.items():
        assert ask.catalog.typed(text) == plain.catalog.typed(text) == item
    for text, message in {"Matrx": "did you mean: Matrix, The", "Hamlet": "is in 2 titles"}.items():
        with pytest.raises(PredictionError, match=message):
            ask.catalog.typed(text)


def test_an_unknown_title_that_is_an_id_is_not_taken_for_one_that_holds_it() -> None:
    ask = titles_as_ids()
    cells = ["Matrix", "Reloaded", "A New Hope", "Hamlet (1964)", "Casablanca (1942)"]
    assert ask.catalog.indices(cells).tolist() == [0, -1, -1, -1, -1]
    assert ask.person({"Reloaded": 5, "Hamlet (1948)": 4}).unknown == (0,)


@pytest.mark.parametrize("ask", [predictor(texts=True), titles_as_ids()], ids=["ids", "titles"])
def test_explaining_an_unknown_text_lists_the_nearest(ask: Predictor) -> None:
    rated = {ask.items.raw(0): 4}
    with pytest.raises(PredictionError, match=r"'Matrx' is unknown .*; did you mean: Matrix, The"):
        ask.explain(history=rated, item="Matrx")
    with pytest.raises(PredictionError, match=r"'Casablanca' is unknown to the model$"):
        ask.explain(history=rated, item="Casablanca")


def test_codes_are_no_titles() -> None:
    codes = [f"item_{n}" for n in range(2, 30, 2)]
    ask = titles_as_ids(codes)
    assert ask.catalog.titles is None
    assert ask.catalog.indices(["item_1", "ITEM-2", "item_12"]).tolist() == [-1, -1, 5]
    assert ask.recommend(history={"item_2": 5})["title"].null_count() == 10
    with pytest.raises(
        PredictionError, match="'item_1' is not an item id, and this model knows no"
    ):
        ask.catalog.typed("item_1")


@pytest.mark.parametrize("texts", [False, True])
def test_one_rule_for_what_is_typed_and_what_is_certain(texts: bool) -> None:
    """(text, index that is certain, index if a guess will do; None where that is an error)"""
    ask = predictor(texts=texts)
    raw = ask.items.raw(3)
    for text, certain, typed in [
        (str(raw), 3 if texts else None, 3),  # a service tells "103" from 103, a shell cannot
        ("The Matrix", 0, 0),
        ("matrix, the (1999)", 0, 0),
        ("The Matrix (1998)", 0, 0),  # a year apart, as other catalogues have it
        ("Star Wars (1977)", 6, 6),
        ("new hope", None, 6),
        ("Hamlet", None, None),
        ("Casablanca", None, None),
        ("", None, None),
    ]:
        assert ask.catalog.certain(text) == certain
        if typed is None:
            with pytest.raises(PredictionError):
                ask.catalog.typed(text)
        else:
            assert ask.catalog.typed(text) == typed
    assert ask.catalog.certain(raw) == 3
    assert ask.catalog.certain(4444) is None


def test_a_typed_number_is_an_id_before_it_is_a_title() -> None:
    """A file of ratings names its items by id: 1984 there is not the film of that name."""
    ids = np.array([*range(100, 113), 1984])
    titles = np.array(TITLES, object)
    ask = Predictor(make("user", data=ratings().replace(item_ids=ids, titles=titles)))
    assert ask.catalog.typed("1984") == 13
    assert ask.catalog.index("1984") == 5
    assert predictor().catalog.typed("1984") == 5


def test_search_and_match_speak_of_raw_ids() -> None:
    ask = predictor()
    frame = ask.search("matrx", limit=3)
    assert frame.columns == ["item", "title", "n_item_ratings", "distance"]
    assert frame["item"].to_list() == [100, 101]
    assert frame["n_item_ratings"].to_list() == [
        int((ask.fitted.context.items == i).sum()) for i in (0, 1)
    ]
    assert frame["distance"].is_sorted()
    assert ask.match("The Matrix", 1999) == 100
    assert ask.match("The Matrix", 2009) is None
    assert predictor(texts=True).match("The Matrix") == "i00"


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_the_limit_of_a_search_is_a_whole_number(limit: Any) -> None:
    with pytest.raises(PredictionError, match=r"limit \(=.*\) must be a whole number"):
        predictor().search("matrix", limit=limit)
