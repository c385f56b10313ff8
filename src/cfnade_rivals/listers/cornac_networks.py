"""What the networks of Cornac share: its data set, dense rows, and torch's seed and threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cfnade_rivals.libraries import library
from cfnade_rivals.listers.likes import Likes


def cornac_data(likes: Likes, seed: int, model: str) -> Any:
    """Cornac's data set in which every person and item has its own index."""
    data = library("cornac.data", "cornac", model)
    cells = likes.rows(), likes.columns.astype(np.int64), np.ones(len(likes.columns))
    people, items = ({i: i for i in range(n)} for n in (len(likes), likes.n_items))
    return data.Dataset(len(likes), likes.n_items, people, items, cells, seed=seed)


def dense(given: Likes) -> Any:
    """Ones where something is liked, a tensor. (people, M)."""
    import torch

    return torch.from_numpy(given.matrix().toarray())


@contextmanager
def drawing(seed: int, threads: int | None) -> Iterator[None]:
    """Torch draws by the seed inside, on so many threads; outside it goes on as before."""
    import torch

    from cfnade.kernels.threads import thread_count, torch_threads

    with torch.random.fork_rng(devices=[]), torch_threads(thread_count(threads)):
        torch.manual_seed(seed)
        yield
