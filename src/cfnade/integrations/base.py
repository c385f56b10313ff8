"""What the integrations share: the parameters of CFNADE, and a model of another library's data."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.validate import build
from cfnade.estimator import CFNADE

NOBODY = -1
"""An id that no library gives: users and items are numbered from 0 in all of them."""


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


def model_of(parameters: Parameters, users: Any, items: Any, values: Any, **options: Any) -> CFNADE:
    """Trained on these (n,) each; a pair that comes twice counts with its mean."""
    table = RawTable.from_arrays(users, items, np.asarray(values, np.float64))
    ratings = build(table, LoadOptions(duplicates="mean", **options))
    values = {one.name: getattr(parameters, one.name) for one in fields(Parameters)}
    return CFNADE(**values).fit(ratings)
