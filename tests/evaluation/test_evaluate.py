"""Rating scores equal those of a loop over pairs, and test ratings never leak into the context."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.inference.cases import known_cells, literal
from tests.support.close import assert_close

from cfnade.calibration.calibration import Calibration, fit_calibration
from cfnade.components.optimizers import member_network
from cfnade.components.registry import component_names, new_member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.data.synthetic import synthetic
from cfnade.evaluation import rating_metrics as metrics
from cfnade.evaluation.evaluate import evaluate
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.inference.scorer import Scorer

N_USERS, N_ITEMS, STARS = 60, 9, (1.0, 2.0, 3.0, 5.0)
RANGES = (range(1), range(1, 5), range(5, 20), range(20, 100))
FloatArray = npt.NDArray[np.float64]

KINDS: dict[str, dict[str, Any]] = {
    "user": {},
    "item": {"hidden": (5, 4), "factors": 3, "shared": False},
    "both": {"seeds": 2},
}


def all_ratings(seed: int = 0) -> Dataset:
    """Every user rates every item."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(list(product(range(N_USERS), range(N_ITEMS)))).astype(np.int32)
    return Ratings(
        users=cells[:, 0],
        items=cells[:, 1],
        levels=rng.integers(0, len(STARS), len(cells)).astype(np.uint8),
        scale=Scale(STARS),
        user_ids=np.arange(N_USERS) * 3,
        item_ids=np.arange(N_ITEMS) + 100,
    )


def parts(ratings: Dataset) -> tuple[Dataset, Dataset]:
    """Context and test: of user u about u/60 is context, nothing of user 0 and of item 8."""
    rng = np.random.default_rng(5)
    known = (rng.random(len(ratings)) < ratings.users / N_USERS) & (ratings.items != 8)
    return ratings.select(known), ratings.select(~known)


def model_of(side: str, context: Dataset, **fields: Any) -> FittedModel:
    """Random weights of order one."""
    fields = {"hidden": (5,)} | fields
    seeds, time = fields.pop("seeds", 1), fields.pop("time", False)
    names = component_names(side, time=time)
    generator = torch.Generator().manual_seed(3)
    members = tuple(new_member(names, context, fields, TrainingConfig()) for _ in range(seeds))
    with torch.no_grad():
        for member in members:
            for parameter in member_network(member).parameters():
                parameter.normal_(0.0, 0.4, generator=generator)
    return FittedModel(members, side, context, count_training_ratings(members[0].axes, context))


def predicted_by_hand(fitted: FittedModel, test: Dataset) -> FloatArray:
    """Plain torch, cell by cell (tests/inference/cases.py)."""
    cells = zip(test.users.tolist(), test.items.tolist(), strict=True)
    known = known_cells(fitted.context)
    return np.array([literal(fitted, user, item, known) for user, item in cells])


@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_those_of_the_reference_model(kind: str) -> None:
    context, test = parts(all_ratings())
    fitted = model_of(kind, context, **KINDS[kind])
    fitted = replace(fitted, calibration=Calibration(1.8, (0.5, 0.0, -0.5, 0.2)))
    assert fitted.calibration is not None
    p = predicted_by_hand(fitted, test)
    q = fitted.calibration.apply(p, STARS)
    errors = [row @ STARS - STARS[level] for row, level in zip(p, test.levels, strict=True)]
    result = evaluate(fitted, test)
    assert result.n == len(test)
    assert result.rmse == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(test)))
    assert result.mae_of_medians == pytest.approx(
        metrics.mae(test.values, metrics.medians(q, STARS))
    )
    assert result.nll_raw == pytest.approx(metrics.nll(p, test.levels))
    assert result.nll == pytest.approx(metrics.nll(q, test.levels))
    assert result.rps_raw == pytest.approx(metrics.rps(p, test.levels, STARS))
    assert result.rps == pytest.approx(metrics.rps(q, test.levels, STARS))
    raw, calibrated = (metrics.calibration_error(x, test.levels) for x in (p, q))
    assert result.calibration_error_raw == pytest.approx(raw, abs=1e-3)
    assert result.calibration_error == pytest.approx(calibrated, abs=1e-3)
    assert result.nll != result.nll_raw


def test_without_calibration_raw_and_calibrated_scores_agree() -> None:
    context, test = parts(all_ratings())
    result = evaluate(model_of("user", context), test)
    assert (result.nll, result.rps) == (result.nll_raw, result.rps_raw)
    assert result.calibration_error == result.calibration_error_raw


@pytest.mark.parametrize("side", ["user", "item"])
def test_buckets_hold_every_rating_once_and_their_errors_add_up(side: str) -> None:
    context, test = parts(all_ratings())
    result = evaluate(model_of(side, context), test)
    per_user = np.bincount(context.users, minlength=N_USERS)[test.users]
    per_item = np.bincount(context.items, minlength=N_ITEMS)[test.items]
    for buckets, known in ((result.by_user, per_user), (result.by_item, per_item)):
        assert [str(bucket) for bucket in buckets] == ["0", "1–4", "5–19", "20–99", "100+"]
        sizes = [int(np.isin(known, r).sum()) for r in map(list, RANGES)]
        assert [bucket.n for bucket in buckets] == [*sizes, int((known >= 100).sum())]
        assert sum(bucket.n for bucket in buckets) == result.n
        total = sum(bucket.n * (bucket.rmse or 0.0) ** 2 for bucket in buckets)
        assert total == pytest.approx(result.n * result.rmse**2)
        assert all((bucket.rmse is None) == (bucket.n == 0) for bucket in buckets)
    filled = {str(bucket) for bucket in (*result.by_user, *result.by_item) if bucket.n}
    assert filled == {"0", "1–4", "5–19", "20–99"}


# -- no answer in the question --------------------------------------------------------------------


@pytest.mark.parametrize("side", ["user", "item"])
def test_a_test_rating_in_the_context_is_an_error(side: str) -> None:
    context, test = parts(all_ratings())
    fitted = model_of(side, context)
    leaked = np.array([3, 7])
    both = test, context.select(leaked)
    cells = np.concatenate([np.stack([part.users, part.items]) for part in both], axis=1)
    levels = np.concatenate([part.levels for part in both])
    leaking = test.replace(users=cells[0], items=cells[1], levels=levels)
    user, item = context.user_ids[context.users[3]], context.item_ids[context.items[3]]
    with pytest.raises(
        PredictionError,
        match=f"2 of {len(leaking)} test ratings are among .* first user {user} item {item}; ",
    ):
        evaluate(fitted, leaking)


def item_means() -> tuple[FittedModel, Dataset]:
    """A model that predicts every item's frequencies, and ratings of items that differ."""
    ratings = synthetic(users=200, items=60, ratings=6_000, seed=1).ratings
    chosen = np.random.default_rng(2).random(len(ratings)) < 0.8
    context, test = ratings.select(chosen), ratings.select(~chosen)
    fitted = model_of("user", context)
    network: Any = fitted.members[0].components["user"].network
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    network.initialise_biases(torch.from_numpy(fitted.training_counts["item"]), smoothing=1.0)
    return fitted, test


def test_shuffled_answers_score_worse() -> None:
    fitted, test = item_means()
    honest = evaluate(fitted, test)
    order = np.random.default_rng(3).permutation(len(test))
    shuffled = evaluate(fitted, test.replace(levels=test.levels[order]))
    assert shuffled.rmse > honest.rmse + 0.02
    assert shuffled.nll > honest.nll + 0.02


def test_calibration_changes_the_likelihood_but_not_the_rmse() -> None:
    fitted, test = item_means()
    network: Any = fitted.members[0].components["user"].network
    with torch.no_grad():
        network.b.mul_(2.5)  # far too sure of itself
    half = np.arange(len(test)) % 2 == 0
    valid, rest = test.select(half), test.select(~half)
    p = Scorer(fitted).probabilities(valid.users, valid.items)
    stars = test.scale.array()
    before = evaluate(fitted, rest)
    after = evaluate(replace(fitted, calibration=fit_calibration(p, valid.levels, stars)), rest)
    assert after.rmse == pytest.approx(before.rmse)
    assert after.nll_raw == pytest.approx(before.nll)
    assert after.nll < after.nll_raw - 0.05
    assert after.calibration_error < after.calibration_error_raw
    assert after.rps < after.rps_raw


# -- unseen and unknown ---------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["user", "item"])
def test_unseen_users_and_items_are_counted(side: str) -> None:
    context, test = parts(all_ratings())
    result = evaluate(model_of(side, context), test)
    silent = set(range(N_USERS)) - set(context.users.tolist())
    assert 0 in silent
    assert result.unseen_users == len(silent)
    assert result.unseen_items == 1
    lost = [u in silent or i == 8 for u, i in zip(test.users, test.items, strict=True)]
    assert result.unseen_ratings == sum(lost)
    assert result.by_item[0].n == N_USERS


@pytest.mark.parametrize("side", ["user", "item"])
def test_users_and_items_of_the_context_are_not_unseen(side: str) -> None:
    context, test = parts(all_ratings())
    fitted = model_of(side, context)
    (axis, counts), column = next(iter(fitted.training_counts.items())), 3 if side == "user" else 40
    fewer = counts.copy()
    fewer[column] = 0  # as if its ratings were validation's
    untrained = replace(fitted, training_counts={axis: fewer})
    scores, before = evaluate(untrained, test), evaluate(fitted, test)
    assert scores.unseen_users == before.unseen_users
    assert scores.unseen_items == before.unseen_items
    errors = predicted_by_hand(untrained, test) @ STARS - test.values
    assert scores.rmse == pytest.approx(math.sqrt(np.mean(errors**2)))
    assert scores.rmse != before.rmse


def test_the_papers_rule_predicts_3_for_unknown_pairs() -> None:
    context, test = parts(all_ratings())
    fitted = model_of("user", context)
    known = np.isin(test.users, context.users) & np.isin(test.items, context.items)
    stars = np.where(known, predicted_by_hand(fitted, test) @ STARS, 3.0)
    scores = evaluate(fitted, test, cold_start_rating=3.0)
    assert scores.rmse == pytest.approx(math.sqrt(np.mean((stars - test.values) ** 2)))
    with pytest.raises(PredictionError, match=r"cold_start_rating \(=3.2\) is not on the scale"):
        evaluate(fitted, test, cold_start_rating=3.2)


def test_time_models_predict_at_the_times_of_the_test() -> None:
    ratings = all_ratings()
    ratings = ratings.replace(times=np.arange(len(ratings)) * 3600)
    context, test = parts(ratings)
    fitted = model_of("both", context, time=True)
    cells = zip(test.users.tolist(), test.items.tolist(), test.times.tolist(), strict=True)  # type: ignore[union-attr]
    known = known_cells(context)
    some = [literal(fitted, u, i, known, time=time) for u, i, time in list(cells)[:40]]
    squares = (np.array(some) @ STARS - test.values[:40]) ** 2
    scores = evaluate(fitted, test.select(np.arange(40)))
    assert scores.rmse == pytest.approx(math.sqrt(squares.mean()), rel=1e-5)


@pytest.mark.parametrize("side", ["user", "item"])
def test_users_and_items_are_matched_by_id_not_index(side: str) -> None:
    context, test = parts(all_ratings())
    fitted = model_of(side, context)
    before = evaluate(fitted, test)
    # The same ratings loaded from a file of their own, with two more users and an item in front.
    alone = test.replace(
        users=test.users + np.int32(2),
        items=test.items + np.int32(1),
        user_ids=np.concatenate([[-5, -4], test.user_ids]),
        item_ids=np.concatenate([[-7], test.item_ids]),
    )
    assert_close(evaluate(fitted, alone).as_dict(), before.as_dict())
    strange = [(0, 4), (0, 6), (1, 6), (51, 0)]  # two unknown users, one twice; unknown item
    more = alone.replace(
        users=np.append(alone.users, [u for u, _ in strange]).astype(np.int32),
        items=np.append(alone.items, [i for _, i in strange]).astype(np.int32),
        levels=np.append(alone.levels, [0, 1, 2, 3]).astype(np.uint8),
    )
    after = evaluate(fitted, more)
    assert after.n == before.n + 4
    assert after.unseen_users == before.unseen_users + 2
    assert after.unseen_items == before.unseen_items + 1
    assert after.unseen_ratings == before.unseen_ratings + 4
    assert after.by_user[0].n == before.by_user[0].n + 3
    assert after.by_item[0].n == before.by_item[0].n + 1


def test_scores_are_json() -> None:
    context, test = parts(all_ratings())
    result = evaluate(model_of("user", context), test)
    read = json.loads(json.dumps(result.as_dict()))
    assert read == result.as_dict()
    assert read["rmse"] == result.rmse
    first = result.by_user[0]
    assert read["by_user"][0] == {
        "known": "0",
        "low": 0,
        "high": 0,
        "n": first.n,
        "rmse": first.rmse,
    }
    assert read["by_user"][-1]["known"] == "100+"


# -- refusals -------------------------------------------------------------------------------------


def test_unusable_tests_are_errors() -> None:
    context, test = parts(all_ratings())
    fitted = model_of("user", context)
    text = np.array([str(i) for i in context.item_ids], object)
    other = test.replace(scale=Scale((1.0, 2.0, 3.0, 4.0)))
    cases: list[tuple[FittedModel, Dataset, str]] = [
        (fitted, test.select(np.array([], np.int64)), "no ratings to evaluate on"),
        (fitted, other, "on the scale 1–4, the model was trained on 1, 2, 3, 5"),
        (fitted, test.replace(item_ids=text), "item ids of the test are text, those of the model"),
        (replace(fitted, has_context=False), test, "saved without the ratings"),
    ]
    for given, ratings, message in cases:
        with pytest.raises(PredictionError, match=message):
            evaluate(given, ratings)
