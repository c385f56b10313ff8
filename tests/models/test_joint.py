"""The joint model: a distribution, blind to what it predicts, exact in value and gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.models import CFNADE, Batch, Context, Targets, ops
from cfnade.models.costs import hybrid_cost
from cfnade.models.joint import JointBatch, JointCFNADE, JointConfig

USERS, ITEMS, LEVELS = 6, 5, 3
Rating = tuple[int, int]
ContextOf = Callable[[Sequence[Sequence[Rating]]], Context]
PaperScores = Callable[[CFNADE, Sequence[Rating], int], list[float]]

VARIANTS: dict[str, dict[str, Any]] = {
    "shared": {"hidden": (4,)},
    "basic": {"hidden": (4,), "shared": False},
    "sqrt": {"hidden": (4,), "context_scale": "sqrt", "mean_context": 2.5},
    "factored": {"hidden": (4,), "factors": 2},
    "deep": {"hidden": (4, 3), "ordinal_weight": 0.6},
}
BLOCK_USERS, BLOCK_ITEMS = [1, 4, 5], [0, 3]
USER_KNOWS: list[list[Rating]] = [[(1, 2), (4, 0)], [], [(2, 1), (1, 1), (4, 2)]]  # (item, level)
ITEM_KNOWS: list[list[Rating]] = [[(0, 1), (2, 2)], [(3, 0)]]  # (user, level)
CELLS = [(0, 0, 2), (0, 1, 0), (1, 1, 1), (2, 0, 1)]  # number of user, of item, level


def make_joint(seed: int = 0, **fields: Any) -> JointCFNADE:
    """In float64, all parameters of order one."""
    given: dict[str, Any] = {"levels": LEVELS, "hidden": (4,)} | fields
    model = JointCFNADE(CFNADE(columns=ITEMS, **given), CFNADE(columns=USERS, **given)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    return model


def batch_of(make: ContextOf, cells: Sequence[tuple[int, int, int]] = CELLS) -> JointBatch:
    users, items, levels = (torch.tensor([cell[i] for cell in cells]) for i in range(3))
    weights = torch.ones(len(cells), dtype=torch.float64)
    of_item = Targets(users, torch.tensor(BLOCK_ITEMS)[items], levels, weights)
    of_user = Targets(items, torch.tensor(BLOCK_USERS)[users], levels, weights)
    return JointBatch(Batch(make(USER_KNOWS), of_item), Batch(make(ITEM_KNOWS), of_user))


@pytest.fixture(params=list(VARIANTS))
def joint(request: pytest.FixtureRequest) -> JointCFNADE:
    return make_joint(**VARIANTS[request.param])


@pytest.mark.parametrize("variant", ["shared", "basic", "sqrt", "factored"])
@pytest.mark.usefixtures("both_paths")
def test_scores_are_the_sum_of_what_the_paper_says_of_both_sides(
    variant: str, make_context: ContextOf, paper_scores: PaperScores
) -> None:
    model = make_joint(**VARIANTS[variant])
    found = model.scores(batch_of(make_context))
    for at, (user, item, _) in enumerate(CELLS):
        one = paper_scores(model.user, USER_KNOWS[user], BLOCK_ITEMS[item])
        two = paper_scores(model.item, ITEM_KNOWS[item], BLOCK_USERS[user])
        wanted = [a + b for a, b in zip(one, two, strict=True)]
        assert found[at].tolist() == pytest.approx(wanted, rel=1e-12)


def test_probabilities_sum_to_one_and_do_not_see_the_answer(
    joint: JointCFNADE, make_context: ContextOf
) -> None:
    found = joint.predict(batch_of(make_context), [1.0, 2.0, 3.0]).probabilities
    assert torch.allclose(found.sum(1), torch.ones(len(CELLS), dtype=torch.float64), atol=1e-12)
    other = [(user, item, (level + 1) % LEVELS) for user, item, level in CELLS]
    again = joint.predict(batch_of(make_context, other), [1.0, 2.0, 3.0]).probabilities
    assert torch.equal(found, again)


def test_a_score_feels_its_contexts_and_its_own_column_of_each_side_alone(
    make_context: ContextOf,
) -> None:
    """Back from one score: no gradient may reach the input weights of the cell itself."""
    model = make_joint()
    for at, (user, item, _) in enumerate(CELLS):
        model.zero_grad()
        score: Tensor = model.scores(batch_of(make_context))[at].square().sum()
        score.backward()  # type: ignore[no-untyped-call]
        u, i = BLOCK_USERS[user], BLOCK_ITEMS[item]
        felt = {
            "user.W": {column for column, _ in USER_KNOWS[user]},
            "item.W": {column for column, _ in ITEM_KNOWS[item]},
            "user.V": {i},
            "item.V": {u},
        }
        assert i not in felt["user.W"]
        assert u not in felt["item.W"]
        for name, columns in felt.items():
            grad = model.get_parameter(name).grad
            assert grad is not None
            assert set(grad.abs().sum((1, 2)).nonzero().flatten().tolist()) == columns


def test_kernels_equal_plain_torch_in_cost_and_gradient(
    joint: JointCFNADE, make_context: ContextOf
) -> None:
    batch, found = batch_of(make_context), []
    for path in ("plain", "kernels"):
        joint.zero_grad()
        with ops.forced(path):
            cost = joint.cost(batch)
            cost.backward()  # type: ignore[no-untyped-call]
        grads = [p.grad.flatten() for p in joint.parameters() if p.grad is not None]
        found.append((cost.detach(), torch.cat(grads)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_the_cost_is_the_mean_over_targets(joint: JointCFNADE, make_context: ContextOf) -> None:
    batch = batch_of(make_context)
    levels, weight = batch.user.targets.levels, joint.config.user.ordinal_weight
    single = [
        hybrid_cost(joint.scores(batch)[t : t + 1], levels[t : t + 1], weight) for t in range(4)
    ]
    assert float(joint.cost(batch).detach()) == pytest.approx(
        float(torch.cat(single).mean().detach())
    )


def test_gradients_of_the_plain_path_are_right(joint: JointCFNADE, make_context: ContextOf) -> None:
    batch, names = batch_of(make_context), [name for name, _ in joint.named_parameters()]

    def cost(*values: Tensor) -> Tensor:
        with ops.forced("plain"):
            given = dict(zip(names, values, strict=True))
            found: Tensor = torch.func.functional_call(_Cost(joint), given, (batch,))
            return found

    start = tuple(p.detach().clone().requires_grad_() for p in joint.parameters())
    names = [f"model.{name}" for name in names]
    assert torch.autograd.gradcheck(cost, start)


class _Cost(torch.nn.Module):
    def __init__(self, model: JointCFNADE) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: JointBatch) -> Tensor:
        return self.model.cost(batch)


def test_biases_start_at_the_items_and_users_frequencies_with_the_prior_counted_once() -> None:
    items = torch.tensor([[900, 50, 50], [0, 0, 0], [10, 10, 80], [5, 5, 5], [1, 2, 3]])
    users = torch.tensor([[30, 5, 5], [0, 0, 0], [1, 1, 1], [2, 0, 0], [0, 9, 0], [4, 4, 4]])
    model = make_joint()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.initialise_biases(items, users, smoothing=5.0)
    # With h = 0, a user of whom nothing is known is predicted by the item's frequencies.
    of_item = model.user.b.cumsum(1).softmax(1)
    nobody = (model.user.b + model.item.b[1]).cumsum(1).softmax(1)
    torch.testing.assert_close(nobody, of_item)
    assert float(of_item[0].detach()[0]) == pytest.approx(0.9, abs=0.01)


def test_targets_in_a_context_of_either_side_are_refused(make_context: ContextOf) -> None:
    model, batch = make_joint(), batch_of(make_context)
    known = make_context([[(0, 1)], [], []])
    bad = JointBatch(Batch(known, batch.user.targets), batch.item)
    with pytest.raises(ModelError, match="targets overlap the context in 1 cells"):
        model.cost(bad)
    known = make_context([[(5, 1)], []])
    bad = JointBatch(batch.user, Batch(known, batch.item.targets))
    with pytest.raises(ModelError, match="targets overlap the context in 1 cells"):
        model.cost(bad)


def test_sides_that_do_not_fit_are_refused(make_context: ContextOf) -> None:
    user = CFNADE(columns=ITEMS, levels=3, hidden=(4,))
    with pytest.raises(ModelError, match="levels is 3 on the user side and 4 on the item side"):
        JointCFNADE(user, CFNADE(columns=USERS, levels=4, hidden=(4,)))
    with pytest.raises(ModelError, match=r"ordinal_weight is 1\.0 .* and 0\.5"):
        JointCFNADE(user, CFNADE(columns=USERS, levels=3, hidden=(4,), ordinal_weight=0.5))
    batch, other = batch_of(make_context), [(u, i, 0) for u, i, _ in CELLS]
    mixed = JointBatch(batch.user, batch_of(make_context, other).item)
    with pytest.raises(ModelError, match="levels differ between the sides"):
        make_joint().cost(mixed)


def test_fields_survive_json() -> None:
    config = make_joint(hidden=(4, 3)).config
    assert JointConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ModelError, match="sides user and item, and features, not"):
        JointConfig.from_dict({"user": config.user.to_dict()})
