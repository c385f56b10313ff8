"""What the integrations share: fitting a model to arrays of users, items and ratings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.validate import build
from cfnade.estimator import CFNADE
from cfnade.parameters import Arguments

UNKNOWN_ID = -1
"""No library has this id: all number users and items from 0."""


def fit_model(arguments: Arguments, users: Any, items: Any, values: Any, **options: Any) -> CFNADE:
    """Return a model fitted to ratings, (n,) each; repeated pairs count once, with their mean."""
    table = RawTable.from_arrays(users, items, np.asarray(values, np.float64))
    ratings = build(table, LoadOptions(duplicates="mean", **options))
    return CFNADE(**{f.name: getattr(arguments, f.name) for f in fields(Arguments)}).fit(ratings)
