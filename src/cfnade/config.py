"""Every option of a training run, apart from the fields of the model itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len, Lt

from cfnade.exceptions import TrainingError
from cfnade.utils.validation import check_options, options


@options(TrainingError, "training setting")
class TrainingConfig:
    """Training options. The defaults suit a few million ratings; recipes hold tuned values."""

    epochs: Annotated[int, Ge(0)] = 50
    """Maximum number of epochs. An epoch is `passes` over all rows followed by a validation. With
    0 the initial values are the model."""

    batch_rows: Annotated[int, Ge(1)] | None = None
    """Maximum rows of a batch. None: a tenth of all rows, within 32 to 512. With side "both": users
    of a block; None: a sixth of all users, within 32 to 1,024."""

    batch_columns: Annotated[int, Ge(1)] | None = None
    """Only with side "both": items of a block. None: a quarter of all items, within 32 to 1,024."""

    passes: Annotated[int, Ge(1)] = 1
    """Passes over all rows in an epoch."""

    learning_rate: Annotated[float, Gt(0)] = 1.5e-3
    """Initial step size of Adam, for every parameter without a factor below."""

    first_layer_factor: Annotated[float, Gt(0)] = 1.0
    """Multiplies the learning rate of the first layer (2 in the paper's large experiments)."""

    dense_factor: Annotated[float, Gt(0)] = 1.0
    """Multiplies the learning rate of small dense matrices (B, Q, deep layers, c)."""

    schedule: Literal["cosine", "linear", "constant", "plateau"] = "cosine"
    """Learning rate schedule. "cosine" and "linear" fall to almost zero. "plateau" is the paper
    authors' schedule: the rate falls to a quarter after `patience` epochs without improvement, down
    to 1e-5."""

    weight_decay: Annotated[float, Ge(0)] = 0.004
    """Factor of the sum of squared weights, which is added to the mean cost of a row."""

    output_decay: Annotated[float, Ge(0)] = 1.0
    """Multiplies the weight decay of the output table (V, or P if factored)."""

    optimizer: Literal["adam", "sparse_adam"] = "adam"
    """"sparse_adam" updates only the columns that a batch contains, and has one second moment per
    column and level instead of one per weight: faster, less memory, for millions of sparse columns.
    """

    context_rate: (
        Annotated[tuple[Annotated[float, Ge(0), Le(1)], ...], Len(2, 2)] | Literal["paper"]
    ) = (0.1, 1.0)
    """Range of the probability that a rating of a row is context; one value is sampled per row.
    "paper" samples a split point instead (Eq. 19), so many contexts are smaller than any context at
    prediction time. With side "both" one value is sampled for each side and step, for the ratings
    outside the block."""

    small_contexts: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Fraction of rows whose context size is sampled log-uniformly, so that users with few ratings
    are as frequent as users with many. The other rows use `context_rate`."""

    average: Annotated[float, Ge(0), Lt(1)] = 0.95
    """Decay of the exponential moving average of the weights. 0 disables averaging."""

    average_every: Annotated[int, Ge(1)] = 4
    """Steps between updates of the average."""

    smoothing: Annotated[float, Gt(0)] = 5.0
    """Pseudo-ratings per column, distributed like all ratings, for the initial biases."""

    patience: Annotated[int, Ge(1)] | None = None
    """Epochs without a better validation score after which training stops. With the schedule
    "plateau": after which the learning rate falls."""

    choose_by: Literal["rmse", "nll"] = "rmse"
    """Validation score that selects the best epoch. The negative log-likelihood ("nll") measures
    whole distributions, and so improves longer for users with few ratings."""

    refit: bool = False
    """Train again on train and validation data together, for the selected number of epochs."""

    seed: Annotated[int, Ge(0), Le(2**63 - 1)] = 0

    def __post_init__(self) -> None:
        if (limits := self.context_range) is not None and limits[0] > limits[1]:
            _refuse("context_rate", self.context_rate, "must be two rising numbers")
        if self.schedule == "plateau" and self.patience is None:
            _refuse("patience", None, "must be given for the schedule plateau (60 in the paper)")
        if self.schedule == "plateau" and self.refit:
            _refuse("refit", True, "needs another schedule than plateau, which needs validation")

    @property
    def is_sparse(self) -> bool:
        """Whether a step updates only the columns of its batch."""
        return self.optimizer == "sparse_adam"

    @property
    def context_range(self) -> tuple[float, float] | None:
        """Range of context rates; None if the paper's split point is used."""
        if isinstance(self.context_rate, str):
            return None
        low, high = self.context_rate
        return low, high

    def batch_size(self, n_rows: int) -> int:
        """Return `batch_rows`, or its default for that many rows."""
        return self.batch_rows or min(512, max(32, n_rows // 10))

    def block_shape(self, n_users: int, n_items: int) -> tuple[int, int]:
        """Return the users and items of a block of a table of that size."""
        users = self.batch_rows or min(1024, max(32, n_users // 6))
        items = self.batch_columns or min(1024, max(32, n_items // 4))
        return min(users, n_users), min(items, n_items)

    def to_dict(self) -> dict[str, Any]:
        """Return all options."""
        return asdict(self)

    def to_json(self) -> dict[str, Any]:
        """Return all options as JSON reads them back: with lists instead of tuples."""
        options: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return options

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Create the options of a recipe or checkpoint; unknown names are errors."""
        return cls(**check_options(cls, values))


def _refuse(name: str, value: object, rule: str) -> None:
    raise TrainingError(f"training setting {name} (={value!r}) {rule}", field=name, value=value)
