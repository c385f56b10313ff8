"""A member for more columns says the same of the old ones, and of new ones what the mean says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import torch
from tests.server.given import KINDS, ratings, trained
from tests.support.raw_tables import raw_table

from cfnade import checkpoint
from cfnade.components.ridge import RidgeComponent
from cfnade.components.variational_bayes import continue_factor_analysis, fit_factor_analysis
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset, match_tables
from cfnade.data.load import LoadOptions
from cfnade.data.splits import split
from cfnade.data.validate import build
from cfnade.exceptions import TrainingError
from cfnade.inference.scorer import Scorer
from cfnade.training.member import continued_member
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.train import train


def more(made: Dataset) -> Dataset:
    """The same ratings, with two users and two items that nobody had, all ids as texts."""
    users, items = made.user_ids[made.users], made.item_ids[made.items]
    return build(
        raw_table(
            users=pl.Series([*map(str, users), "aaa", "zzz"]),
            items=pl.Series([*map(str, items), "000", "zz"]),
            ratings=np.array([*made.values, 1.0, 5.0]),
            times=np.array([*(made.times if made.times is not None else []), 1, 2]),
        ),
        LoadOptions(scale=made.scale),
    )


@pytest.mark.parametrize("kind", ["user", "item", "both", "several"])
def test_what_was_known_is_said_as_before(kind: str, tmp_path: Path) -> None:
    fitted = checkpoint.load(trained(tmp_path / kind, KINDS[kind]))
    context = fitted.context
    wide = fitted.extend(more(context))
    here = (match_tables(ids, wide) for ids, wide in _tables(context, wide.context))
    users, items = (places[np.arange(20)] for places in here)
    before = Scorer(fitted).probabilities(np.arange(20), np.arange(20))
    after = Scorer(wide).probabilities(users, items)
    if kind in ("user", "several"):  # what is read of a user has not changed
        np.testing.assert_allclose(after, before, atol=1e-6)
    same = fitted.extend(context)
    again = Scorer(same).probabilities(np.arange(20), np.arange(20))
    np.testing.assert_allclose(again, before, atol=1e-6)


def _tables(old: Dataset, new: Dataset) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    return [(old.user_ids, new.user_ids), (old.item_ids, new.item_ids)]


def test_new_columns_are_the_mean_of_the_trained_and_count_as_untrained(tmp_path: Path) -> None:
    fitted = checkpoint.load(trained(tmp_path / "user", KINDS["user"]))
    wide = fitted.extend(more(fitted.context))
    old, new = (model.members[0].components["user"] for model in (fitted, wide))
    places = match_tables(wide.context.item_ids, fitted.context.item_ids)
    seen = fitted.training_counts["item"].sum(1) > 0
    for name, spec in old.spec(old.config).items():
        table, wider = old.arrays[name], new.arrays[name]
        if spec.column_axis is None:
            np.testing.assert_array_equal(wider, table)
            continue
        mean = table[seen].mean(0)
        for at, place in enumerate(places.tolist()):
            expected = table[place] if place >= 0 else mean
            np.testing.assert_allclose(wider[at], expected, rtol=1e-5, atol=1e-6)
    counts = wide.training_counts["item"]
    assert (counts[places < 0] == 0).all()
    np.testing.assert_array_equal(
        counts[places >= 0], fitted.training_counts["item"][places[places >= 0]]
    )


def test_ids_are_found_by_how_they_are_written() -> None:
    texts = np.array(["1", "10", "x"], object)
    assert match_tables(texts, np.array([1, 2, 10])).tolist() == [0, 2, -1]
    assert match_tables(np.array([10, 3]), np.array([1, 3, 10])).tolist() == [2, 1]


def test_a_model_that_knows_time_is_refused(tmp_path: Path) -> None:
    fitted = checkpoint.load(trained(tmp_path / "timed", KINDS["timed"]))
    with pytest.raises(TrainingError, match="cannot be refreshed"):
        fitted.extend(fitted.context)


def test_an_analysis_gone_on_with_is_as_good_as_one_from_the_start() -> None:
    """Two sweeps from an analysis of half of the rows, against thirty of all."""
    made = ratings(KINDS["user"])
    half = made.select(np.flatnonzero(made.users % 2 == 0))
    first = fit_factor_analysis(half.rows("user"), 4, seed=0, threads=1)
    rows = made.rows("user")
    on, scratch = (
        continue_factor_analysis(rows, first, threads=1, sweeps=8),
        fit_factor_analysis(rows, 4, seed=0, threads=1),
    )
    assert abs(on.noise - scratch.noise) < 0.05 * scratch.noise
    assert np.corrcoef(on.mean, scratch.mean)[0, 1] > 0.98


def test_going_on_trains_each_member_from_its_own_weights(tmp_path: Path) -> None:
    """Without an epoch the weights are those that they were."""
    fitted = checkpoint.load(trained(tmp_path / "several", KINDS["several"]))
    parts = split(ratings(KINDS["user"]), "paper:0")
    fields = fitted.members[0].to_dict()["user"]
    settings = TrainingConfig(epochs=0, average=0.0)
    plan = plan_side("user", fields, settings, n_seeds=2)
    done = train(parts, plan, RunOptions(init_model=fitted))
    for before, after in zip(fitted.members, done.model.members, strict=True):
        for name, table in before.arrays().items():
            np.testing.assert_array_equal(after.arrays()[name], table)
    one = replace(fitted, members=fitted.members[:1])
    with pytest.raises(TrainingError, match="has 1 members, and 2 are to be trained"):
        train(parts, plan, RunOptions(init_model=one))


def test_a_turned_analysis_says_the_same_in_the_other_ones_dimensions() -> None:
    rows = ratings(KINDS["user"]).rows("user")
    first = fit_factor_analysis(rows, 4, seed=0, threads=1)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0].astype(np.float32)
    counts = np.bincount(rows.columns, minlength=rows.n_columns)
    back = replace(first, a=first.a @ turn).turned_like(first, counts)
    np.testing.assert_allclose(back.a, first.a, atol=1e-5)
    np.testing.assert_allclose(back.importance, first.importance, rtol=1e-3)


def test_what_training_added_is_added_to_the_new_start_too(tmp_path: Path) -> None:
    """Two models that differ by what training added differ by just that when they went on."""
    fitted = checkpoint.load(trained(tmp_path / "user", KINDS["ridge"]))
    side = fitted.members[0].components["user-ridge"]
    assert isinstance(side, RidgeComponent)
    wide, settings = more(fitted.context), TrainingConfig()
    one = continued_member(fitted, 0, wide, settings).components["user-ridge"]
    with torch.no_grad():
        side.network.b[3] += 0.5
        side.network.V[4, 1] -= 0.25
    other = continued_member(fitted, 0, wide, settings).components["user-ridge"]
    assert isinstance(one, RidgeComponent)
    assert isinstance(other, RidgeComponent)
    places = match_tables(wide.item_ids, fitted.context.item_ids)
    old = places >= 0
    for name, place, at, added in (("b", 3, (), 0.5), ("V", 4, (1,), -0.25)):
        gap = other.arrays[name] - one.arrays[name]
        expected = np.zeros_like(gap)
        expected[(int(np.flatnonzero(places == place)[0]), *at)] = added
        np.testing.assert_allclose(gap[old], expected[old], atol=1e-5)
    kept = side.arrays["u_start"][places[old]]
    assert not np.array_equal(one.arrays["u_start"][old], kept)
