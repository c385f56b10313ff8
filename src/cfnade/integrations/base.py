"""What the integrations share: the parameters of CFNADE, and fitting it to arrays."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.validate import build
from cfnade.estimator import CFNADE

UNKNOWN_ID = -1
"""No library has this id: all number users and items from 0."""


if TYPE_CHECKING:
    Parameters = Any
else:
    _FIELDS = [
        (name, Any, field(default=parameter.default))
        for name, parameter in signature(CFNADE).parameters.items()
    ]
    Parameters = make_dataclass(
        "Parameters",
        _FIELDS,
        kw_only=True,
        eq=False,
        repr=False,
        namespace={"__module__": __name__},
    )
    """A dataclass of the parameters of CFNADE, which estimators of other libraries extend."""


def fit_model(
    parameters: Parameters, users: Any, items: Any, values: Any, **options: Any
) -> CFNADE:
    """Return a model fitted to ratings, (n,) each; repeated pairs count once, with their mean."""
    table = RawTable.from_arrays(users, items, np.asarray(values, np.float64))
    ratings = build(table, LoadOptions(duplicates="mean", **options))
    return CFNADE(**{f.name: getattr(parameters, f.name) for f in fields(Parameters)}).fit(ratings)
