"""A distribution's summaries equal those of a sample that has exactly its frequencies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.errors import ModelError
from cfnade.models import Distribution

STARS = [0.5, 1.0, 2.5, 4.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), st.data())
def test_summaries_equal_those_of_a_sample(counts: list[int], data: st.DataObject) -> None:
    sample = np.repeat(STARS, counts)
    p = torch.tensor(counts, dtype=torch.float64) / sample.size
    d = Distribution.from_probabilities(p, STARS)
    assert float(d.mean()) == pytest.approx(sample.mean())
    assert float(d.variance()) == pytest.approx(sample.var(), abs=1e-12)
    assert float(d.median()) == np.quantile(sample, 0.5, method="inverted_cdf")
    j = data.draw(st.integers(0, sample.size - 1))
    assert float(d.quantile((j + 0.5) / sample.size)) == sample[j]
    assert float(d.mode()) == STARS[int(np.argmax(counts))]
    for x in (0.0, 1.0, 1.1, 4.0, 4.5):
        assert float(d.at_least(x)) == pytest.approx((sample >= x).mean())


def test_scores_become_probabilities_by_the_softmax() -> None:
    scores = torch.tensor([[0.0, 1.0, 2.0], [1e4, -1e4, 0.0]], dtype=torch.float64)
    d = Distribution.from_scores(scores, [1.0, 2.0, 3.0])
    e = np.exp([0.0, 1.0, 2.0])
    assert d.probabilities[0].tolist() == pytest.approx(list(e / e.sum()))
    assert d.probabilities[1].tolist() == [1.0, 0.0, 0.0]
    assert d.mean().shape == (2,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_does_not_move_a_quantile(dtype: torch.dtype) -> None:
    ten = Distribution.from_probabilities(torch.full((10,), 0.1, dtype=dtype), list(range(1, 11)))
    assert [float(ten.quantile(q / 10)) for q in range(1, 11)] == list(range(1, 11))
    assert float(ten.quantile(0.0)) == 1.0


def test_what_is_no_distribution_is_refused() -> None:
    with pytest.raises(ModelError, match=r"values \(=\[1.0, 1.0\]\) must be two or more numbers"):
        Distribution.from_scores(torch.zeros(2), [1.0, 1.0])
    with pytest.raises(ModelError, match=r"shape \(3,\); the last size must be .*, 2"):
        Distribution.from_scores(torch.zeros(3), [1.0, 2.0])
    for bad in ([0.5, 0.6], [1.5, -0.5]):
        with pytest.raises(ModelError, match="must not be negative and must sum to 1"):
            Distribution.from_probabilities(torch.tensor(bad), [1.0, 2.0])
    with pytest.raises(ModelError, match=r"q \(=1.5\) must lie between 0 and 1"):
        Distribution.from_scores(torch.zeros(2), [1.0, 2.0]).quantile(1.5)
