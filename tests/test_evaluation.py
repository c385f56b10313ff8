"""Evaluation scores what a loop over cells scores, and no answer leaks into its question."""

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

from cfnade import metrics
from cfnade.bundle import Bundle
from cfnade.calibration import Calibration, fit
from cfnade.cells import cell_probabilities
from cfnade.data.ratings import Ratings, Side
from cfnade.data.scale import Scale
from cfnade.data.synthetic import synthetic
from cfnade.errors import PredictionError
from cfnade.evaluation import evaluate
from cfnade.models import CFNADE, Context
from cfnade.models.unseen import unseen_rule

N_USERS, N_ITEMS, STARS = 130, 9, (1.0, 2.0, 3.0, 5.0)
RANGES = (range(1), range(1, 5), range(5, 20), range(20, 100))
FloatArray = npt.NDArray[np.float64]

VARIANTS: dict[str, dict[str, Any]] = {
    "unshared": {"shared": False},
    "shared": {},
    "factored": {"factors": 3},
    "deep": {"hidden": (5, 4)},
}


def all_ratings(seed: int = 0) -> Ratings:
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


def parts(ratings: Ratings) -> tuple[Ratings, Ratings]:
    """Context and test: of user u about u/130 is context, nothing of user 0 and of item 8."""
    rng = np.random.default_rng(5)
    known = (rng.random(len(ratings)) < ratings.users / N_USERS) & (ratings.items != 8)
    return ratings.select(known), ratings.select(~known)


def bundle_of(side: Side, context: Ratings, **fields: Any) -> Bundle:
    columns = context.n_items if side == "user" else context.n_users
    levels = len(context.scale)
    model = CFNADE(**{"columns": columns, "levels": levels, "hidden": (5,), **fields}).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    rows = context.rows(side)
    counts = np.zeros((columns, levels), np.int64)
    np.add.at(counts, (rows.columns, rows.levels), 1)
    return Bundle(model, side, context, counts)


def predicted_by_hand(bundle: Bundle, test: Ratings) -> FloatArray:
    """The plain model on one context a row, made by loops; then the rule for unseen columns."""
    by_user = bundle.side == "user"
    known: dict[int, list[tuple[int, int]]] = {}
    context = bundle.context
    for u, i, level in zip(context.users, context.items, context.levels, strict=True):
        row, column = (int(u), int(i)) if by_user else (int(i), int(u))
        known.setdefault(row, []).append((column, int(level)))
    n_rows = N_USERS if by_user else N_ITEMS
    flat = [rating for row in range(n_rows) for rating in known.get(row, [])]
    ends = torch.tensor([0, *(len(known.get(row, [])) for row in range(n_rows))]).cumsum(0)
    whole = Context(ends, *(torch.tensor([rating[j] for rating in flat]) for j in (0, 1)))
    users, items = torch.from_numpy(test.users.copy()), torch.from_numpy(test.items.copy())
    rows, columns = (users, items) if by_user else (items, users)
    found = bundle.one_sided_model.predict(whole, rows, columns, STARS)
    counts = torch.from_numpy(bundle.column_counts)
    rule = unseen_rule("mean", counts=counts.sum(0), values=STARS)
    unseen = counts.sum(1)[columns] == 0
    found = rule.apply(found, unseen_column=unseen, unseen_row=torch.zeros_like(unseen))
    answer: FloatArray = found.probabilities.detach().numpy()
    return answer


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_scores_are_those_of_the_plain_model(side: Side, variant: str) -> None:
    context, test = parts(all_ratings())
    bundle = bundle_of(side, context, **VARIANTS[variant])
    bundle = replace(bundle, calibration=Calibration(1.8, (0.5, 0.0, -0.5, 0.2)))
    assert bundle.calibration is not None
    p = predicted_by_hand(bundle, test)
    q = bundle.calibration.apply(p, STARS)
    errors = [row @ STARS - STARS[level] for row, level in zip(p, test.levels, strict=True)]
    found = evaluate(bundle, test)
    assert found.n == len(test)
    assert found.rmse == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(test)))
    assert found.mae == pytest.approx(metrics.mae(test.values, metrics.medians(q, STARS)))
    assert found.nll_raw == pytest.approx(metrics.nll(p, test.levels))
    assert found.nll == pytest.approx(metrics.nll(q, test.levels))
    assert found.rps_raw == pytest.approx(metrics.rps(p, test.levels, STARS))
    assert found.rps == pytest.approx(metrics.rps(q, test.levels, STARS))
    raw, calibrated = (metrics.calibration_error(x, test.levels) for x in (p, q))
    assert found.calibration_error_raw == pytest.approx(raw, abs=1e-3)
    assert found.calibration_error == pytest.approx(calibrated, abs=1e-3)
    assert found.nll != found.nll_raw


def test_without_calibration_both_columns_agree() -> None:
    context, test = parts(all_ratings())
    found = evaluate(bundle_of("user", context), test)
    assert (found.nll, found.rps) == (found.nll_raw, found.rps_raw)
    assert found.calibration_error == found.calibration_error_raw


@pytest.mark.parametrize("side", ["user", "item"])
def test_buckets_hold_every_rating_once_and_their_errors_add_up(side: Side) -> None:
    context, test = parts(all_ratings())
    found = evaluate(bundle_of(side, context), test)
    per_user = np.bincount(context.users, minlength=N_USERS)[test.users]
    per_item = np.bincount(context.items, minlength=N_ITEMS)[test.items]
    for buckets, known in ((found.by_user, per_user), (found.by_item, per_item)):
        assert [str(bucket) for bucket in buckets] == ["0", "1–4", "5–19", "20–99", "100+"]
        sizes = [int(np.isin(known, r).sum()) for r in map(list, RANGES)]
        assert [bucket.n for bucket in buckets] == [*sizes, int((known >= 100).sum())]
        assert sum(bucket.n for bucket in buckets) == found.n
        total = sum(bucket.n * (bucket.rmse or 0.0) ** 2 for bucket in buckets)
        assert total == pytest.approx(found.n * found.rmse**2)
        assert all((bucket.rmse is None) == (bucket.n == 0) for bucket in buckets)
    filled = {str(bucket) for bucket in (*found.by_user, *found.by_item) if bucket.n}
    assert filled == {"0", "1–4", "5–19", "20–99"}


# -- no answer in the question --------------------------------------------------------------------


@pytest.mark.parametrize("side", ["user", "item"])
def test_a_test_rating_in_the_context_is_an_error(side: Side) -> None:
    context, test = parts(all_ratings())
    bundle = bundle_of(side, context)
    leaked = np.array([3, 7])
    both = test, context.select(leaked)
    cells = np.concatenate([np.stack([part.users, part.items]) for part in both], axis=1)
    levels = np.concatenate([part.levels for part in both])
    leaking = replace(test, users=cells[0], items=cells[1], levels=levels)
    user, item = context.user_ids[context.users[3]], context.item_ids[context.items[3]]
    with pytest.raises(
        PredictionError,
        match=f"2 of {len(leaking)} test ratings are among .* first user {user} item {item}; ",
    ):
        evaluate(bundle, leaking)


def item_means() -> tuple[Bundle, Ratings]:
    """A model that predicts every item's frequencies, and ratings of items that differ."""
    ratings = synthetic(users=200, items=60, ratings=6_000, seed=1).ratings
    chosen = np.random.default_rng(2).random(len(ratings)) < 0.8
    context, test = ratings.select(chosen), ratings.select(~chosen)
    bundle = bundle_of("user", context)
    with torch.no_grad():
        for parameter in bundle.model.parameters():
            parameter.zero_()
    bundle.one_sided_model.initialise_biases(torch.from_numpy(bundle.column_counts), smoothing=1.0)
    return bundle, test


def test_shuffled_answers_score_worse() -> None:
    bundle, test = item_means()
    honest = evaluate(bundle, test)
    order = np.random.default_rng(3).permutation(len(test))
    shuffled = evaluate(bundle, replace(test, levels=test.levels[order]))
    assert shuffled.rmse > honest.rmse + 0.02
    assert shuffled.nll > honest.nll + 0.02


def test_calibration_moves_likelihood_but_not_the_error() -> None:
    bundle, test = item_means()
    with torch.no_grad():
        bundle.one_sided_model.b.mul_(2.5)  # far too sure of itself
    half = np.arange(len(test)) % 2 == 0
    valid, rest = test.select(half), test.select(~half)
    p = cell_probabilities(bundle, valid.users, valid.items)
    stars = test.scale.array()
    before = evaluate(bundle, rest)
    after = evaluate(replace(bundle, calibration=fit(p, valid.levels, stars)), rest)
    assert after.rmse == before.rmse
    assert after.nll_raw == before.nll
    assert after.nll < after.nll_raw - 0.05
    assert after.calibration_error < after.calibration_error_raw
    assert after.rps < after.rps_raw


# -- unseen and unknown ---------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["user", "item"])
def test_unseen_users_and_items_are_counted(side: Side) -> None:
    context, test = parts(all_ratings())
    found = evaluate(bundle_of(side, context), test)
    silent = set(range(N_USERS)) - set(context.users.tolist())
    assert 0 in silent
    assert found.unseen_users == len(silent)
    assert found.unseen_items == 1
    lost = [u in silent or i == 8 for u, i in zip(test.users, test.items, strict=True)]
    assert found.unseen_ratings == sum(lost)
    assert found.by_item[0].n == N_USERS


@pytest.mark.parametrize("side", ["user", "item"])
def test_a_column_known_only_to_the_context_is_unseen(side: Side) -> None:
    context, test = parts(all_ratings())
    bundle = bundle_of(side, context)
    counts = bundle.column_counts.copy()
    counts[3 if side == "user" else 100] = 0  # as if its ratings were validation's
    found = evaluate(replace(bundle, column_counts=counts), test)
    before = evaluate(bundle, test)
    users, items = (0, 1) if side == "user" else (1, 0)
    assert found.unseen_users == before.unseen_users + users
    assert found.unseen_items == before.unseen_items + items


@pytest.mark.parametrize("side", ["user", "item"])
def test_ids_are_matched_not_numbers(side: Side) -> None:
    context, test = parts(all_ratings())
    bundle = bundle_of(side, context)
    before = evaluate(bundle, test)
    # The same ratings loaded from a file of their own, with two more users and an item in front.
    alone = replace(
        test,
        users=test.users + np.int32(2),
        items=test.items + np.int32(1),
        user_ids=np.concatenate([[-5, -4], test.user_ids]),
        item_ids=np.concatenate([[-7], test.item_ids]),
    )
    assert evaluate(bundle, alone) == before
    strange = [(0, 4), (0, 6), (1, 6), (101, 0)]  # two unknown users, one twice; unknown item
    more = replace(
        alone,
        users=np.append(alone.users, [u for u, _ in strange]).astype(np.int32),
        items=np.append(alone.items, [i for _, i in strange]).astype(np.int32),
        levels=np.append(alone.levels, [0, 1, 2, 3]).astype(np.uint8),
    )
    after = evaluate(bundle, more)
    assert after.n == before.n + 4
    assert after.unseen_users == before.unseen_users + 2
    assert after.unseen_items == before.unseen_items + 1
    assert after.unseen_ratings == before.unseen_ratings + 4
    assert after.by_user[0].n == before.by_user[0].n + 3
    assert after.by_item[0].n == before.by_item[0].n + 1


def test_scores_are_json() -> None:
    context, test = parts(all_ratings())
    found = evaluate(bundle_of("user", context), test)
    read = json.loads(json.dumps(found.as_dict()))
    assert read == found.as_dict()
    assert read["rmse"] == found.rmse
    first = found.by_user[0]
    assert read["by_user"][0] == {
        "known": "0",
        "low": 0,
        "high": 0,
        "n": first.n,
        "rmse": first.rmse,
    }
    assert read["by_user"][-1]["known"] == "100+"


# -- refusals -------------------------------------------------------------------------------------


def test_unusable_questions_are_refused() -> None:
    context, test = parts(all_ratings())
    bundle = bundle_of("user", context)
    text = np.array([str(i) for i in context.item_ids], object)
    other = replace(test, scale=Scale((1.0, 2.0, 3.0, 4.0)))
    cases: list[tuple[Bundle, Ratings, str]] = [
        (bundle, test.select(np.array([], np.int64)), "no ratings to evaluate on"),
        (bundle, other, "on the scale 1–4, the model was trained on 1, 2, 3, 5"),
        (bundle, replace(test, item_ids=text), "item ids of the test are text, those of the model"),
        (replace(bundle, has_context=False), test, "saved without the ratings"),
    ]
    for given, ratings, message in cases:
        with pytest.raises(PredictionError, match=message):
            evaluate(given, ratings)
