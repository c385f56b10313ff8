"""How a training runs, as opposed to what it trains (plan.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cfnade.fitted_model import FittedModel
from cfnade.training.callbacks import Callback
from cfnade.training.state import StateStore


@dataclass(frozen=True)
class RunOptions:
    """Options of one run; apart from `init_model`, none changes what is learned."""

    n_threads: int | None = None
    """Threads; None for torch's number. Another number may change the last bits."""
    device: str = "cpu"
    """A torch device to train on; predictions are made on the CPU."""
    init_model: FittedModel | None = None
    """A model whose members training continues with, one for each member of the plan."""
    callbacks: Sequence[Callback] = ()
    """Objects that receive the progress."""
    should_stop: Callable[[], bool] = lambda: False
    """Asked after every epoch; if it returns True, training ends with the best model so far."""
    store: StateStore | None = None
    """Where the resumable state is saved; None: it is not."""
