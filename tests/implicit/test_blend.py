"""Weights: planted ones are found, useless ones are 0, the blend is not below its best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.implicit.cases import M, matrix, some_model, some_rows

from cfnade.exceptions import ModelError
from cfnade.implicit import InteractionModel
from cfnade.implicit import blend as blend_module
from cfnade.implicit.blend import collect_candidates, fit_weights, join_candidates
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.sharpness import Observed, fit_sharpness, shorten
from cfnade.implicit.validation import MetricName, Question, RankingMetric
from cfnade.training.implicit import needed_components

ITEMS = 40


def rows_of(mask: Any) -> InteractionRows:
    items = np.nonzero(mask)[1]
    indptr = np.concatenate([[0], np.cumsum(mask.sum(1))])
    weights = np.ones(len(items), np.float32)
    return InteractionRows(indptr.astype(np.int64), items.astype(np.int32), weights, mask.shape[1])


def question_of(truth: Any, seed: int, answers: int = 3) -> Question:
    """Two items are known of each user, at random; the next ones follow the softmax of truth."""
    rng = np.random.default_rng(seed)
    known = np.argsort(rng.random(truth.shape), axis=1)[:, :2]
    keys = truth + rng.gumbel(size=truth.shape)
    np.put_along_axis(keys, known, -np.inf, 1)
    nexts = np.argsort(-keys, axis=1)[:, :answers]
    masks = np.zeros((2, *truth.shape), bool)
    np.put_along_axis(masks[0], known, True, 1)
    np.put_along_axis(masks[1], nexts, True, 1)
    return Question(rows_of(masks[0]), rows_of(masks[1]))


def blend_of(scores: dict[str, Any], question: Question, k: int = 10) -> Any:
    arrays = {name: one.astype(np.float32) for name, one in scores.items()}
    return fit_weights(
        list(arrays), collect_candidates(arrays, question, RankingMetric(k=k)), seed=0
    )


@pytest.mark.parametrize("metric", ["ndcg", "recall"])
def test_metrics_are_those_of_a_loop(metric: MetricName) -> None:
    rng = np.random.default_rng(6)
    scores = rng.standard_normal((200, ITEMS)).astype(np.float32)
    known = rng.random(scores.shape) < 0.2
    answers = ~known & (rng.random(scores.shape) < 0.1)
    question = Question(rows_of(known), rows_of(answers))
    found = RankingMetric(metric=metric, k=7).evaluate(scores, question)
    for row in range(200):
        order = [i for i in np.argsort(-scores[row]) if not known[row, i]][:7]
        wanted = int(answers[row].sum())
        gain = sum(answers[row, i] / np.log2(2 + place) for place, i in enumerate(order))
        best = sum(1 / np.log2(2 + place) for place in range(min(7, wanted))) or 1.0
        if metric == "recall":
            gain, best = answers[row, order].sum(), max(1, wanted)
        assert found[row] == pytest.approx(gain / best, abs=1e-6)


def test_a_blend_is_tuned_for_its_metric() -> None:
    """The second component moves hits within the first ten, which recall does not see."""
    rng = np.random.default_rng(3)
    truth = 3 * rng.standard_normal((2000, ITEMS))
    question = question_of(truth, 3, answers=5)
    coarse = (np.argsort(np.argsort(truth, 1), 1) >= ITEMS - 10).astype(np.float32)
    scores = {"coarse": coarse, "fine": (truth * coarse).astype(np.float32)}
    metrics: tuple[MetricName, ...] = ("ndcg", "recall")
    blends = {
        metric: fit_weights(
            list(scores),
            collect_candidates(scores, question, RankingMetric(metric=metric, k=10)),
            seed=0,
        )
        for metric in metrics
    }
    for metric, blend in blends.items():
        total = sum(
            blend.weights[name] * (s - s.mean(1, keepdims=True)) / s.std(1, keepdims=True)
            for name, s in scores.items()
        )
        value = RankingMetric(metric=metric, k=10).evaluate(total.astype(np.float32), question)
        assert blend.score == pytest.approx(float(value.mean()), abs=2e-3)
    assert blends["ndcg"].weights["fine"] > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("useless", ["first", "second", "third"])
def test_a_component_with_random_scores_has_weight_0(useless: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, noise, error = 2 * rng.standard_normal((3, 2000, ITEMS))
    good = iter([truth + 0.5 * error, truth - 0.5 * error])
    names = ("first", "second", "third")
    scores = {name: noise if name == useless else next(good) for name in names}
    blend = blend_of(scores, question_of(truth, seed))
    assert blend.weights.pop(useless) == 0
    assert min(blend.weights.values()) > 0.2


def test_the_planted_ratio_is_found() -> None:
    rng = np.random.default_rng(0)
    first, second = 2 * rng.standard_normal((2, 4000, ITEMS))
    question = question_of(first + 0.5 * second, 1)
    blend = blend_of({"first": first, "second": 0.01 * second}, question)
    assert 0.3 <= blend.weights["second"] / blend.weights["first"] <= 0.75
    assert blend.score > max(blend.component_scores.values())


@pytest.mark.parametrize("seed", range(6))
def test_the_blend_is_not_below_its_best_component(seed: int) -> None:
    """Measured again from the weights with all items, on few users."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.standard_normal((60, ITEMS))
    question = question_of(truth, seed)
    scores = {
        name: (rng.uniform(0, 1) * truth + rng.normal(size=truth.shape)).astype(np.float32)
        for name in ("first", "second", "third")
    }
    blend = blend_of(scores, question)
    alone = {
        n: float(RankingMetric(k=10).evaluate(one, question).mean()) for n, one in scores.items()
    }
    standard = [
        blend.weights[n] * (one - one.mean(1, keepdims=True)) / one.std(1, keepdims=True)
        for n, one in scores.items()
    ]
    together = float(RankingMetric(k=10).evaluate(np.sum(standard, 0, np.float32), question).mean())
    assert blend.score >= max(alone.values()) - 1e-6
    assert blend.score == pytest.approx(together, abs=2e-3)
    assert blend.component_scores == {
        name: pytest.approx(value, abs=1e-5) for name, value in alone.items()
    }
    assert sum(blend.weights.values()) == pytest.approx(1.0)


def test_weights_below_the_best_component_are_replaced_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halves of the users may agree on weights that are worse for all of them."""
    truth, noise = 2 * np.random.default_rng(0).standard_normal((2, 200, ITEMS))
    monkeypatch.setattr(blend_module, "search_weights", lambda _: np.array([0.0, 1.0]))
    blend = blend_of({"good": truth, "noise": noise}, question_of(truth, 0))
    assert blend.weights == {"good": 1.0, "noise": 0.0}
    assert blend.score == max(blend.component_scores.values())


def test_parts_of_a_question_are_joined() -> None:
    truth = np.random.default_rng(0).standard_normal((50, ITEMS)).astype(np.float32)
    question = question_of(truth, 0)
    whole = collect_candidates({"a": truth}, question, RankingMetric(k=5))
    halves = [
        collect_candidates(
            {"a": truth[part]},
            Question(question.history.select(part), question.answers.select(part)),
            RankingMetric(k=5),
        )
        for part in (np.arange(20), np.arange(20, 50))
    ]
    np.testing.assert_allclose(join_candidates(halves).evaluate([1.0]), whole.evaluate([1.0]))


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_probabilities_are_calibrated(sharpness: float) -> None:
    truth = (1.5 * np.random.default_rng(3).standard_normal((3000, ITEMS))).astype(np.float32)
    question = question_of(truth, 4, answers=1)
    found = fit_sharpness([Observed(truth / sharpness, question.history, question.answers)])
    factors = found.factors(question.history.counts)
    np.testing.assert_allclose(factors, sharpness, rtol=0.15)


def test_short_histories_are_less_sharp_where_they_say_less() -> None:
    """Scores of users with n interactions are planted with a factor of n / (n + 8)."""
    rng = np.random.default_rng(5)
    truth = (1.5 * rng.standard_normal((4000, ITEMS))).astype(np.float32)
    counts = np.array([1, 2, 4, 8, 16])[np.arange(4000) % 5]
    known = np.argsort(rng.random(truth.shape), axis=1)
    masks = np.zeros((2, *truth.shape), bool)
    np.put_along_axis(masks[0], known, np.arange(ITEMS) < counts[:, None], 1)
    keys = truth * (counts / (counts + 8.0))[:, None] + rng.gumbel(size=truth.shape)
    keys[masks[0]] = -np.inf
    masks[1][np.arange(4000), keys.argmax(1)] = True
    found = fit_sharpness([Observed(truth, rows_of(masks[0]), rows_of(masks[1]))])
    assert found.half_count in (4.0, 8.0, 16.0)
    for n in (1, 4, 16):
        planted = n / (n + 8)
        assert float(found.factors(np.array([n]))[0]) == pytest.approx(planted, rel=0.35)


def test_shortened_histories_lose_nothing() -> None:
    rows = some_rows(200)
    none = rows.where(np.zeros(len(rows.columns), bool))
    known, answers = shorten(rows, none, 0)
    np.testing.assert_array_equal(known.counts + answers.counts, rows.counts)
    np.testing.assert_array_equal(matrix(known) + matrix(answers), matrix(rows))
    assert known.counts[rows.counts > 0].min() >= 1
    assert 0.3 < len(known.columns) / len(rows.columns) < 0.8


# -- the model -------------------------------------------------------------------------------------


def test_a_model_is_the_softmax_of_weighted_standardized_scores() -> None:
    rows = some_rows(weighted=True)
    model = some_model(rows)
    total = np.zeros((len(rows), M))
    for name, component in model.components.items():
        scores = component.scores(rows).astype(np.float64)
        spread = scores.std(1, keepdims=True)
        standard = (scores - scores.mean(1, keepdims=True)) / np.where(
            spread > 1e-9, spread, np.inf
        )
        total += model.weights[name] * standard
    counts = rows.counts[:, None]
    total *= 0.8 * counts / (counts + 2)
    counts = np.bincount(rows.columns, rows.weights, minlength=M)
    total[2] = np.log1p(counts)  # the user without interactions
    odds = np.exp(total)
    np.testing.assert_allclose(
        np.exp(model.log_probabilities(rows, exclude_known=False)),
        odds / odds.sum(1, keepdims=True),
        rtol=1e-3,
    )
    odds[matrix(rows) > 0] = 0.0
    found = np.exp(model.log_probabilities(rows))
    np.testing.assert_allclose(found, odds / odds.sum(1, keepdims=True), rtol=1e-3)
    base = (counts + 1) / (counts + 1).sum()
    np.testing.assert_allclose(np.exp(model.base_log_probabilities), base, rtol=1e-4)


def test_a_component_of_weight_0_is_not_asked() -> None:
    rows = some_rows()
    model = some_model(rows)
    expected = model.scores(rows)

    def fail(_: object) -> None:
        raise AssertionError

    idle = type("Idle", (), {"scores": fail, "n_items": M})()
    components: Any = dict(model.components) | {"idle": idle}
    silent = InteractionModel(components, dict(model.weights) | {"idle": 0.0}, model.sharpness)
    np.testing.assert_array_equal(silent.scores(rows), expected)


def test_a_user_with_every_item_has_no_next_item() -> None:
    rows = InteractionRows(
        np.array([0, M]), np.arange(M, dtype=np.int32), np.ones(M, np.float32), M
    )
    assert (some_model(some_rows()).log_probabilities(rows) == -np.inf).all()


def test_a_model_needs_popularity() -> None:
    with pytest.raises(ModelError, match="popularity"):
        InteractionModel({}, {})


def test_a_model_keeps_components_with_a_weight_popularity_and_item_vectors() -> None:
    blend: Any = type("Found", (), {})()
    names = ["ease", "filter", "ials", "popularity"]
    blend.component_scores = {"ease": 0.4, "filter": 0.2, "ials": 0.3, "popularity": 0.1}
    for weights, kept in (
        ((1.0, 0.0, 0.0, 0.0), {"ease", "ials", "popularity"}),
        ((0.5, 0.5, 0.0, 0.0), {"ease", "filter", "popularity"}),
        ((0.0, 0.0, 0.0, 1.0), {"popularity", "ials"}),
    ):
        blend.weights = dict(zip(names, weights, strict=True))
        assert set(needed_components(blend, names)) == kept
