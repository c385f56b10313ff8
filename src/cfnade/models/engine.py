"""A model as the engine sees it: the same tensors under the engine's names."""

from __future__ import annotations

from cfnade.kernels.dense import Network
from cfnade.models.cfnade import CFNADE


def network_of(model: CFNADE) -> Network:
    """The model's own tensors, to be read and moved in place."""
    factored = model.config.factors is not None
    return Network(
        input_table=model.input_table.data,
        output_table=model.output_table.data,
        bias=model.b.data,
        c=model.c.data,
        B=model.B.data if factored else None,
        Q=model.Q.data if factored else None,
        deep=tuple((W.data, c.data) for W, c in zip(model.deep_W, model.deep_c, strict=True)),
        activation=model.config.activation,
        shared=model.config.shared,
    )
