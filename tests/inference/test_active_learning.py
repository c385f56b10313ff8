"""What to ask next, against every answer imagined one by one with the plain network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.inference.cases import estimator

from cfnade.config import TrainingConfig
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic
from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError
from cfnade.inference.active_learning import Uncertainty
from cfnade.kernels.posterior import Evidence
from cfnade.models.batch import Context
from cfnade.models.ridge import RidgeNetwork
from cfnade.training.plan import plan_side
from cfnade.training.train import train

USERS, ITEMS = 50, 25


def made(side: str) -> CFNADE:
    data = split(synthetic(USERS, ITEMS, 700, seed=3).ratings, "paper:0")
    settings = TrainingConfig(epochs=2, batch_rows=16, seed=1)
    fields = {"hidden": (6,), "ridge": 4} if side == "user" else {"hidden": (6,)}
    return estimator(train(data, plan_side(side, fields, settings)).model)


@pytest.fixture(scope="module")
def predictor() -> CFNADE:
    return made("user")


def unknown(network: RidgeNetwork, items: list[int], levels: list[int]) -> float:
    """ω of a row, in plain torch."""
    context = Context(
        torch.tensor([0, len(items)]), torch.tensor(items).long(), torch.tensor(levels).long()
    )
    return float(network.hidden(context).detach()[0, -1])


def brute_force(
    predictor: CFNADE, rated: dict[int, int], open_: set[int]
) -> dict[int, NDArray[np.float64]]:
    """By item, the expected reduction for an answer at each level, as shares of a stranger's."""
    (side,) = [
        s for s in predictor.fitted_.members[0].components.values() if s.evidence() is not None
    ]
    network = side.network
    assert isinstance(network, RidgeNetwork)
    items, levels = [*rated], [*rated.values()]
    whole, now = unknown(network, [], []), unknown(network, items, levels)
    shares = predictor.predictor_.item_counts / len(predictor.predictor_.users.table)
    return {
        item: np.array(
            [
                shares[item] * (now - unknown(network, [*items, item], [*levels, k])) / whole
                for k in range(len(predictor.scale_))
            ]
        )
        for item in open_
    }


@pytest.mark.parametrize("rated", [{}, {3: 4}, {1: 0, 7: 4, 9: 2}])
def test_the_best_question_is_that_of_brute_force(
    predictor: CFNADE, rated: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfnade.inference.active_learning._CHUNK", 2)  # so that bounds cut some off
    raws, values = predictor.predictor_.items.table, predictor.scale_.values
    history = {int(raws[item]): values[level] for item, level in rated.items()}
    asked = predictor.suggest_items_to_rate(history=history, n=4)
    known = dict(rated)
    for item, reduction in asked.select("item", "uncertainty_reduction").iter_rows():
        open_ = set(range(len(raws))) - set(known)
        expected = brute_force(predictor, known, open_)
        best = max(expected, key=lambda one: expected[one].mean())
        assert raws[best] == item
        # What is said in answer changes nothing, so its expectation is exact.
        np.testing.assert_allclose(expected[best], reduction, rtol=1e-4, atol=1e-7)
        known[best] = 2


@pytest.mark.parametrize("seed", range(5))
def test_directions_that_go_together_are_seen(seed: int) -> None:
    """Loadings at random: precisions are far from diagonal. Every question by hand."""
    rng = np.random.default_rng(seed)
    M, D = 9, 3
    u, q = rng.normal(size=(M, D)), rng.uniform(0, 0.3, (M, D))
    prior, weights, chances = rng.uniform(0.5, 2, D), rng.uniform(1, 3, D), rng.uniform(0, 1, M)
    told = [np.outer(u[i], u[i]) + np.diag(q[i]) for i in range(M)]
    products = np.array([one[np.tril_indices(D)] for one in told])
    evidence = Evidence(u, products, np.zeros((M, 2, D)), prior, weights)
    items, reductions, initial = Uncertainty(evidence).best_items(
        np.array([4]), chances, np.arange(M) != 4, 2
    )

    def left(known: list[int]) -> float:
        precision = np.diag(prior) + np.sum([told[i] for i in known], axis=0)
        stranger = weights @ (1 / prior)
        return float(weights @ np.diag(np.linalg.inv(precision)) / stranger)

    known = [4]
    assert initial == pytest.approx(left(known))
    for item, reduction in zip(items.tolist(), reductions.tolist(), strict=True):
        gains = {
            i: chances[i] * (left(known) - left([*known, i])) for i in range(M) if i not in known
        }
        assert item == max(gains, key=lambda i: gains[i])
        assert reduction == pytest.approx(gains[item])
        known.append(item)


def test_every_answer_makes_less_unknown(predictor: CFNADE) -> None:
    left: list[float] = []
    history: dict[int, float] = {}
    for _ in range(6):
        who = predictor.predictor_.resolve_user(history=history)
        asked = predictor.predictor_.suggest_items_to_rate(who, 1, np.array([], np.int64))
        left.append(asked.uncertainty)
        history[int(predictor.predictor_.items.table[asked.items[0]])] = predictor.scale_.values[0]
    assert left[0] == pytest.approx(1.0)
    assert left == sorted(left, reverse=True)
    assert len(set(left)) == 6


def test_nothing_is_asked_twice_or_against_a_wish(predictor: CFNADE) -> None:
    raws = predictor.predictor_.items.table.tolist()
    first = predictor.suggest_items_to_rate(history={}, n=3)["item"].to_list()
    second = predictor.suggest_items_to_rate(
        history={first[0]: 3.0}, n=ITEMS, exclude_items=first[1:2]
    )
    assert not set(first[:2]) & set(second["item"])
    assert len(second) == len(raws) - 2
    assert second["item"].n_unique() == len(second)
    assert second.columns == ["rank", "item", "title", "uncertainty_reduction", "n_item_ratings"]
    with pytest.raises(PredictionError, match="n "):
        predictor.suggest_items_to_rate(history={}, n=0)


def test_what_few_can_answer_is_not_asked_first(predictor: CFNADE) -> None:
    """An item that nobody rated would tell something, too, but nobody could say it."""
    counts = predictor.predictor_.item_counts
    asked = predictor.suggest_items_to_rate(history={}, n=5)["n_item_ratings"]
    assert asked.min() > np.median(counts) / 2  # type: ignore[operator]


def test_without_a_posterior_the_best_known_come_first() -> None:
    plain = made("both")
    asked = plain.suggest_items_to_rate(history={}, n=5)
    assert asked["uncertainty_reduction"].null_count() == 5
    assert (
        asked["n_item_ratings"].to_list() == sorted(plain.predictor_.item_counts.tolist())[::-1][:5]
    )
