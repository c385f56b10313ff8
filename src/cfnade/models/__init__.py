"""CF-NADE in plain torch, the reference of everything else: cfnade.py is the model itself."""

from cfnade.models.batch import Batch, Context, Targets
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import CFNADEConfig

__all__ = ["Batch", "CFNADEConfig", "CFNADENetwork", "Context", "Targets"]
