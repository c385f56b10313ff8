"""What sides count: the weight that was planted, and chances that are honest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.choice.given import SIDES, some_picks

from cfnade.choice import Choice
from cfnade.choice.blending import USUAL, AskedPeople, blended, kept, mean_ndcg
from cfnade.choice.choice_side import ChoiceSide
from cfnade.choice.picks import Picks

PEOPLE, M = 400, 30


class Told:
    """A side whose scores are given, whoever asks."""

    def __init__(self, scores: Any) -> None:
        self._scores = scores.astype(np.float32)

    def scores(self, known: Picks) -> Any:
        return self._scores[: len(known)].copy()

    add_scores: Any = ChoiceSide.add_scores


def next_picks(liking: Any, seed: int) -> AskedPeople:
    """Two are known of everybody, at random; the one after is drawn by the chances of the rest."""
    rng = np.random.default_rng(seed)
    columns = liking.shape[1]
    known = np.argsort(rng.random(liking.shape), axis=1)[:, :2]
    left = liking + rng.gumbel(size=liking.shape)
    np.put_along_axis(left, known, -np.inf, 1)
    return AskedPeople(_picks(known, columns), _picks(left.argmax(1)[:, None], columns))


def _picks(items: Any, columns: int) -> Picks:
    n, each = items.shape
    flat = items.astype(np.int32).ravel()
    parts = np.zeros(len(flat), np.uint8), np.ones(len(flat), np.float32)
    return Picks(np.arange(0, n * each + 1, each), flat, *parts, columns)


def test_the_planted_weight_is_found() -> None:
    """Two sides, each half of the truth: 1 and 0.5 in units of what they vary."""
    rng = np.random.default_rng(0)
    first, second = 2 * rng.standard_normal((2, 3000, M))
    asked = next_picks(first + 0.5 * second, 1)
    sides: Any = {"nade": Told(first), "linear": Told(0.01 * second)}
    weights, found = blended(sides, asked, asked.known)
    ratio = 0.01 * weights["linear"] / weights["nade"]
    assert 0.3 <= ratio <= 0.7  # neighbours of 0.5 in the grid are 0.4 and 0.7
    assert found["ndcg"] > max(found["alone"].values())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("useless", ["nade", "linear", "posterior"])
def test_a_component_with_random_scores_has_weight_0(useless: str, seed: int) -> None:
    """Whichever it is; the first component is no exception."""
    rng = np.random.default_rng(seed)
    truth, noise, error = 2 * rng.standard_normal((3, 2000, M))
    asked = next_picks(truth, 2)
    good = iter([truth + 0.5 * error, truth - 0.5 * error])
    sides: Any = {
        name: Told(noise if name == useless else next(good))
        for name in ("nade", "linear", "posterior")
    }
    weights, _ = blended(sides, asked, asked.known)
    assert weights.pop(useless) == 0
    assert min(weights.values()) > 0


@pytest.mark.parametrize("seed", range(6))
def test_the_blend_is_not_below_its_best_component(seed: int) -> None:
    """Measured again from the weights, on people few enough to overfit to."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.standard_normal((60, M))
    asked = next_picks(truth, seed)
    names = ("nade", "linear", "posterior")
    sides: Any = {
        name: Told(rng.uniform(0.01, 5) * (rng.uniform(0, 1) * truth + rng.normal(size=(60, M))))
        for name in names
    }
    weights, found = blended(sides, asked, asked.known)
    scores = {name: side.scores(asked.known) for name, side in sides.items()}
    alone = {name: mean_ndcg(one.copy(), asked) for name, one in scores.items()}
    total = np.sum([weights[name] * scores[name] for name in names], axis=0)
    together = mean_ndcg(total.astype(np.float32), asked)
    assert together >= max(alone.values()) - 1e-6
    assert found["ndcg"] == pytest.approx(together, abs=1e-5)
    assert found["alone"] == {name: pytest.approx(value, abs=1e-5) for name, value in alone.items()}
    assert min(weights.values()) >= 0


def test_a_model_keeps_the_components_that_count_and_one_with_item_vectors() -> None:
    picks = some_picks()
    sides = {name: SIDES[name](picks) for name in ("nade", "linear", "posterior")}
    cases = {
        (1.0, 0.5, 0.0): ["linear", "nade"],
        (0.0, 0.5, 0.2): ["linear", "posterior"],
        (0.0, 0.5, 0.0): ["linear", "nade"],  # it alone has no vectors
    }
    for weights, names in cases.items():
        assert sorted(kept(sides, dict(zip(sides, weights, strict=True)))) == names


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_chances_are_honest(sharpness: float) -> None:
    """Scores that are too flat are sharpened to those that drew the picks, within a step."""
    truth = 1.5 * np.random.default_rng(3).standard_normal((3000, M))
    asked = next_picks(truth, 4)
    weights, _ = blended({"nade": Told(truth / sharpness)}, asked, asked.known)  # type: ignore[dict-item]
    step = (3.0 / 0.3) ** (1 / 24)
    assert sharpness / step <= weights["nade"] <= sharpness * step


def test_without_answers_sides_are_weighed_by_how_much_they_vary() -> None:
    picks = some_picks()
    rng = np.random.default_rng(5)
    scores = {"nade": 3.0, "linear": 0.02, "posterior": 0.3}
    sides: Any = {n: Told(size * rng.standard_normal((30, 500))) for n, size in scores.items()}
    for asked in (None, AskedPeople(picks, picks.where(np.zeros(len(picks.columns), bool)))):
        weights, found = blended(sides, asked, picks)
        assert found == {}
        assert weights["nade"] == 1.0
        for name in ("linear", "posterior"):
            spread = weights[name] * scores[name] / scores["nade"]
            assert spread == pytest.approx(USUAL[name], rel=0.05)
    assert blended({"linear": sides["linear"]}, None, picks)[0] == {"linear": 1.0}


def test_ndcg_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(6)
    scores = rng.standard_normal((PEOPLE, M)).astype(np.float32)
    known = rng.random((PEOPLE, M)) < 0.2
    right = ~known & (rng.random((PEOPLE, M)) < 0.1)
    right[0] = False  # nobody to be right about
    picks = [_ragged(*np.nonzero(mask)) for mask in (known, right)]
    values = []
    for row in range(PEOPLE):
        order = [i for i in np.argsort(-scores[row]) if not known[row, i]][:7]
        wanted = int(right[row].sum())
        if wanted:
            gain = sum(right[row, i] / np.log2(2 + at) for at, i in enumerate(order))
            values.append(gain / sum(1 / np.log2(2 + at) for at in range(min(7, wanted))))
    assert mean_ndcg(scores.copy(), AskedPeople(*picks), 7) == pytest.approx(
        np.mean(values), rel=1e-6
    )


def _ragged(rows: Any, columns: Any) -> Picks:
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=PEOPLE))])
    n = len(columns)
    parts = np.zeros(n, np.uint8), np.ones(n, np.float32)
    return Picks(offsets, columns.astype(np.int32), *parts, M)


def test_a_choice_is_the_weighed_sum_as_a_softmax_over_what_is_not_known() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.standard_normal((2, 3, M))
    picks = _picks(np.array([[0, 4], [5, 2], [7, 1]]), M)
    choice = Choice({"a": Told(first), "b": Told(second)}, {"a": 2.0, "b": -0.5})  # type: ignore[dict-item]
    choice.sides["a"].n_items = M  # type: ignore[misc]
    odds = np.exp(2 * first - 0.5 * second)
    everything = odds / odds.sum(1, keepdims=True)
    np.testing.assert_allclose(
        np.exp(choice.log_chances(picks, left_out=False)), everything, rtol=1e-4
    )
    odds[picks.rows, picks.columns] = 0.0
    chances = np.exp(choice.log_chances(picks))
    np.testing.assert_allclose(chances, odds / odds.sum(1, keepdims=True), rtol=1e-4)
    assert not chances[picks.rows, picks.columns].any()


def test_who_picked_everything_has_no_next_pick() -> None:
    choice = Choice({"a": Told(np.zeros((1, 3)))}, {"a": 1.0})  # type: ignore[dict-item]
    choice.sides["a"].n_items = 3  # type: ignore[misc]
    assert (choice.log_chances(_picks(np.array([[0, 1, 2]]), 3)) == -np.inf).all()
