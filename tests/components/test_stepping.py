"""Adam in plain torch beside torch's own."""

from __future__ import annotations

import torch
from tests.components.given import some_member

from cfnade.components.optimizers import Adam
from cfnade.kernels.adam import AdamRule


def test_it_moves_as_torchs_adam_does_and_goes_on_from_its_state() -> None:
    member = some_member(("user",), {"hidden": (5,)})
    side = member.components["user"]
    named = dict(side.network.named_parameters())
    rules = {name: AdamRule(1e-2 * (1 + n), 0.1 * n) for n, name in enumerate(named)}
    copies = {name: one.detach().clone().requires_grad_() for name, one in named.items()}
    groups = [
        {"params": [copies[name]], "lr": rule.rate, "weight_decay": rule.decay}
        for name, rule in rules.items()
    ]
    theirs, ours = torch.optim.Adam(groups), Adam(side, rules)
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        for name, one in named.items():
            one.grad = torch.randn(one.shape, generator=generator, dtype=one.dtype)
            copies[name].grad = one.grad.clone()
        rate = 1 / (1 + step)
        for group, rule in zip(theirs.param_groups, rules.values(), strict=True):
            group["lr"] = rate * rule.rate
        theirs.step()
        ours.move(rate)
        if step == 2:
            state = {name: tensor.clone() for name, tensor in ours.state().items()}
            ours = Adam(side, rules)
            ours.restore(state)
        for name, one in named.items():
            torch.testing.assert_close(one.detach(), copies[name].detach(), rtol=1e-9, atol=1e-12)
            assert one.grad is None
