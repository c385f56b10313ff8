"""How a model is trained: every number that a run depends on, apart from the model's own fields."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

from cfnade.exceptions import TrainingError
from cfnade.options import TRUE_OR_FALSE, check_fields, number, one_of, optional, unknown, whole

SCHEDULES = ("cosine", "linear", "constant", "plateau")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The defaults suit a few million ratings; recipes hold what was found for published sets."""

    epochs: Annotated[int, whole(0)] = 50
    """Times that validation is looked at, each after `passes` over all rows; at most. 0: the start
    values are the model."""

    batch_rows: Annotated[int | None, optional(whole(1))] = None
    """Rows of one update, at most; None is a tenth of all rows, but 32 to 512. With side "both":
    users of a block; None is a sixth of all, but 32 to 1,024."""

    batch_columns: Annotated[int | None, optional(whole(1))] = None
    """With side "both" alone: items of a block; None is a quarter of all, but 32 to 1,024."""

    passes: Annotated[int, whole(1)] = 1
    """Passes over all rows in an epoch: how much is done before validation is looked at."""

    learning_rate: Annotated[float, number(above=0)] = 1.5e-3
    """Adam's step at the start, for everything that no factor below names."""

    first_layer_factor: Annotated[float, number(above=0)] = 1.0
    """What the first layer's rate is multiplied by (2 in the paper's large experiments)."""

    dense_factor: Annotated[float, number(above=0)] = 1.0
    """What the rate of small dense matrices (B, Q, deep layers, c) is multiplied by."""

    schedule: Annotated[str, one_of(*SCHEDULES)] = "cosine"
    """cosine or linear to nearly zero; constant; or plateau, the authors': a quarter whenever
    `patience` epochs brought nothing, down to 1e-5."""

    weight_decay: Annotated[float, number(0)] = 0.004
    """Times the sum of squared weights, added to the mean cost of a row (the paper's meaning)."""

    output_decay: Annotated[float, number(0)] = 1.0
    """What the weight decay of the output table (V, or P if factored) is multiplied by."""

    rowwise: Annotated[bool, TRUE_OR_FALSE] = False
    """One second moment a column and level instead of one a weight: less memory, faster."""

    touched_only: Annotated[bool, TRUE_OR_FALSE] = False
    """Move only columns that a batch contains, as suits millions of sparse columns."""

    context_rate: tuple[float, float] | str = (0.1, 1.0)
    """In each row a rating is context with a rate drawn from this range; "paper" draws a split
    point instead, as Eq. 19 says: many contexts are then smaller than any that is ever met. With
    side "both" one rate is drawn for each side and step, for the ratings outside the block."""

    small_contexts: Annotated[float, number(0, below=1)] = 0.0
    """Share of rows whose context has a size drawn evenly in its logarithm, so that few ratings are
    met as often as many: for people who come with a handful. The others draw a rate as above."""

    average: Annotated[float, number(0, below=1)] = 0.95
    """How much of the averaged weights each update of the average keeps, in the long run; 0 is
    no averaging."""

    average_every: Annotated[int, whole(1)] = 4
    """Steps between updates of the average."""

    smoothing: Annotated[float, number(above=0)] = 5.0
    """Imagined ratings a column, spread like all ratings, from which biases start."""

    patience: Annotated[int | None, optional(whole(1))] = None
    """Epochs without a better validation score after which training stops (plateau: quarters)."""

    choose_by: Annotated[str, one_of("rmse", "nll")] = "rmse"
    """By which validation score the best epoch is chosen. NLL sees whole distributions, and so
    epochs that no longer help those of whom much is known but still help others."""

    refit: Annotated[bool, TRUE_OR_FALSE] = False
    """Train again on train and validation together for the epochs that validation chose."""

    seed: Annotated[int, replace(whole(0, 2**63 - 1), words="a whole number in 0..2**63-1")] = 0

    def __post_init__(self) -> None:
        rate: object = self.context_rate
        if isinstance(rate, list):  # where it comes from JSON or TOML
            object.__setattr__(self, "context_rate", tuple(rate))
        check_fields(self, TrainingError, "training setting")
        self._check_rate()
        if self.schedule == "plateau" and self.patience is None:
            _refuse("patience", None, "must be given for the schedule plateau (60 in the paper)")
        if self.schedule == "plateau" and self.refit:
            _refuse("refit", True, "needs another schedule than plateau, which needs validation")

    def _check_rate(self) -> None:
        rate: Any = self.context_rate
        two = isinstance(rate, tuple) and len(rate) == 2 and all(map(number(0, 1).fits, rate))
        if rate != "paper" and not (two and rate[0] <= rate[1]):
            _refuse("context_rate", rate, 'must be two rising numbers in 0..1, or "paper"')

    @property
    def rates(self) -> tuple[float, float] | None:
        """The range of context rates; None is the paper's split point."""
        return None if isinstance(self.context_rate, str) else self.context_rate

    def rows_of_a_batch(self, rows: int) -> int:
        """`batch_rows`, or what suits a data set of that many rows."""
        return self.batch_rows or min(512, max(32, rows // 10))

    def block(self, rows: int, columns: int) -> tuple[int, int]:
        """Users and items of a block, for a table of that many."""
        users = self.batch_rows or min(1024, max(32, rows // 6))
        items = self.batch_columns or min(1024, max(32, columns // 4))
        return min(users, rows), min(items, columns)

    def with_block(self, users: int, items: int) -> Settings:
        """The same with the size of a block filled in."""
        return replace(self, batch_rows=users, batch_columns=items)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> dict[str, Any]:
        """As they come back from JSON, which knows lists only."""
        return {n: list(v) if isinstance(v, tuple) else v for n, v in self.to_dict().items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Settings from a recipe or checkpoint; an unknown key is an error."""
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise TrainingError(unknown("training setting", name, names))
        return cls(**values)


def _refuse(name: str, value: object, rule: str) -> None:
    raise TrainingError(f"training setting {name} (={value!r}) {rule}")
