"""What every side promises, whatever its kind: a new kind gets a case here and in given.LISTS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.components.given import (
    LISTS,
    N_ITEMS,
    N_USERS,
    VARIANTS,
    cast,
    cast_component,
    some_member,
    some_ratings,
    weights,
)
from tests.components.oracle import PlainRows, plain_scores
from tests.queries import item_of, user_of
from tests.queries import known as ratings_of
from tests.support.close import assert_close

from cfnade.components import Axis, Member, RatingComponent, row_states
from cfnade.components.base import Array, ComponentScorer, other_axis
from cfnade.components.nade import NadeComponent
from cfnade.components.optimizers import member_network
from cfnade.components.registry import (
    component_names,
    member_spec,
    new_member,
    rating_components,
    saved_member,
)
from cfnade.components.ridge import RidgeComponent
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import ModelError, PredictionError, TrainingError
from cfnade.inference.query import Entities, Query
from cfnade.training.steps import KernelStepper, TorchStepper, make_stepper

RATINGS = some_ratings()
SETTINGS = TrainingConfig(
    batch_rows=6,
    batch_columns=5,
    learning_rate=5e-3,
    first_layer_factor=2.0,
    dense_factor=0.5,
    weight_decay=0.01,
    output_decay=3.0,
    context_rate=(0.2, 0.8),
)
AXES: list[Axis] = ["user", "item"]
CASES = [(list_name, variant) for list_name in LISTS for variant in VARIANTS]
cases = pytest.mark.parametrize(("which", "variant"), CASES)
each_list = pytest.mark.parametrize("which", list(LISTS))


def test_every_kind_of_side_is_in_a_list_here() -> None:
    assert set(rating_components()) == {name for names in LISTS.values() for name in names}


# -- asked -----------------------------------------------------------------------------------------

NEW = ratings_of([5, 0, 2], [3, 0, 1])
USERS = Entities.concat(
    [Entities.of_dataset(RATINGS, "user"), user_of(RATINGS, NEW), user_of(RATINGS, NEW, index=3)]
)
"""Every user, one of whom nothing is known, a new one, and one with another history."""


def every_cell() -> tuple[Array, Array]:
    """All cells and those of an unknown user, in random order, some of them twice."""
    users, items = np.meshgrid(np.arange(-1, N_USERS), np.arange(-1, N_ITEMS))
    order = np.random.default_rng(1).permutation(users.size)
    order = np.concatenate([order, order[:9]])
    return users.ravel()[order], items.ravel()[order]


def queries() -> Iterator[tuple[str, Query]]:
    """Every kind of question about pairs, on the calling thread and by threads."""
    every = np.tile(np.arange(N_ITEMS), len(USERS))
    user = np.repeat(np.arange(len(USERS)), N_ITEMS)
    taken = USERS.take(np.arange(len(USERS)))
    starts, ends = taken.rows.offsets[user], taken.rows.offsets[user + 1]
    left_out = np.where(ends > starts, starts + every % np.maximum(ends - starts, 1), -1)
    left_out[::7] = -1
    new_item = item_of(RATINGS, ratings_of([7, 2, 5], [0, 3, 1]))
    stored, zeros = Entities.of_dataset(RATINGS, "user"), np.zeros(N_USERS + 1, np.int64)
    for serial in (True, False):
        yield f"stored, {serial}", Query.of_pairs(RATINGS, *every_cell(), serial=serial)
        for loo in (True, False):
            options = {"leave_one_out": loo, "serial": serial}
            yield f"users, {options}", Query.of_users(RATINGS, taken, user, every, **options)
            further = {**options, "left_out": left_out}
            yield f"left out, {options}", Query.of_users(RATINGS, taken, user, every, **further)
        numbers = np.arange(N_USERS + 1)
        yield (
            f"a new item, {serial}",
            Query(RATINGS, stored, new_item, numbers, zeros, serial=serial),
        )
        none = Query.of_users(RATINGS, taken, user[:0], every[:0], serial=serial)
        yield f"nothing, {serial}", none


def answers(scorer: ComponentScorer, axis: Axis) -> Iterator[tuple[str, Array]]:
    """Everything that can be asked of a component's scorer."""
    for what, query in queries():
        # An unknown column has no weights: the member's scorer sees to that.
        query = query.take(np.flatnonzero(query.pairs(axis).column >= 0))
        yield what, scorer.score_pairs(query.pairs(axis))
    for size in (len(USERS), 2, 0):
        if axis == "user":
            lines = scorer.score_columns(USERS.take(np.arange(size)).rows)
        else:
            lines = scorer.score_rows(np.arange(N_USERS)[:size])
        assert len(lines) == min(size, N_USERS) if axis == "item" else len(lines) == size
        lines += 0.0  # may be written to
        yield f"lists {size}", lines


FIELDS = VARIANTS | {"ridge": {"ridge": 3}, "samples": {"ridge": 3, "samples": 4}}
READ = [
    *((axis, v) for axis in AXES for v in VARIANTS),
    *(
        (f"{axis}-{kind}", "ridge")
        for axis in AXES
        for kind in ("ridge", "factors", "neighborhood")
    ),
    ("user-factors", "samples"),
    ("toy", "shared"),
]
"""Sides that read rows, and their fields."""


each_reader = pytest.mark.parametrize("name", sorted({name for name, _ in READ}))


def some_side(name: str, fields: dict[str, Any]) -> RatingComponent:
    beside = (name.removesuffix("-neighborhood"),) if name.endswith("-neighborhood") else ()
    return some_member((*beside, name), fields).components[name]


@pytest.mark.parametrize(("name", "variant"), READ)
def test_a_reading_says_what_plain_torch_says_of_one_context_after_another(
    name: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = some_side(name, FIELDS[variant])
    assert side.axis is not None
    rows = Entities.of_dataset(RATINGS, side.axis).rows
    assert side.learns == (None if "neighborhood" in name else other_axis(side.axis))
    expected = list(answers(PlainRows(plain_scores(side), rows), side.axis))
    for piece in (1 << 22, 40):  # 40 numbers: a row or two at a time
        monkeypatch.setattr(row_states, "PIECE", piece)
        found = answers(side.scorer(rows), side.axis)
        for (what, answer), (_, right) in zip(found, expected, strict=True):
            np.testing.assert_allclose(answer, right, rtol=1e-9, atol=1e-9, err_msg=what)


@each_reader
def test_scores_in_single_precision_are_close_to_double(name: str) -> None:
    side = some_side(name, VARIANTS["deep-factored-unshared"])
    rows = Entities.of_dataset(RATINGS, side.axis or "user").rows
    exact = dict(answers(side.scorer(rows), side.axis or "user"))
    single = cast_component(side, np.float32).scorer(rows)
    for what, answer in answers(single, side.axis or "user"):
        np.testing.assert_allclose(answer, exact[what], rtol=1e-4, atol=1e-4, err_msg=what)


@each_reader
def test_what_is_left_of_a_lone_rating_is_nothing(name: str) -> None:
    """Not a rounding error: the bits are those of an empty row."""
    side = cast_component(some_side(name, {"hidden": (5,)}), np.float32)
    axis: Axis = side.axis or "user"
    data = [RATINGS.select(np.arange(n)) for n in (1, 0)]
    user, item = RATINGS.users[:1].astype(np.int64), RATINGS.items[:1].astype(np.int64)
    for serial in (True, False):
        lone, empty = (
            side.scorer(Entities.of_dataset(one, axis).rows).score_pairs(
                Query.of_pairs(one, user, item, serial=serial).pairs(axis)
            )
            for one in data
        )
        np.testing.assert_array_equal(lone, empty)


def test_the_moment_is_read_from_features_and_makes_no_lists() -> None:
    side = some_member(("user", "time"), {"hidden": (5,)}).components["time"]
    scorer = cast_component(side, np.float32).scorer(RATINGS.rows("user"))
    users, items = RATINGS.users.astype(np.int64), RATINGS.items.astype(np.int64)
    query = Query.of_pairs(RATINGS, users, items, RATINGS.times)
    answer = scorer.score_pairs(query.pairs("user"))
    # In training a rating has the same features: itself left out.
    draw = drawn(some_member(("user", "time"), {"hidden": (5,)}), SETTINGS)
    places = {cell: n for n, cell in enumerate(zip(users, items, strict=True))}
    order = [places[cell] for cell in zip(draw.cells["user"], draw.cells["item"], strict=True)]
    trained = side.torch_scores(side.network, draw).detach().numpy()
    np.testing.assert_allclose(trained, answer[order], rtol=1e-6, atol=1e-6)
    assert side.learns is None
    with pytest.raises(PredictionError, match="needs to know when; give timestamp="):
        scorer.score_pairs(replace(query, times=None).pairs("user"))
    questions: list[Callable[[], object]] = [
        lambda: scorer.score_columns(RATINGS.rows("user")),
        lambda: scorer.score_rows(np.arange(2)),
    ]
    for question in questions:
        with pytest.raises(PredictionError, match="makes no lists or explanations"):
            question()


# -- trained ---------------------------------------------------------------------------------------


def drawn(member: Member, settings: TrainingConfig, step: int = 0) -> Any:
    stepper = make_stepper(member, RATINGS, {}, settings, device="cpu", threads=1)
    return stepper.sampler.sample(np.arange(1, 7), step)


def steppers(
    member: Member, fields: dict[str, Any], settings: TrainingConfig, *, threads: int = 1
) -> dict[str, KernelStepper | TorchStepper]:
    """Both of one member, which share its draws."""
    kernel = make_stepper(member, RATINGS, fields, settings, device="cpu", threads=threads)
    assert isinstance(kernel, KernelStepper)
    ordinal_weight = fields.get("ordinal_weight", 1.0)
    return {
        "kernels": kernel,
        "torch": TorchStepper(
            member, RATINGS, kernel.sampler, ordinal_weight, member_network(member)
        ),
    }


def rows_of(stepper: KernelStepper | TorchStepper, step: int) -> Array:
    return np.random.default_rng(step).permutation(stepper.sampler.n_rows)[:6]


@cases
def test_kernels_and_plain_torch_move_a_member_alike(which: str, variant: str) -> None:
    """In double precision: Adam turns a rounding error in a gradient of zero into a whole step."""
    fields, ends = VARIANTS[variant], []
    for kind in ("kernels", "torch"):
        member = some_member(LISTS[which], fields, SETTINGS, size=0.3)
        stepper = steppers(member, fields, SETTINGS, threads=2)[kind]
        costs = [
            stepper.step(
                stepper.sampler.sample(rows_of(stepper, step), step), rate=1.0 - 0.1 * step
            )
            for step in range(6)
        ]
        ends.append((costs, weights(member)))
    (costs, moved), (expected_costs, expected) = ends
    assert costs == pytest.approx(expected_costs, rel=1e-6)
    torch.testing.assert_close(moved, expected, rtol=1e-5, atol=1e-6)
    assert len(set(costs)) == 6


@each_list
def test_a_member_in_single_precision_costs_the_same_and_the_cost_falls(which: str) -> None:
    fields, settings = VARIANTS["factored-sqrt"], replace(SETTINGS, learning_rate=0.02)
    member, exact = (new_member(LISTS[which], RATINGS, fields, settings) for _ in range(2))
    stepper = steppers(member, fields, settings)["kernels"]
    reference = steppers(cast(exact, np.float64), fields, settings)["torch"]
    rows = np.arange(stepper.sampler.n_rows)
    if len(rows) > 6:
        rows = rows[1:7]
    first = stepper.step(stepper.sampler.sample(rows, 0), rate=1.0)
    assert first == pytest.approx(
        reference.step(stepper.sampler.sample(rows, 0), rate=1.0), rel=1e-5
    )
    for _ in range(40):
        last = stepper.step(stepper.sampler.sample(rows, 0), rate=1.0)
    assert last < 0.8 * first


@pytest.mark.parametrize("kind", ["kernels", "torch"])
@each_list
def test_a_restored_stepper_goes_on_as_if_nothing_had_happened(which: str, kind: str) -> None:
    fields, ends = VARIANTS["deep-factored-unshared"], []
    settings = replace(SETTINGS, optimizer="sparse_adam" if kind == "kernels" else "adam")
    for interrupted in (False, True):
        member = new_member(LISTS[which], RATINGS, fields, settings)
        stepper = steppers(member, fields, settings)[kind]
        for step in range(5):
            if interrupted and step == 2:
                state = {name: tensor.clone() for name, tensor in stepper.state().items()}
                stepper = steppers(member, fields, settings)[kind]
                stepper.restore(state, 2)
            stepper.step(stepper.sampler.sample(rows_of(stepper, step), step), rate=1.0)
        ends.append(weights(member))
    assert torch.equal(*ends)


@pytest.mark.parametrize("threads", [1, 2])
@each_list
def test_the_same_seed_gives_the_same_bits(which: str, threads: int) -> None:
    fields, ends = VARIANTS["factored-sqrt"], []
    for settings in (SETTINGS, SETTINGS, replace(SETTINGS, seed=1)):
        member = new_member(LISTS[which], RATINGS, fields, settings)
        stepper = steppers(member, fields, settings, threads=threads)["kernels"]
        for step in range(3):
            stepper.step(stepper.sampler.sample(rows_of(stepper, step), step), rate=1.0)
        ends.append(weights(member))
    assert torch.equal(ends[0], ends[1])
    assert not torch.isclose(ends[0], ends[2]).all()


@each_list
def test_a_score_does_not_feel_its_own_rating(which: str) -> None:
    """Back from one target's scores: no gradient reaches the input weights of its own column."""
    member = some_member(LISTS[which], {"hidden": (5,)}, SETTINGS)
    draw = drawn(member, SETTINGS)
    assert draw.n_targets > 3
    for target in range(draw.n_targets):
        member_network(member).zero_grad()
        trained = [side for side in member.components.values() if not side.closed_form]
        scores = [side.torch_scores(side.network, draw)[target].sum() for side in trained]
        torch.stack(scores).sum().backward()  # type: ignore[no-untyped-call]
        for side in member.components.values():
            if isinstance(side, NadeComponent):
                column = draw.cells["item" if side.axis == "user" else "user"][target]
                heard = {name: side.network.get_parameter(name).grad for name in ("W", "V")}
                assert heard["W"] is not None
                assert not heard["W"][column].any()
                assert heard["V"] is not None
                assert heard["V"].flatten(1).any(1).nonzero().flatten().tolist() == [column]
            elif isinstance(side, RidgeComponent):
                column = draw.cells["item" if side.axis == "user" else "user"][target]
                for name in ("u_added", "e_added", "W"):
                    told = side.network.get_parameter(name).grad
                    assert told is not None
                    assert not told[column].any()


def test_rates_and_decay_are_as_documented() -> None:
    settings = replace(SETTINGS, optimizer="sparse_adam")
    rated = {axis: int((RATINGS.rows(axis).counts() > 0).sum()) for axis in AXES}
    shares = {"user": 5 / N_ITEMS, "item": 6 / N_USERS}
    for fields in ({"hidden": (5, 4)}, {"hidden": (5,), "factors": 3}):
        member = new_member(("user", "item", "time"), RATINGS, fields, settings)
        for name in ("user", "item"):
            share, per_target = shares[name], rated[name] / len(RATINGS)
            alone = member.components[name].rules(RATINGS, settings, share=0.0)
            beside = member.components[name].rules(RATINGS, settings, share=share)
            for parameter, rule in alone.items():
                first = parameter in ("W", "A", "B", "c")
                dense = parameter in ("B", "Q", "c") or parameter.startswith("deep")
                rate = 5e-3 * (2.0 if first else 1.0) * (0.5 if dense else 1.0)
                bias = parameter in ("b", "c") or parameter.startswith("deep_c")
                output = parameter in ("V", "P")
                decay = 0.0 if bias else 2 * 0.01 * (3.0 if output else 1.0)
                assert rule.rate == pytest.approx(rate)
                assert rule.decay == pytest.approx(decay)
                often = share if output else 1.0
                assert beside[parameter].decay == pytest.approx(decay * per_target / often)
                assert beside[parameter].rate == rule.rate
        rules = member.components["time"].rules(RATINGS, settings, share=1.0)
        assert {name: rule.decay for name, rule in rules.items()} == {
            **{"A": 1e-4, "M1": 1e-4, "m1": 0.0, "M2": 1e-4}
        }
        assert {rule.rate for rule in rules.values()} == {5e-3}


# -- made, saved, taken over -----------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_the_prior_is_counted_once(shared: bool) -> None:
    """At the start an item is rated by nobody in particular as its smoothed frequencies say."""
    settings = replace(SETTINGS, smoothing=5.0)
    member = new_member(("user", "item"), RATINGS, {"hidden": (4,), "shared": shared}, settings)
    user, item = (member.components[name].network for name in ("user", "item"))
    everyone = RATINGS.level_counts("item").sum(0) + 1.0
    for counts, network, prior in (
        (RATINGS.level_counts("item"), user, True),
        (RATINGS.level_counts("user"), item, False),
    ):
        smoothed = counts + 5.0 * everyone / everyone.sum()
        scores = np.log(smoothed / smoothed.sum(1, keepdims=True))
        if not prior:
            scores -= np.log(everyone / everyone.sum())
        b = network.get_parameter("b").detach()
        torch.testing.assert_close(b.cumsum(1) if shared else b, torch.from_numpy(scores).float())
    assert not np.allclose(item.get_parameter("b").detach(), 0.0)


@each_list
def test_a_column_that_training_never_saw_says_nothing(which: str) -> None:
    """Neither at the start nor later: user 0 and item 0 have no ratings."""
    fields = VARIANTS["factored-sqrt"]
    member = new_member(LISTS[which], RATINGS, fields, SETTINGS)
    stepper = steppers(member, fields, SETTINGS)["kernels"]
    for step in range(3):
        stepper.step(stepper.sampler.sample(rows_of(stepper, step), step), rate=1.0)
    for side in member.components.values():
        if isinstance(side, NadeComponent):
            for table in (side.network.input_table, side.network.output_table):
                loud = table.detach().flatten(1).any(1)
                assert not loud[0]
                assert loud[1:].all()


@cases
def test_a_member_is_the_same_after_it_was_saved(which: str, variant: str) -> None:
    member = some_member(LISTS[which], VARIANTS[variant])
    described = json.loads(json.dumps(member.to_dict()))
    specs = member_spec(described)
    arrays = member.arrays()
    assert {name: array.shape for name, array in arrays.items()} == {
        name: spec.shape for name, spec in specs.items()
    }
    again = saved_member(described, arrays)
    assert list(again.components) == list(LISTS[which])
    assert again.axes == member.axes
    users, items = RATINGS.users.astype(np.int64), RATINGS.items.astype(np.int64)
    query = Query.of_pairs(RATINGS, users, items, RATINGS.times)
    for name, side in cast(member, np.float32).components.items():
        twin = cast(again, np.float32).components[name]
        assert type(twin) is type(side)
        pairs = query.pairs(side.axis or "user")
        one, other = (of.scorer(pairs.rows).score_pairs(pairs) for of in (twin, side))
        assert_close(one, other)


def test_what_no_version_knows_is_refused() -> None:
    with pytest.raises(ModelError, match=r"unknown component 'genre'; this version knows item, "):
        saved_member({"genre": {}}, {})
    with pytest.raises(ModelError, match="a member has no components"):
        member_spec({})
    member = some_member(LISTS["user+time"], {"hidden": (5,)})
    fields = member.to_dict()["time"] | {"features": 5}
    with pytest.raises(ModelError, match="the model has 5 time features; this version of cfnade"):
        member_spec({"time": fields})


def test_a_side_says_what_does_not_fit() -> None:
    member = some_member(LISTS["both+time"], {"hidden": (5,)})
    fewer = RATINGS.replace(item_ids=RATINGS.item_ids[:-1], user_ids=RATINGS.user_ids[:-2])
    longer = RATINGS.replace(scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)))

    def fault(side: RatingComponent, ratings: Dataset) -> str:
        return side.fault(ratings) or "none"

    user, item, time = member.components.values()
    assert {fault(side, RATINGS) for side in (user, item, time)} == {"none"}
    assert fault(user, fewer) == "the id table has 7 columns, the model 8"
    assert fault(item, fewer) == "the id table has 7 columns, the model 9"
    assert fault(time, fewer) == "the time features are those of other users or items"
    assert "has 5 levels, not 4" in fault(user, longer)
    assert "has 5 levels" in fault(time, longer)


# -- named -----------------------------------------------------------------------------------------


def test_lists_have_short_names() -> None:
    assert component_names("user") == ("user",)
    assert component_names("both") == component_names("user+item") == ("user", "item")
    assert component_names("user", ridge=20) == ("user-ridge", "user")
    assert component_names("item", ridge=1, time=True) == ("item-ridge", "item", "time")
    assert component_names("both", ridge=20) == component_names("both")
    assert component_names("user+time", ridge=20) == ("user", "time")
    assert component_names("item+user") == ("item", "user")
    assert component_names("both", time=True) == ("user", "item", "time")
    assert component_names("user+time", time=True) == ("user", "time")


@pytest.mark.parametrize("side", ["all", "", "user+", "user+user", "user,item", None, 3])
def test_unknown_sides_are_refused(side: object) -> None:
    with pytest.raises(TrainingError, match=r'side \(=.*\) must be "user", "item" or "both"'):
        component_names(side)


def test_time_needs_a_side_before_it_and_times() -> None:
    with pytest.raises(TrainingError, match="time features go beside another component"):
        new_member(("time", "user"), RATINGS, {"hidden": (5,)}, SETTINGS)
    with pytest.raises(TrainingError, match="time features need ratings with timestamps"):
        new_member(("user", "time"), RATINGS.replace(times=None), {"hidden": (5,)}, SETTINGS)
