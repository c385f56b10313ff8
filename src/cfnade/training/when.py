"""Training of the part that knows time: a small network beside the two sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.data.when import When
from cfnade.errors import TrainingError
from cfnade.kernels.block_sampling import Block
from cfnade.kernels.threads import one_torch_thread
from cfnade.models.when import TimePart
from cfnade.training.settings import Settings
from cfnade.training.steppers import adam_state, restore_adam

DECAY = 1e-4
"""L2 of the weights, in the gradient of the mean cost of a target."""


class TimeStepper:
    """Adds to the scores of a block's targets, and moves down their gradient."""

    def __init__(self, part: TimePart, when: When, settings: Settings) -> None:
        train = when.training
        if train is None:
            raise TrainingError("training needs the time features of the training ratings")
        self._part, self._users = part, train.n_users
        keys = train.items.astype(np.int64) * train.n_users + train.users
        order = np.argsort(keys)  # by item and user: the order of a block's targets, nearly
        self._keys = keys[order]
        self._features = torch.from_numpy(when.features_of_training()[order])  # (n, F)
        self._rate = settings.learning_rate
        groups: list[dict[str, Any]] = [
            {"params": [part.A, part.M1, part.M2], "weight_decay": DECAY},
            {"params": [part.m1]},
        ]
        self._adam = torch.optim.Adam(groups, lr=self._rate)
        self._added: Tensor | None = None

    def add_scores(self, block: Block, scores: npt.NDArray[np.floating]) -> None:
        """Add to the scores (T, K) of the block's targets, in their order."""
        targets = block.user.targets
        items = np.repeat(np.arange(targets.n_columns), np.diff(targets.starts))
        keys = items * self._users + block.users[targets.rows]
        places = np.searchsorted(self._keys, keys)
        with one_torch_thread():
            self._added = self._part(self._features[torch.from_numpy(places)])
        scores += self._added.detach().numpy()

    def fit(self, slopes: npt.NDArray[np.floating], rate: float) -> None:
        """Move by the gradient of those scores (T, K)."""
        for group in self._adam.param_groups:
            group["lr"] = self._rate * rate
        self._adam.zero_grad(set_to_none=True)
        assert self._added is not None
        with one_torch_thread():
            self._added.backward(torch.from_numpy(slopes))  # type: ignore[no-untyped-call]
            self._adam.step()
        self._added = None

    def state(self) -> dict[str, Tensor]:
        return adam_state(self._adam)

    def restore(self, state: dict[str, Tensor]) -> None:
        restore_adam(self._adam, state)
