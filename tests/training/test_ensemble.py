"""What members of several kinds count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.listed import lines
from tests.queries import of_user, stored, user_of
from tests.support.close import assert_close

from cfnade import CFNADE, checkpoint
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import CheckpointError, TrainingError
from cfnade.inference.scorer import Scorer
from cfnade.training.ensemble import least_squares_weights
from cfnade.training.plan import MemberPlan, TrainingPlan
from cfnade.training.train import train

QUICK = TrainingConfig(epochs=2, batch_rows=16)


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_shares_are_those_of_a_fine_grid(kinds: int) -> None:
    rng = np.random.default_rng(kinds)
    truth = rng.normal(size=500)
    errors = rng.normal(size=(500, kinds)) * np.array([0.5, 0.8, 4.0])[:kinds]
    shares = least_squares_weights(truth[:, None] + errors, truth)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares >= 0).all()
    axes = np.meshgrid(*[np.linspace(0, 1, 101)] * kinds)
    grid = np.stack(axes, -1).reshape(-1, kinds)
    grid = grid[np.isclose(grid.sum(1), 1)]
    costs = np.square(grid @ errors.T).mean(1)
    assert np.square(errors @ shares).mean() <= costs.min() + 1e-9
    np.testing.assert_allclose(shares, grid[costs.argmin()], atol=0.011)


def test_a_kind_that_only_does_harm_counts_nothing() -> None:
    truth = np.arange(5.0)
    shares = least_squares_weights(np.stack([truth + 0.1, truth + 5.0], 1), truth)
    np.testing.assert_allclose(shares, [1.0, 0.0])


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(synthetic(60, 40, 1200, seed=3).ratings, "paper:0")


@pytest.fixture(scope="module")
def mixed(parts: Split) -> CFNADE:
    how = {"epochs": 2, "hidden": (6,), "n_threads": 1, "training_options": {"passes": 1}}
    return CFNADE(side="both,user", n_seeds=2, **how).fit(parts)  # type: ignore[arg-type]


def test_members_of_each_kind_are_trained_and_mixed_by_their_shares(
    mixed: CFNADE, parts: Split
) -> None:
    fitted = mixed.fitted_
    assert [list(member.components) for member in fitted.members] == [
        ["user", "item"],
        ["user", "item"],
        ["user-ridge", "user"],
    ]
    shares = np.array(fitted.member_weights)  # (3, 2)
    np.testing.assert_allclose(shares.sum(0), 1.0)
    np.testing.assert_allclose(shares[0], shares[1])
    users, items = parts.test.users[:300].astype(int), parts.test.items[:300].astype(int)
    alone = [Scorer(replace(fitted, members=(one,), member_weights=())) for one in fitted.members]
    each = np.stack([one.probabilities(users, items) for one in alone])
    expected = np.einsum("m,mnk->nk", shares[:, 0], each)
    np.testing.assert_allclose(Scorer(fitted).probabilities(users, items), expected, atol=1e-6)
    stranger = user_of(fitted.context, stored(fitted.context, 3).ratings(0))
    some = np.arange(9)
    each = np.stack([of_user(one, stranger, some) for one in alone])
    expected = np.einsum("m,mnk->nk", shares[:, 1], each)
    np.testing.assert_allclose(of_user(Scorer(fitted), stranger, some), expected, atol=1e-6)
    (line,) = lines(Scorer(fitted), stranger)
    chances = np.exp(line - line.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    np.testing.assert_allclose(chances[some], expected, atol=1e-5)


def test_shares_are_saved_and_arguments_come_back(mixed: CFNADE, tmp_path: Path) -> None:
    mixed.save(tmp_path)
    again = CFNADE.load(tmp_path)
    assert again.fitted_.member_weights == mixed.fitted_.member_weights
    assert (again.side, again.n_seeds) == ("both,user", 2)
    assert_close(again.predict([1, 2], [3, 4]), mixed.predict([1, 2], [3, 4]))
    wrong = replace(mixed.fitted_, member_weights=((0.5, 0.5), (0.2, 0.2), (0.2, 0.2)))
    with pytest.raises(CheckpointError, match="of 3 members must add up to 1"):
        checkpoint.save(wrong, tmp_path / "wrong")


def test_without_validation_all_count_alike(parts: Split) -> None:
    nothing = replace(parts, valid=parts.valid.select(np.zeros(len(parts.valid), bool)))
    fields = {"hidden": (4,)}
    members = MemberPlan("user", fields, QUICK), MemberPlan("item", fields, QUICK)
    trained = train(nothing, TrainingPlan(members, "fit"))
    assert trained.model.member_weights == ((0.5, 0.5), (0.5, 0.5))
    assert trained.model.side == "user,item"


def test_a_kind_that_is_none_is_refused(parts: Split) -> None:
    with pytest.raises(TrainingError, match=r"side \(='users'\) must be"):
        CFNADE(side="both,users").fit(parts)
