"""Where training saw nothing, the named rule speaks."""

from __future__ import annotations

import pytest
import torch

from cfnade.errors import ModelError
from cfnade.models import Distribution
from cfnade.models.unseen import unseen_rule

HALF_STARS = [x / 2 for x in range(1, 11)]
COUNTS = torch.tensor([0, 1, 0, 2, 0, 3, 0, 2, 1, 1])
COLUMN = torch.tensor([False, True, False, True])
ROW = torch.tensor([False, False, True, True])


def predicted() -> Distribution:
    return Distribution.from_scores(torch.arange(40.0).reshape(4, 10).sin(), HALF_STARS)


def test_the_paper_says_three_stars_on_any_scale() -> None:
    rule = unseen_rule("paper", counts=COUNTS, values=HALF_STARS)
    means = rule.apply(predicted(), unseen_column=COLUMN, unseen_row=ROW).mean()
    assert means[1:].tolist() == [3.0, 3.0, 3.0]
    assert means[0] == predicted().mean()[0]


def test_the_product_says_the_training_mean_and_keeps_empty_rows() -> None:
    rule = unseen_rule("mean", counts=COUNTS, values=HALF_STARS)
    resolved = rule.apply(predicted(), unseen_column=COLUMN, unseen_row=ROW)
    ratings = [
        stars for stars, n in zip(HALF_STARS, COUNTS.tolist(), strict=True) for _ in range(n)
    ]
    mean = sum(ratings) / len(ratings)
    assert resolved.mean()[[1, 3]].tolist() == pytest.approx([mean, mean])
    assert torch.equal(resolved.probabilities[[0, 2]], predicted().probabilities[[0, 2]])


def test_bad_rules_are_refused() -> None:
    with pytest.raises(ModelError, match=r"unseen rule \(='median'\) must be one of mean, paper"):
        unseen_rule("median", counts=COUNTS, values=HALF_STARS)
    with pytest.raises(ModelError, match=r"default rating 3 is not on the scale \[0.0, 1.0\]"):
        unseen_rule("paper", counts=torch.ones(2), values=[0.0, 1.0])
    with pytest.raises(ModelError, match="must hold at least one training rating"):
        unseen_rule("mean", counts=torch.zeros(2), values=[0.0, 1.0])
    with pytest.raises(ModelError, match=r"counts has shape \(10,\); it must have shape \(2,\)"):
        unseen_rule("mean", counts=COUNTS, values=[0.0, 1.0])
    rule = unseen_rule("mean", counts=COUNTS, values=HALF_STARS)
    with pytest.raises(ModelError, match=r"unseen_row has shape \(2,\); it must have shape \(4,\)"):
        rule.apply(predicted(), unseen_column=COLUMN, unseen_row=ROW[:2])
