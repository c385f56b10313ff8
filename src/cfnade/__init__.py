"""CF-NADE: predicts the probability distribution of the rating that a user gives an item."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

# torch reads this once: its arrays then lie in large pages, as numpy's do. A pass over the weights
# of all items takes nearly half the time, and a training epoch a tenth less.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from cfnade.data.dataset import Dataset, Interactions, Ratings
    from cfnade.data.load import load, load_split
    from cfnade.data.scale import Scale
    from cfnade.data.splits import Split, split, train_test_split
    from cfnade.data.synthetic import synthetic
    from cfnade.estimator import CFNADE
    from cfnade.exceptions import CfnadeError, DataError, ModelError

_MODULES = {
    "CFNADE": "estimator",
    "CfnadeError": "exceptions",
    "DataError": "exceptions",
    "ModelError": "exceptions",
    "Dataset": "data.dataset",
    "Interactions": "data.dataset",
    "Ratings": "data.dataset",
    "Scale": "data.scale",
    "Split": "data.splits",
    "load": "data.load",
    "load_split": "data.load",
    "split": "data.splits",
    "synthetic": "data.synthetic",
    "train_test_split": "data.splits",
}


def __getattr__(name: str) -> Any:  # imports on first use, so that `import cfnade` is fast
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CFNADE",
    "CfnadeError",
    "DataError",
    "Dataset",
    "Interactions",
    "ModelError",
    "Ratings",
    "Scale",
    "Split",
    "__version__",
    "load",
    "load_split",
    "split",
    "synthetic",
    "train_test_split",
]
