"""Kernels are compiled on first use and kept on disk; whoever waits for that should be told.

Numba's cache notices a changed source file, but not a change in a file that it calls: after editing
a kernel's helper, delete the folder __pycache__ beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from cfnade.kernels.adam import Rule
from cfnade.kernels.dense import Network
from cfnade.kernels.rows import merge
from cfnade.kernels.sampling import Sampler
from cfnade.kernels.step import Engine

MESSAGE = "compiling kernels (once)…"


def prepare(notify: Callable[[str], None] | None = None) -> bool:
    """Make the training kernels ready. Returns whether any had to be compiled.

    If so, notify gets MESSAGE after the first and smallest: the others take seconds each.
    """
    first = merge.stats
    merge(0, 0, 16, np.zeros(16, np.float32), 16, np.ones(1, np.float32))
    compiled = bool(first.cache_misses)
    if compiled and notify is not None:
        notify(MESSAGE)
    _train_once()
    return compiled


def _train_once() -> None:
    """One step of the smallest network there is."""
    offsets, columns = np.array([0, 2]), np.array([0, 1], np.int32)
    sampler = Sampler(offsets, columns, np.zeros(2, np.uint8), n_columns=2, n_levels=2, threads=1)
    table = torch.zeros(2, 2, 1)
    network = Network(table, table.clone(), torch.zeros(2, 2), torch.zeros(1))
    rules = dict.fromkeys(network.named(), Rule())
    batch = sampler.draw(np.zeros(1, np.int64), seed=0, step=0)
    Engine(network, rules, threads=1).step(batch)
