"""How a model is trained: every number that a run depends on, apart from the model's own fields."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from cfnade.errors import TrainingError

SCHEDULES = ("cosine", "linear", "constant", "plateau")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The defaults suit a few million ratings; recipes hold what was found for published sets."""

    epochs: int = 50
    """Times that validation is looked at, each after `passes` over all rows; at most."""

    batch_rows: int | None = None
    """Rows of one update, at most; None is a tenth of all rows, but 32 to 512. With side "both":
    users of a block; None is a sixth of all, but 32 to 1,024."""

    batch_columns: int | None = None
    """With side "both" alone: items of a block; None is a quarter of all, but 32 to 1,024."""

    passes: int = 1
    """Passes over all rows in an epoch: how much is done before validation is looked at."""

    learning_rate: float = 1.5e-3
    """Adam's step at the start, for everything that no factor below names."""

    first_layer_factor: float = 1.0
    """What the first layer's rate is multiplied by (2 in the paper's large experiments)."""

    dense_factor: float = 1.0
    """What the rate of small dense matrices (B, Q, deep layers, c) is multiplied by."""

    schedule: str = "cosine"
    """cosine or linear to nearly zero; constant; or plateau, the authors': a quarter whenever
    `patience` epochs brought nothing, down to 1e-5."""

    weight_decay: float = 0.004
    """Times the sum of squared weights, added to the mean cost of a row (the paper's meaning)."""

    output_decay: float = 1.0
    """What the weight decay of the output table (V, or P if factored) is multiplied by."""

    rowwise: bool = False
    """One second moment a column and level instead of one a weight: less memory, faster."""

    touched_only: bool = False
    """Move only columns that a batch contains, as suits millions of sparse columns."""

    context_rate: tuple[float, float] | str = (0.1, 1.0)
    """In each row a rating is context with a rate drawn from this range; "paper" draws a split
    point instead, as Eq. 19 says: many contexts are then smaller than any that is ever met. With
    side "both" one rate is drawn for each side and step, for the ratings outside the block."""

    average: float = 0.95
    """How much of the averaged weights each update of the average keeps, in the long run; 0 is
    no averaging."""

    average_every: int = 4
    """Steps between updates of the average."""

    smoothing: float = 5.0
    """Imagined ratings a column, spread like all ratings, from which biases start."""

    patience: int | None = None
    """Epochs without a better validation score after which training stops (plateau: quarters)."""

    refit: bool = False
    """Train again on train and validation together for the epochs that validation chose."""

    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        rate: object = self.context_rate
        if isinstance(rate, list):  # where it comes from JSON or TOML
            object.__setattr__(self, "context_rate", tuple(rate))
        for name in ("epochs", "batch_rows", "batch_columns", "passes", "average_every"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "must be at least 1")
        for name in ("learning_rate", "first_layer_factor", "dense_factor", "smoothing"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be positive")
        for name in ("weight_decay", "output_decay"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        _require(0 <= self.average < 1, "average", self.average, "must lie in 0 ≤ average < 1")
        _require(self.seed >= 0, "seed", self.seed, "must not be negative")
        known = self.schedule in SCHEDULES
        _require(known, "schedule", self.schedule, f"must be one of {', '.join(SCHEDULES)}")
        _require(
            self.patience is None or self.patience >= 1,
            "patience",
            self.patience,
            "must be 1 or more",
        )
        stalls = self.schedule != "plateau" or self.patience is not None
        _require(
            stalls, "patience", None, "must be given for the schedule plateau (60 in the paper)"
        )
        sees = not (self.refit and self.schedule == "plateau")
        _require(sees, "refit", True, "needs another schedule than plateau, which needs validation")
        _require(self.seed < 2**63, "seed", self.seed, "must be below 2**63")
        self._check_rate()

    def _check_types(self) -> None:
        whole, real = (
            (
                *("epochs", "batch_rows", "batch_columns", "passes", "average_every", "patience"),
                "seed",
            ),
            (
                *("learning_rate", "first_layer_factor", "dense_factor", "weight_decay", "average"),
                *("output_decay", "smoothing"),
            ),
        )
        for name in (*whole, *real):
            value = getattr(self, name)
            kind = int if name in whole else int | float
            right = isinstance(value, kind) and not isinstance(value, bool)
            optional = value is None and name in ("batch_rows", "batch_columns", "patience")
            what = "a whole number" if name in whole else "a number"
            _require(right or optional, name, repr(value), f"must be {what}")
        for name in ("rowwise", "touched_only", "refit"):
            value = getattr(self, name)
            _require(isinstance(value, bool), name, repr(value), "must be true or false")

    def _check_rate(self) -> None:
        rate = self.context_rate
        fits = rate == "paper"
        if isinstance(rate, tuple):
            numbers = len(rate) == 2 and all(isinstance(end, int | float) for end in rate)
            fits = numbers and 0 <= rate[0] <= rate[1] <= 1
        _require(fits, "context_rate", rate, 'must be two rising numbers in 0..1, or "paper"')

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

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Settings:
        """Settings from a recipe or checkpoint; an unknown key is an error."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
                raise TrainingError(f"unknown training setting {name!r}{hint}")
        return cls(**given)


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise TrainingError(f"training setting {name} (={value}) {rule}")
