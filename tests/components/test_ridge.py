"""Where a ridge side starts and ends; what it promises as a side is in test_contract.py."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.components.given import some_member, some_ratings
from tests.queries import component_scores

from cfnade.components import FitData, Member, variational_bayes
from cfnade.components.registry import new_member
from cfnade.components.ridge import SETTLED_SMOOTHING, RidgeComponent
from cfnade.components.variational_bayes import Factors, fit_factor_analysis
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.exceptions import TrainingError

RATINGS = some_ratings()
FIELDS: dict[str, Any] = {"hidden": (5,), "ridge": 3}


def frequencies(counts: np.ndarray, smoothing: float) -> np.ndarray:
    """Of each column's levels, beside imagined ratings spread like everyone's. (M, K)."""
    everyone = counts.sum(0) + 1.0
    smoothed = counts + smoothing * everyone / everyone.sum()
    return np.asarray(smoothed / smoothed.sum(1, keepdims=True))


def said_of_nobody(member: Member, axis: Literal["user", "item"]) -> np.ndarray:
    """Distributions of all columns in a row of which nothing is known. (M, K)."""
    nobody = RATINGS.select(np.zeros(len(RATINGS), bool))
    rows, columns = (RATINGS.n_users, RATINGS.n_items)
    users, items = (
        (np.zeros(columns, int), np.arange(columns))
        if axis == "user"
        else (np.arange(rows), np.zeros(rows, int))
    )
    each = [component_scores(one, nobody, users, items) for one in member.components.values()]
    scores = torch.from_numpy(np.sum(each, axis=0))
    return np.asarray(torch.softmax(scores.double(), 1).numpy())


@pytest.mark.parametrize("axis", ["user", "item"])
def test_at_the_start_nobody_is_rated_by_frequencies(axis: Literal["user", "item"]) -> None:
    member = new_member((f"{axis}-ridge", axis), RATINGS, FIELDS, TrainingConfig(smoothing=4.0))
    counts = RATINGS.level_counts("item" if axis == "user" else "user")
    expected = frequencies(counts, 4.0)
    np.testing.assert_allclose(said_of_nobody(member, axis), expected, atol=1e-5)


@pytest.mark.parametrize("noise", [0.5, 1.3], ids=["below the floor", "above it"])
def test_a_refresh_continues_from_the_analysis_that_the_side_started_from(
    noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the data have little structure, so that nearly all of the spread is noise."""
    side = new_member(("user-ridge",), RATINGS, FIELDS, TrainingConfig()).components["user-ridge"]
    assert isinstance(side, RidgeComponent)
    counts, rows = RATINGS.level_counts("item"), RATINGS.rows("user")
    planted = replace(
        fit_factor_analysis(rows, FIELDS["ridge"], seed=0, threads=1),
        noise=noise * side.config.spread,
    )
    side.fill(planted, counts, 4.0)
    continued_from = []

    def continued(_: CsrRows, factors: Factors, **_options: int) -> Factors:
        continued_from.append(factors)
        return factors

    monkeypatch.setattr(variational_bayes, "continue_factor_analysis", continued)
    data = FitData(RATINGS, TrainingConfig(smoothing=4.0), torch.Generator())
    side.update(data, counts)
    (factors,) = continued_from
    for field in fields(Factors):
        found, expected = (getattr(one, field.name) for one in (factors, planted))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=field.name)


@pytest.mark.parametrize("axis", ["user", "item"])
def test_at_the_end_nobody_is_rated_by_frequencies_again(axis: Literal["user", "item"]) -> None:
    """Whatever training did to all sides, and to the prior."""
    member = some_member((f"{axis}-ridge", axis), FIELDS, size=0.5)
    for side in member.components.values():
        side.finish(RATINGS, member)
    counts = RATINGS.level_counts("item" if axis == "user" else "user")
    expected = frequencies(counts, SETTLED_SMOOTHING)
    np.testing.assert_allclose(said_of_nobody(member, axis), expected, atol=1e-9)


def test_the_start_says_what_factor_analysis_predicts() -> None:
    """The mean of a level's Gaussian around μ + a·z, up to the ends of the scale."""
    rng = np.random.default_rng(0)
    member = new_member(("user-ridge",), RATINGS, FIELDS, TrainingConfig())
    side = member.components["user-ridge"]
    assert isinstance(side, RidgeComponent)
    factors = fit_factor_analysis(RATINGS.rows("user"), 3, seed=0, threads=1)
    net = side.network
    ratio = (net.u_start / torch.from_numpy(factors.a)).detach()
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-4, atol=1e-4)
    # A level more of a column adds a·(γ m) over its variance to the score: a Gaussian's slope.
    state = torch.from_numpy(rng.normal(size=3)).float()
    slopes = (net.V[:, 1:, :-1] @ state).detach()
    torch.testing.assert_close(slopes, slopes[:, :1].expand_as(slopes))
    along = torch.from_numpy(factors.a) @ state
    assert torch.equal(slopes[:, 0] > 0, along > 0)


def test_it_stands_first() -> None:
    with pytest.raises(TrainingError, match="a ridge component must be the first of a member"):
        new_member(("user", "user-ridge"), RATINGS, FIELDS, TrainingConfig())


def test_beside_it_a_cf_nade_starts_by_saying_nothing_and_leaves_biases_alone() -> None:
    member = new_member(("user-ridge", "user"), RATINGS, FIELDS, TrainingConfig())
    beside = member.components["user"]
    items = np.arange(RATINGS.n_items)
    assert not component_scores(beside, RATINGS, 0 * items - 1, items).any()
    assert beside.rules(RATINGS, TrainingConfig(), share=0.0)["b"].rate == 0.0
    alone = new_member(("user",), RATINGS, {"hidden": (5,)}, TrainingConfig()).components["user"]
    assert alone.rules(RATINGS, TrainingConfig(), share=0.0)["b"].rate > 0.0
