"""CF-NADE in plain torch, the reference of everything else: cfnade.py is the model itself.

Names are imported when first used: who only wants the fields of a model (config.py) needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfnade.lazily import first_used

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


__getattr__ = first_used(__name__, _HOMES)

__all__ = ["Batch", "CFNADEConfig", "CFNADENetwork", "Context", "Targets"]
