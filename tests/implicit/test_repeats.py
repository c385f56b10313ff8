"""How often items are taken up again, and what that makes of lists with known items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.implicit.cases import M, some_model, some_rows

from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.implicit.repeats import Repeats, fit_repeats


def drawn(n_users: int, strength: float, rate: float, seed: int = 0) -> InteractionRows:
    """Draw events: each repeats an earlier one with the user's probability, or is a new item."""
    rng = np.random.default_rng(seed)
    columns, weights, counts = [], [], []
    for _ in range(n_users):
        own = rng.beta(rate * strength, (1 - rate) * strength)
        events: list[int] = [0]
        for _ in range(80):
            new = rng.random() >= own
            events.append(max(events) + 1 if new else int(rng.choice(events)))
        items, times = np.unique(events, return_counts=True)
        columns.append(items)
        weights.append(times)
        counts.append(len(items))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return InteractionRows(
        indptr,
        np.concatenate(columns).astype(np.int32),
        np.concatenate(weights).astype(np.float32),
        100,
    )


def leave_one_out(rows: InteractionRows) -> float:
    """Count, event by event, those whose item the user's other events hold as well."""
    events = [
        (user, item)
        for user, item, weight in zip(
            rows.rows.tolist(), rows.columns.tolist(), rows.weights.tolist(), strict=True
        )
        for _ in range(int(weight))
    ]
    again = sum(
        events.count(event) > 1 for event in set(events) for _ in range(events.count(event))
    )
    return again / len(events)


def test_the_rate_counts_events_that_others_of_the_user_repeat() -> None:
    rows = drawn(12, 5.0, 0.6)
    assert fit_repeats(rows).rate == pytest.approx(leave_one_out(rows))


def test_interactions_that_all_count_once_never_repeat() -> None:
    assert fit_repeats(some_rows(50)) == Repeats()


def test_users_who_differ_more_are_shrunk_less() -> None:
    strengths = [fit_repeats(drawn(400, strength, 0.5)).strength for strength in (2.0, 10.0, 50.0)]
    assert strengths == sorted(strengths)
    assert strengths[0] < 0.5 * strengths[2]


def test_a_user_without_history_repeats_nothing_and_a_long_history_speaks_for_itself() -> None:
    rows = InteractionRows(
        np.array([0, 0, 2, 5]),
        np.array([0, 1, 0, 1, 2], np.int32),
        np.array([300, 200, 1, 1, 1], np.float32),
        10,
    )
    rates = Repeats(0.4, 3.0).rates(rows)
    assert rates[0] == 0
    assert rates[1] == pytest.approx((500 + 1.2) / 503)
    assert rates[2] == pytest.approx(1.2 / 6)


def test_all_items_share_one_probability_and_repeats_their_part() -> None:
    rows, model = _repeated()
    logs = model.log_probabilities(rows, exclude_known=False)
    chances = np.exp(logs.astype(np.float64))
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-5)
    known = np.zeros(chances.shape, bool)
    known[rows.rows, rows.columns] = True
    rates = model.repeats.rates(rows)
    np.testing.assert_allclose((chances * known).sum(1), rates, atol=1e-5)
    for user in range(len(rows)):
        own = slice(rows.indptr[user], rows.indptr[user + 1])
        weights = rows.weights[own]
        expected = rates[user] * weights / max(1e-9, weights.sum())
        np.testing.assert_allclose(chances[user, rows.columns[own]], expected, rtol=1e-4)


def test_new_items_keep_their_order_and_odds() -> None:
    rows, model = _repeated()
    alone = model.log_probabilities(rows)
    mixed = model.log_probabilities(rows, exclude_known=False)
    for user in range(len(rows)):
        new = np.isfinite(alone[user])
        shift = mixed[user, new] - alone[user, new]
        np.testing.assert_allclose(shift, shift[0], atol=1e-5)


def test_a_user_who_knows_every_item_repeats() -> None:
    model = _repeated()[1]
    weights = np.arange(1, M + 1, dtype=np.float32)
    rows = InteractionRows(np.array([0, M]), np.arange(M, dtype=np.int32), weights, M)
    chances = np.exp(model.log_probabilities(rows, exclude_known=False)[0])
    np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-5)


def _repeated() -> tuple[InteractionRows, InteractionModel]:
    rows = some_rows(40, weighted=True)
    return rows, replace(some_model(rows), repeats=Repeats(0.3, 5.0))
