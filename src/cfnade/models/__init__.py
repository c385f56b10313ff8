"""CF-NADE in plain torch, the reference of everything else: cfnade.py is the model itself.

Names are imported when first used: who only wants the fields of a model (config.py) needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfnade.models.batch import Batch, Context, Targets
    from cfnade.models.cfnade import CFNADENetwork
    from cfnade.models.config import CFNADEConfig

_HOMES = {
    "Batch": "batch",
    "CFNADEConfig": "config",
    "CFNADENetwork": "cfnade",
    "Context": "batch",
    "Targets": "batch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cfnade.models' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"cfnade.models.{_HOMES[name]}"), name)


__all__ = ["Batch", "CFNADEConfig", "CFNADENetwork", "Context", "Targets"]
