"""What every implicit component promises; a new one has a case in cases.CASES."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.implicit.cases import CASES, M, some_model, some_rows

from cfnade.exceptions import ModelError
from cfnade.implicit import COMPONENTS, ImplicitComponent, saved_model, saved_spec
from cfnade.implicit.base import DataShape, FitCache
from cfnade.implicit.repeats import Repeats
from cfnade.implicit.rows import InteractionRows

ROWS = some_rows(weighted=True)
each_component = pytest.mark.parametrize("name", list(CASES))


def fitted(name: str) -> ImplicitComponent:
    return CASES[name](ROWS)


def test_every_component_has_a_case() -> None:
    assert set(CASES) == set(COMPONENTS)


@each_component
def test_every_item_has_a_finite_score_for_every_user(name: str) -> None:
    component = fitted(name)
    scores = component.scores(ROWS)
    assert component.n_items == M
    assert scores.shape == (len(ROWS), M)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert component.scores(ROWS.select(np.empty(0, np.int64))).shape == (0, M)


@each_component
def test_scores_do_not_depend_on_other_users(name: str) -> None:
    component = fitted(name)
    together = component.scores(ROWS)
    for row in (0, 2, 7, len(ROWS) - 1):
        alone = component.scores(ROWS.select(np.array([row])))
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)


@each_component
def test_interactions_have_no_order(name: str) -> None:
    component, rng = fitted(name), np.random.default_rng(1)
    order = np.concatenate([rng.permutation(np.arange(*ends)) for ends in pairwise(ROWS.indptr)])
    other = InteractionRows(ROWS.indptr, ROWS.columns[order], ROWS.weights[order], M)
    np.testing.assert_allclose(
        component.scores(other), component.scores(ROWS), rtol=1e-4, atol=1e-5
    )


@each_component
def test_scoring_changes_nothing(name: str) -> None:
    component = fitted(name)
    before = {key: array.copy() for key, array in component.arrays.items()}
    first = component.scores(ROWS)
    kept = first.copy()
    first += 1.0  # the caller may write to scores
    np.testing.assert_array_equal(component.scores(ROWS), kept)
    for key, array in component.arrays.items():
        np.testing.assert_array_equal(array, before[key])


@each_component
def test_a_saved_component_gives_the_same_scores(name: str) -> None:
    component = fitted(name)
    fields = json.loads(json.dumps(component.to_dict()))
    spec = type(component).spec(type(component).config_of(fields))
    assert {key: one.shape for key, one in spec.items()} == {
        key: array.shape for key, array in component.arrays.items()
    }
    assert {key: one.dtype for key, one in spec.items()} == {
        key: str(array.dtype) for key, array in component.arrays.items()
    }
    again = type(component).from_saved(fields, {k: a.copy() for k, a in component.arrays.items()})
    np.testing.assert_array_equal(again.scores(ROWS), component.scores(ROWS))
    vectors = component.item_vectors()
    assert (vectors is not None) or not component.gives_item_vectors
    assert vectors is None or vectors.shape[0] == M


@each_component
def test_a_search_space_starts_inside_and_costs_something(name: str) -> None:
    kind = COMPONENTS[name]
    shape = DataShape(5000, 2000, 600_000, 90_000_000)
    space = kind.search_space(shape)
    assert space is not None
    for option, values in space.values.items():
        assert space.start[option] in values
        assert list(values) == sorted(values)
    larger = shape._replace(users=9000, items=4000, interactions=3_000_000)
    assert 0 < kind.seconds(shape, space.start) < kind.seconds(larger, space.start)


@pytest.mark.parametrize("name", ["ease", "filter", "local"])
def test_a_variant_is_the_fit_with_factors_of_the_scores(name: str) -> None:
    options = {
        "ease": {"penalty": 2.0, "item_power": 0.25, "user_power": 0.5},
        "filter": {"penalty": 2.0, "item_power": 0.25, "user_power": 0.5, "rank": 3},
        "local": {"penalty": 2.0, "item_power": 0.25, "user_power": 0.5, "neighbors": 4},
    }[name]
    component = COMPONENTS[name].fit(ROWS, options, seed=0, cache=FitCache())
    plain = component.scores(ROWS)
    for value, factors in component.variants().items():
        np.testing.assert_allclose(
            component.with_variant(value).scores(ROWS), plain * factors, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("name", ["ease", "filter", "local"])
def test_a_cache_does_not_change_a_fit(name: str) -> None:
    cache = FitCache()
    for penalty in (1.0, 4.0):
        options = {"penalty": penalty, "item_power": 0.25, "user_power": 0.5}
        options |= {"rank": 3} if name == "filter" else {}
        options |= {"neighbors": 4} if name == "local" else {}
        shared = COMPONENTS[name].fit(ROWS, options, seed=0, cache=cache)
        fresh = COMPONENTS[name].fit(ROWS, options, seed=0, cache=FitCache())
        np.testing.assert_array_equal(shared.scores(ROWS), fresh.scores(ROWS))


def test_a_saved_model_gives_the_same_probabilities() -> None:
    model = replace(some_model(ROWS), repeats=Repeats(0.25, 7.0))
    described = json.loads(json.dumps(model.to_dict()))
    arrays = model.arrays()
    assert {k: s.shape for k, s in saved_spec(described).items()} == {
        k: a.shape for k, a in arrays.items()
    }
    again = saved_model(described, arrays)
    np.testing.assert_array_equal(again.log_probabilities(ROWS), model.log_probabilities(ROWS))
    assert again.repeats == model.repeats
    lengths = np.linalg.norm(model.item_vectors(), axis=1)  # type: ignore[arg-type]
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("genre", {}, "unknown implicit component 'genre'"),
        ("ease", {"columns": 3, "penalty": -1.0}, "penalty"),
        ("ease", {"columns": 3, "penalties": 1.0}, "penalties"),
        ("local", {"columns": 0, "penalty": 1.0}, "columns"),
    ],
)
def test_unknown_components_and_options_are_refused(
    name: str, fields: dict[str, float], message: str
) -> None:
    described = {"sharpness": {}, "components": {name: {"weight": 1.0, "config": fields}}}
    with pytest.raises(ModelError, match=message):
        saved_spec(described)


@each_component
def test_leaving_out_equals_scoring_without(name: str) -> None:
    """For users with many interactions, and for one with a single one."""
    component = fitted(name)
    lone = ROWS.select(np.array([0])).where(np.arange(ROWS.counts[0]) == 0)
    for row in (ROWS.select(np.array([0])), ROWS.select(np.array([5])), lone):
        n = len(row.columns)
        for places in (np.arange(n), np.array([n - 1]), np.empty(0, np.int64)):
            expected = [component.scores(row.where(np.arange(n) != place))[0] for place in places]
            found = component.scores_without(row, places)
            assert found.shape == (len(places), M)
            np.testing.assert_allclose(found, np.reshape(expected, (-1, M)), rtol=2e-4, atol=5e-5)


def test_probabilities_without_an_interaction_are_those_of_the_rest() -> None:
    model = some_model(ROWS)
    lone = ROWS.select(np.array([0])).where(np.arange(ROWS.counts[0]) == 0)
    for row in (ROWS.select(np.array([5])), lone):
        n = len(row.columns)
        found = model.log_probabilities_without(row, np.arange(n))
        for place in range(n):
            rest = model.log_probabilities(row.where(np.arange(n) != place))[0]
            np.testing.assert_allclose(np.exp(found[place]), np.exp(rest), rtol=1e-3, atol=1e-6)
