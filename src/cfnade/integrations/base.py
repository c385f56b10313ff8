"""What the plugins share: a model of somebody else's users, items and ratings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.validate import build
from cfnade.estimator import CFNADE
from cfnade.parameters import Arguments

NOBODY = -1
"""An id that no library gives: users and items are numbered from 0 in all of them."""


def model_of(told: Arguments, users: Any, items: Any, values: Any, **options: Any) -> CFNADE:
    """Trained on these (n,) each; a pair that comes twice counts with its mean."""
    table = RawTable.from_arrays(users, items, np.asarray(values, np.float64))
    ratings = build(table, LoadOptions(duplicates="mean", **options))
    arguments = {one.name: getattr(told, one.name) for one in fields(Arguments)}
    return CFNADE(**arguments).fit(ratings)
