"""CF-NADE and what is computed with it. The model itself is models/cfnade.py."""

from cfnade.models.batch import Batch, Context, Targets
from cfnade.models.cfnade import CFNADE
from cfnade.models.config import CFNADEConfig
from cfnade.models.distribution import Distribution

__all__ = ["CFNADE", "Batch", "CFNADEConfig", "Context", "Distribution", "Targets"]
