"""What every side of a choice promises, whatever its kind: a new one has a maker in given.SIDES."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.choice.given import SIDES, M, some_choice, some_picks
from tests.choice.toy import PopularSide

from cfnade import checkpoint
from cfnade.choice import CHOICE_KINDS, Choice, choice_shapes, saved_choice
from cfnade.choice.choice_side import ChoiceSide
from cfnade.choice.picks import Picks
from cfnade.data.synthetic_picks import synthetic_picks
from cfnade.exceptions import CheckpointError, ModelError
from cfnade.fitted import FittedModel, trained_on
from cfnade.predictor import Predictor
from cfnade.sides.side import Row

PICKS = some_picks(weighed=True)
each_side = pytest.mark.parametrize("which", list(SIDES))


def made(which: str) -> ChoiceSide:
    return SIDES[which](PICKS)


def test_every_kind_is_made_here() -> None:
    assert {name.split("-")[0] for name in SIDES} == set(CHOICE_KINDS)


@each_side
def test_every_item_has_a_finite_score_for_everybody(which: str) -> None:
    side = made(which)
    scores = side.scores(PICKS)
    assert side.n_items == M
    assert scores.shape == (len(PICKS), M)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert side.scores(PICKS.take(np.empty(0, np.int64))).shape == (0, M)
    assert np.ptp(scores[:2], axis=0).any()  # who is known otherwise gets other scores


@each_side
def test_nobody_feels_who_else_is_asked_about(which: str) -> None:
    side = made(which)
    together = side.scores(PICKS)
    for row in (0, 2, 7, len(PICKS) - 1):
        alone = side.scores(PICKS.take(np.array([row])))
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(PICKS))
    np.testing.assert_allclose(
        side.scores(PICKS.take(order)), together[order], rtol=1e-4, atol=1e-5
    )


@each_side
def test_scores_are_added_to_what_is_there(which: str) -> None:
    side = made(which)
    total = np.linspace(-1, 1, len(PICKS) * M, dtype=np.float32).reshape(-1, M)
    want = total - 2.5 * side.scores(PICKS)
    side.add_scores(total, -2.5, PICKS)
    np.testing.assert_allclose(total, want, rtol=1e-4, atol=1e-5)


@each_side
def test_picks_have_no_order(which: str) -> None:
    side, rng = made(which), np.random.default_rng(1)
    places = [rng.permutation(np.arange(*ends)) for ends in pairwise(PICKS.offsets)]
    mixed = np.concatenate(places)
    parts = PICKS.columns[mixed], PICKS.levels[mixed], PICKS.weights[mixed]
    other = Picks(PICKS.offsets, *parts, M)
    np.testing.assert_allclose(side.scores(other), side.scores(PICKS), rtol=1e-4, atol=1e-5)


@each_side
def test_asking_changes_nothing(which: str) -> None:
    side = made(which)
    before = {name: table.copy() for name, table in side.tables().items()}
    first = side.scores(PICKS)
    kept = first.copy()
    first += 1.0  # may be written to
    np.testing.assert_array_equal(side.scores(PICKS), kept)
    for name, table in side.tables().items():
        np.testing.assert_array_equal(table, before[name])


@each_side
def test_a_saved_side_has_the_same_bits(which: str) -> None:
    side = made(which)
    fields, tables = json.loads(json.dumps(side.to_dict())), side.tables()
    assert {n: t.shape for n, t in tables.items()} == type(side).shapes(fields)
    again = type(side).from_saved(fields, {n: t.copy() for n, t in tables.items()})
    np.testing.assert_array_equal(again.scores(PICKS), side.scores(PICKS))
    vectors = side.vectors()
    if vectors is not None:
        assert vectors.shape[0] == M
        np.testing.assert_array_equal(again.vectors(), vectors)


def test_a_saved_choice_has_the_same_bits() -> None:
    choice = some_choice(PICKS)
    described = json.loads(json.dumps(choice.to_dict()))
    assert choice_shapes(described) == {n: t.shape for n, t in choice.tables().items()}
    again = saved_choice(described, choice.tables())
    np.testing.assert_array_equal(again.log_chances(PICKS), choice.log_chances(PICKS))
    np.testing.assert_array_equal(again.nobody, choice.nobody)
    lengths = np.linalg.norm(choice.vectors(), axis=1)  # type: ignore[arg-type]
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-5)


def test_nobody_is_who_picked_nothing() -> None:
    choice = some_choice(PICKS)
    nothing = Row(np.empty(0, np.int32), np.empty(0, np.uint8))
    alone = choice.log_chances(Picks.of_people([nothing], M))
    np.testing.assert_array_equal(choice.nobody, alone[0])
    assert np.exp(choice.nobody).sum() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"genre": {"weight": 1, "fields": {}}}, "unknown side 'genre' of a choice; this version"),
        ({}, "a choice has no sides"),
        ({"linear": {"weight": 1, "fields": {"columns": 3, "penalty": -1}}}, "penalty"),
        ({"nade": {"weight": 1, "fields": {"networks": 10**9}}}, "networks"),
    ],
)
def test_what_no_version_knows_is_refused(described: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        saved_choice(described, choice_shapes(described))  # type: ignore[arg-type]


# -- a new kind ------------------------------------------------------------------------------------


def test_the_toy_is_a_toy() -> None:
    assert (
        len(Path(sys.modules[PopularSide.__module__].__file__ or "").read_text().split("\n")) < 40
    )


def toy_model() -> FittedModel:
    ratings = synthetic_picks(20, M, 4, seed=0).ratings
    counts = np.bincount(ratings.items, minlength=M)
    logs = np.log(counts + 1.0).astype(np.float32)
    choice = Choice({"popular": PopularSide(logs)}, {"popular": 1.0})
    counted = trained_on(("user",), ratings)
    return FittedModel((), "picks", ratings, counted, choice=choice)


def test_a_new_kind_is_its_module_and_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = toy_model()
    checkpoint.save(fitted, tmp_path)
    with pytest.raises(CheckpointError, match="unknown side 'popular' of a choice"):
        checkpoint.load(tmp_path)
    monkeypatch.setitem(CHOICE_KINDS, "popular", PopularSide)
    for predictor in (Predictor(fitted), Predictor.load(tmp_path)):
        counts = predictor.item_counts
        listed = predictor.recommend([1], n=3, exclude_seen=False)
        best = sorted(range(M), key=lambda i: (-counts[i], i))[:3]
        assert (listed["item"] - 1).to_list() == best
        np.testing.assert_allclose(
            listed["pick"], (counts[best] + 1) / (counts + 1).sum(), rtol=1e-5
        )
        assert predictor.similar_items(1, n=2).height == 2
        # Who is known by less has more left to pick from: each pick hides what it weighs.
        own = predictor.fitted.context.items[:4]
        odds = counts + 1.0
        item = next(i for i in best if i not in own)
        why = predictor.explain(user=1, item=item + 1)
        left = odds.sum() - odds[own].sum()
        expected = 1 + odds[why["item"].to_numpy() - 1] / left
        np.testing.assert_allclose(why["times"], expected, rtol=1e-5)
