"""How the learning rate changes: a factor between 1 and 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cfnade.config import TrainingConfig

LEAST = 0.02  # where linear and cosine end: at zero the last steps would be wasted
QUARTER, SMALLEST = 0.25, 1e-5  # the authors' plateau


@dataclass
class Schedule:
    """The factor of a step; only a plateau remembers anything, and only `quarters`."""

    settings: TrainingConfig
    steps: int  # of the whole run
    quarters: int = 0
    last_cut: int = 0  # epoch of the last quarter

    def factor(self, step: int) -> float:
        """Of the step's rate, `step` counting from 0."""
        done = step / max(1, self.steps)
        match self.settings.schedule:
            case "cosine":
                return LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * done))
            case "linear":
                held = 0.1  # at first the rate stays, as in the large recipes
                return LEAST + (1 - LEAST) * min(1.0, (1 - done) / (1 - held))
            case "plateau":
                return float(QUARTER**self.quarters)
            case _:
                return 1.0

    def after_epoch(self, epoch: int, best_epoch: int) -> None:
        """A plateau quarters the rate when nothing got better for `patience` epochs."""
        if self.settings.schedule != "plateau" or self.settings.patience is None:
            return
        stale = epoch - max(best_epoch, self.last_cut)
        if stale >= self.settings.patience and self._rate() > SMALLEST:
            self.quarters += 1
            self.last_cut = epoch

    def finished(self, epoch: int, best_epoch: int) -> bool:
        """Whether training may stop before its last epoch."""
        patience = self.settings.patience
        if patience is None:
            return False
        if self.settings.schedule == "plateau":
            return self._rate() <= SMALLEST and epoch - max(best_epoch, self.last_cut) >= patience
        return epoch - best_epoch >= patience

    def _rate(self) -> float:
        return self.settings.learning_rate * float(QUARTER**self.quarters)
