"""How a model is trained: every number that a run depends on, apart from the model's own fields."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any

from cfnade.errors import TrainingError

SCHEDULES = ("cosine", "linear", "constant", "plateau")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The defaults suit a few million ratings; recipes hold what was found for published sets."""

    epochs: int = 60
    """Passes over all rows, at most."""

    batch_rows: int = 512
    """Rows of one update."""

    learning_rate: float = 2e-3
    """Adam's step at the start, for everything that no factor below names."""

    first_layer_factor: float = 1.0
    """What the first layer's rate is multiplied by (2 in the paper's large experiments)."""

    dense_factor: float = 1.0
    """What the rate of small dense matrices (B, Q, deep layers, c) is multiplied by."""

    schedule: str = "cosine"
    """cosine or linear to nearly zero; constant; or plateau, the authors': a quarter whenever
    `patience` epochs brought nothing, down to 1e-5."""

    weight_decay: float = 0.015
    """Times the sum of squared weights, added to the mean cost of a row (the paper's meaning)."""

    rowwise: bool = False
    """One second moment a column and level instead of one a weight: less memory, faster."""

    touched_only: bool = False
    """Move only columns that a batch contains, as suits millions of sparse columns."""

    context_rate: tuple[float, float] | None = None
    """Each rating is context with a rate drawn from this range; None draws the paper's split."""

    average: float = 0.98
    """How much of the averaged weights each update of the average keeps, in the long run; 0 is
    no averaging."""

    average_every: int = 1
    """Steps between updates of the average."""

    smoothing: float = 5.0
    """Imagined ratings a column, spread like all ratings, from which biases start."""

    patience: int | None = None
    """Epochs without a better validation score after which training stops (plateau: quarters)."""

    refit: bool = False
    """Train again on train and validation together for the epochs that validation chose."""

    seed: int = 0

    def __post_init__(self) -> None:
        if self.context_rate is not None:  # a list, where it comes from JSON or TOML
            object.__setattr__(self, "context_rate", tuple(self.context_rate))
        for name in ("epochs", "batch_rows", "average_every"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("learning_rate", "first_layer_factor", "dense_factor", "smoothing"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be positive")
        _require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "must not be negative")
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
        self._check_rate()

    def _check_rate(self) -> None:
        if self.context_rate is not None:
            fits = (
                len(self.context_rate) == 2
                and 0 <= self.context_rate[0] <= self.context_rate[1] <= 1
            )
            _require(
                fits, "context_rate", self.context_rate, "must be two numbers, rising, in 0..1"
            )

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
