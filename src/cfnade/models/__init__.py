"""CF-NADE in plain torch, the reference of everything else: cfnade.py is the model itself.

Names are imported when first used: who only wants the fields of a model (config.py) needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfnade.models.batch import Context, ModelBatch, Targets
    from cfnade.models.cfnade import CFNADENetwork
    from cfnade.models.config import CFNADEConfig

_MODULES = {
    "ModelBatch": "batch",
    "CFNADEConfig": "config",
    "CFNADENetwork": "cfnade",
    "Context": "batch",
    "Targets": "batch",
}


def __getattr__(name: str) -> Any:  # imports on first use
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = ["CFNADEConfig", "CFNADENetwork", "Context", "ModelBatch", "Targets"]
