"""Types of arrays that several packages share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
