"""The scorer's rules, against the equations written down cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.components.given import N_ITEMS, N_USERS, STARS, some_member, some_ratings
from tests.folded import Cell, Known, frequencies, side_scores, unknown
from tests.listed import lines
from tests.queries import NOTHING, joined, of_user, of_users, stored, user_of
from tests.queries import known as ratings_of
from tests.support.close import assert_close

from cfnade.components import Axis
from cfnade.data.dataset import Dataset
from cfnade.fitted_model import FittedModel
from cfnade.inference import scorer as module
from cfnade.inference.explain import leave_each_out
from cfnade.inference.query import Entities, KnownRatings, Query
from cfnade.inference.scorer import Scorer, softmax

FloatArray = npt.NDArray[np.float64]
NEW_USER, NEW_ITEM = 5, 4
"""Both have ratings in the context, but training saw none of them; user 0 and item 0 have none."""

SIDES: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "item": ("item",),
    "both": ("user", "item"),
    "item+user": ("item", "user"),
}
each_side = pytest.mark.parametrize("side", list(SIDES))
K = len(STARS)
LONE = 4
"""A user with one rating, where a test asks for one."""


def make(side: str, *, members: int = 2, lone: int | None = None, **fields: Any) -> FittedModel:
    """Of some ratings; only one of them is of the user `lone`."""
    context = some_ratings()
    if lone is not None:
        others = np.flatnonzero(context.users == lone)[1:]
        context = context.select(np.delete(np.arange(len(context)), others))
    train = context.select((context.users != NEW_USER) & (context.items != NEW_ITEM))
    some = [
        some_member(SIDES[side], {"hidden": (5,), **fields}, ratings=context, seed=3 + n)
        for n in range(members)
    ]
    counts: dict[Axis, Any] = {"item": train.level_counts("item")}
    counts["user"] = train.level_counts("user")
    learned: list[Axis] = ["item" if name == "user" else "user" for name in SIDES[side]]
    return FittedModel(tuple(some), side, context, {axis: counts[axis] for axis in learned})


# -- what the equations say ------------------------------------------------------------------------


def known_of(context: Dataset) -> dict[tuple[int, int], int]:
    cells = zip(context.users.tolist(), context.items.tolist(), strict=True)
    return dict(zip(cells, context.levels.tolist(), strict=True))


def said(fitted: FittedModel, known: Known, user: int, item: int) -> FloatArray:
    """The distribution of a cell: without its own rating, the mean over members of the softmax."""
    chances, cell = [], Cell(user, item)
    if unknown(fitted, cell, known):
        return frequencies(fitted, cell)
    for member in fitted.members:
        numbers = range(len(member.components))
        total = np.sum([side_scores(fitted, member, n, cell, known) for n in numbers], axis=0)
        weights = np.exp(total - total.max())
        chances.append(weights / weights.sum())
    return np.asarray(np.mean(chances, axis=0))


def every_cell() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All cells, with unknown users and items (-1), in random order, some of them twice."""
    users, items = np.meshgrid(np.arange(-1, N_USERS), np.arange(-1, N_ITEMS))
    order = np.random.default_rng(1).permutation(users.size)
    order = np.concatenate([order, order[:9]])
    return users.ravel()[order], items.ravel()[order]


HISTORY = ratings_of([6, NEW_ITEM, 2], [3, 0, 3])
STRANGER = user_of(some_ratings(), HISTORY)


def with_stranger(known: Known) -> dict[tuple[int, int], int]:
    """As if the new person were the user -1."""
    rated = zip(*(part.tolist() for part in HISTORY), strict=True)
    return dict(known) | {(-1, item): level for item, level in rated}


# -- distributions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("few", [256, 0], ids=["person by person", "at once"])
@pytest.mark.parametrize("fields", [{}, {"hidden": (5, 4), "factors": 3, "context_scale": "sqrt"}])
@each_side
def test_every_cell_is_what_the_equations_say(
    side: str, fields: dict[str, Any], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW_PAIRS", few)
    fitted, (users, items) = make(side, **fields), every_cell()
    known = known_of(fitted.context)
    answer = Scorer(fitted).probabilities(users, items)
    expected = np.array([said(fitted, known, u, i) for u, i in zip(users, items, strict=True)])
    assert answer.dtype == np.float64
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)
    new = np.isin(users, [-1, NEW_USER]) | np.isin(items, [-1, NEW_ITEM])
    # Scores of a single person are added up in single precision.
    close = 1e-6 if few else 1e-12
    np.testing.assert_allclose(answer[~new], expected[~new], rtol=0, atol=close)


@pytest.mark.parametrize("few", [256, 0], ids=["person by person", "at once"])
@each_side
def test_the_only_rating_of_a_person_is_not_known_of_them_when_it_is_asked_for(
    side: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW_PAIRS", few)
    fitted, items = make(side, lone=LONE), np.arange(N_ITEMS)
    known = known_of(fitted.context)
    assert [user for user, _ in known].count(LONE) == 1
    answer = Scorer(fitted).probabilities(np.full(N_ITEMS, LONE), items)
    expected = np.array([said(fitted, known, LONE, item) for item in range(N_ITEMS)])
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)


@each_side
def test_a_list_has_the_distributions_of_its_cells(side: str) -> None:
    fitted = make(side)
    known, scorer = with_stranger(known_of(fitted.context)), Scorer(fitted)
    people = [*(stored(fitted.context, user) for user in range(N_USERS)), STRANGER]
    for who, scores in zip(people, lines(scorer, joined(people)), strict=True):
        expected = [said(fitted, known, int(who.index[0]), item) for item in range(N_ITEMS)]
        np.testing.assert_allclose(softmax(scores), expected, rtol=0, atol=1e-6)
        some = np.array([3, NEW_ITEM, 0, 3, 6])
        answer = of_user(scorer, who, some)
        np.testing.assert_allclose(answer, np.array(expected)[some], rtol=0, atol=1e-6)


def with_history(known: Known, user: int, history: KnownRatings) -> dict[tuple[int, int], int]:
    """What the rows of a stored user are, whose ratings are now others."""
    others = {cell: level for cell, level in known.items() if cell[0] != user}
    rated = zip(*(part.tolist() for part in history), strict=True)
    return others | {(user, item): level for item, level in rated}


def expected_with_history(
    fitted: FittedModel, user: int, history: KnownRatings, item: int
) -> FloatArray:
    """The user's row is the history, all items' rows are those of the context.

    A cell's own rating is left out of both.
    """
    context = known_of(fitted.context)
    mine = with_history(context, user, history)
    cell = Cell(user, item)
    if unknown(fitted, cell, mine):
        return frequencies(fitted, cell)
    (member,) = fitted.members
    total = np.zeros(K)
    for number, side in enumerate(member.components.values()):
        known = mine if side.axis == "user" else context
        total += side_scores(fitted, member, number, cell, known)
    weights = np.exp(total - total.max())
    return np.asarray(weights / weights.sum())


HISTORIES = {
    "none": NOTHING,
    "one": ratings_of([6], [3]),
    "several": HISTORY,
}


@pytest.mark.parametrize("few", [16, 0], ids=["person by person", "at once"])
@pytest.mark.parametrize("history", list(HISTORIES))
@pytest.mark.parametrize("side", ["user", "both", "item+user"])
def test_a_stored_user_with_another_history(
    side: str, history: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history replaces the user's row; what item rows hold of the user is left out of it."""
    monkeypatch.setattr("cfnade.inference.scorer.FEW_USERS", few)
    fitted, rated = make(side, members=1), HISTORIES[history]
    scorer, known = Scorer(fitted), known_of(fitted.context)
    trained = np.flatnonzero(np.arange(N_ITEMS) != NEW_ITEM)
    for user in range(N_USERS):
        if user == NEW_USER or not any(cell[0] == user for cell in known):
            continue
        who = user_of(fitted.context, rated, user)
        expected = [expected_with_history(fitted, user, rated, int(i)) for i in trained]
        found = of_users(scorer, who, 0 * trained, trained)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        scores = lines(scorer, who)[0]
        np.testing.assert_allclose(softmax(scores)[trained], expected, rtol=0, atol=1e-6)
        quick = lines(scorer, who, leave_out=False)[0]
        unrated = ~np.isin(trained, rated[0])
        some = softmax(quick)[trained[unrated]]
        np.testing.assert_allclose(some, np.array(expected)[unrated], rtol=0, atol=1e-6)


@each_side
def test_cells_of_many_people_are_those_of_each(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfnade.inference.scorer.FEW_USERS", 0)
    scorer = Scorer(make(side))
    context = scorer.fitted.context
    people = [*(stored(context, user) for user in range(N_USERS)), STRANGER]
    which = np.random.default_rng(1).permutation(np.repeat(np.arange(len(people)), N_ITEMS))
    items = np.random.default_rng(2).integers(0, N_ITEMS, len(which))
    expected = [
        of_user(scorer, people[number], [item])[0]
        for number, item in zip(which.tolist(), items.tolist(), strict=True)
    ]
    found = of_users(scorer, joined(people), which, items)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@each_side
def test_what_is_not_rated_is_the_same_if_nothing_is_left_out(side: str) -> None:
    fitted = make(side, members=1)
    scorer = Scorer(fitted)
    people = [stored(fitted.context, user) for user in range(N_USERS)]
    careful, quick = (lines(scorer, joined(people), leave_out=care) for care in (True, False))
    for who, one, other in zip(people, careful, quick, strict=True):
        free = np.setdiff1d(np.arange(N_ITEMS), who.ratings(0)[0])
        np.testing.assert_allclose(one[free], other[free], rtol=1e-9)


def test_other_weights_can_be_asked_about_the_same_cells() -> None:
    fitted, other = make("both", members=1), make("both", members=2)
    scorer, cells = Scorer(fitted), every_cell()
    before = scorer.probabilities(*cells)
    again = scorer.with_members(*other.members).probabilities(*cells)
    assert_close(again, Scorer(other).probabilities(*cells))
    assert_close(scorer.probabilities(*cells), before)
    assert np.abs(before - again).max() > 0.01


def test_softmax_keeps_its_digits() -> None:
    scores = np.array([[1e4, 0.0, -1e4], [0.0, np.log(3.0), -np.inf]])
    np.testing.assert_allclose(softmax(scores), [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]])


# -- where nothing is known ------------------------------------------------------------------------


def test_unknown_are_users_and_items_without_known_ratings() -> None:
    users, items = every_cell()
    scorer = Scorer(make("both"))
    np.testing.assert_array_equal(scorer.rating_counts("user", users) == 0, np.isin(users, [-1, 0]))
    np.testing.assert_array_equal(scorer.rating_counts("item", items) == 0, np.isin(items, [-1, 0]))
    context = scorer.fitted.context
    np.testing.assert_array_equal(
        scorer.rating_counts("item"), np.bincount(context.items, minlength=N_ITEMS)
    )
    assert scorer.rating_counts("user", np.array([-1, 3, 0])).tolist() == [
        *(0, int((context.users == 3).sum()), 0)
    ]


@each_side
def test_known_levels_are_those_of_the_context(side: str) -> None:
    fitted, (users, items) = make(side), every_cell()
    known = known_of(fitted.context)
    expected = [known.get(cell, -1) for cell in zip(users.tolist(), items.tolist(), strict=True)]
    assert Query.of_pairs(fitted.context, users, items).user_levels.tolist() == expected
    assert set(expected) == {-1, 0, 1, 2, 3}


# -- why -------------------------------------------------------------------------------------------


def without(known: Known, *cells: tuple[int, int]) -> dict[tuple[int, int], int]:
    return {cell: level for cell, level in known.items() if cell not in cells}


def close(answer: FloatArray, expected: Sequence[FloatArray]) -> None:
    np.testing.assert_allclose(answer, np.reshape(expected, np.shape(answer)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("user", [2, 0, NEW_USER, -1])
@each_side
def test_an_effect_is_the_prediction_without_that_rating(side: str, user: int) -> None:
    fitted = make(side)
    scorer, known = Scorer(fitted), with_stranger(known_of(fitted.context))
    who = STRANGER if user < 0 else stored(fitted.context, user)
    for item in range(N_ITEMS):  # some are among the person's own, some have no weights
        rest = [i for i in who.ratings(0)[0].tolist() if i != item]
        found = scorer.rating_probabilities(leave_each_out(fitted.context, who, item))
        close(found[-1:], [said(fitted, known, user, item)])
        assert len(found) == len(rest) + 1
        expected = [said(fitted, without(known, (user, i)), user, item) for i in rest]
        close(found[:-1], expected)


# -- borders ---------------------------------------------------------------------------------------


def test_nothing_asked_nothing_answered() -> None:
    assert Scorer(make("user")).probabilities(np.empty(0, int), np.empty(0, int)).shape == (0, K)
    assert lines(Scorer(make("both")), STRANGER.take(np.arange(0))).shape == (0, N_ITEMS, K)


@pytest.mark.parametrize("side", ["user", "item"])
def test_without_context_only_unknown_rows_can_be_asked_for(side: Axis) -> None:
    fitted = make(side)
    empty = replace(fitted, context=fitted.context.select(np.arange(0)), has_context=False)
    users, items = ([-1, -1], [NEW_ITEM, 3]) if side == "user" else ([2, -1], [-1, -1])
    answer = Scorer(empty).probabilities(np.array(users), np.array(items))
    told = empty if side == "user" else fitted
    expected = [said(told, {}, u, i) for u, i in zip(users, items, strict=True)]
    np.testing.assert_allclose(answer, expected, atol=1e-6)
    # What training saw is still known of those that have weights.
    axis: Axis = "item" if side == "user" else "user"
    assert (
        Scorer(empty).rating_counts(axis).tolist() == fitted.training_counts[axis].sum(1).tolist()
    )
    assert not Scorer(empty).rating_counts(side).any()
    if side == "user":
        stranger = of_user(Scorer(empty), STRANGER, [1, 3, 6])
        known = with_stranger({})
        expected = [said(fitted, known, -1, item) for item in (1, 3, 6)]
        np.testing.assert_allclose(stranger, expected, atol=1e-6)
        assert not len(stored(empty.context, -1).ratings(0)[0])


# -- cache ----------------------------------------------------------------------------------------


def rated(user: int, *ratings: tuple[int, int]) -> Entities:
    columns, levels = np.array(ratings, np.int64).reshape(-1, 2).T
    return user_of(some_ratings(), ratings_of(columns, levels), user)


def test_scores_are_cached_by_user_ratings_and_details(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 10_000)
    scorer, mask = Scorer(make("user")), np.array([1, 2], np.uint8)
    queries: list[tuple[Any, ...]] = [
        (rated(1, (2, 3)), mask, True),
        (rated(1, (2, 3)), mask, False),
        (rated(1, (2, 3)), mask[:1], True),
        (rated(1, (2, 4)), mask, True),
        (rated(1, (3, 3)), mask, True),
        (rated(1, (2, 3), (3, 3)), mask, True),
        (rated(2, (2, 3)), mask, True),
    ]
    for number, (who, *details) in enumerate(queries):
        assert scorer._cached(who, lambda n=number: [np.array([n])], *details)[0] == [number]  # type: ignore[misc]
    for number, (who, *details) in enumerate(queries):
        assert scorer._cached(who, lambda: [np.array([-1])], *details)[0] == [number]


def test_the_least_recently_used_scores_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 3 * 8)
    scorer, computed = Scorer(make("user")), list[int]()

    def ask(user: int, size: int = 1) -> None:
        def compute() -> list[Any]:
            computed.append(user)
            return [np.full(size, float(user))]

        assert scorer._cached(rated(user), compute)[0].tolist() == [user] * size

    for user in (1, 2, 3, 1, 2, 3, 1, 4):  # 4 replaces 2
        ask(user)
    ask(5, 4)  # larger than the cache: not cached, and nothing is dropped
    ask(5, 4)
    assert computed == [1, 2, 3, 4, 5, 5]
    for user in (1, 3, 4, 2):
        ask(user)
    assert computed == [1, 2, 3, 4, 5, 5, 2]
