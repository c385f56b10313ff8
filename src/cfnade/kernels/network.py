"""A network given by its tensors, and its dense part: from summed context to the rows' states.

Between the two tables lie plain dense layers on a few hundred rows, in torch, cut by rows so that
every thread runs its own single-threaded matrix products. Backward by hand: each activation's slope
follows from its value. Shapes, dtypes and names are checked here: kernels check nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.kernels import buffers
from cfnade.kernels.buffers import Array

FLOATS = (torch.float32, torch.float64)


def _tanh(x: Tensor) -> Tensor:
    """tanh x = 2·sigmoid(2x) - 1, in place: four times as fast as torch's, within 2e-7."""
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": _tanh,
    "sigmoid": torch.sigmoid_,
    "relu": torch.relu_,
}

SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": lambda d, h: torch.ops.aten.tanh_backward(d, h),
    "sigmoid": lambda d, h: torch.ops.aten.sigmoid_backward(d, h),
    "relu": lambda d, h: d * (h > 0),
}


@dataclass(frozen=True)
class Network:
    """A model given by its tensors, which are read and moved in place."""

    input_table: Tensor  # (M, K, D): W, or A if factored
    output_table: Tensor  # (M, K, D'): V, or P if factored
    bias: Tensor  # (M, K): b
    c: Tensor  # (H,)
    B: Tensor | None = None  # (H, J)
    Q: Tensor | None = None  # (J, H')
    deep: tuple[tuple[Tensor, Tensor], ...] = ()  # weights (H_l, H_{l-1}) and bias (H_l) each
    activation: str = "tanh"
    shared: bool = True

    def detached(self) -> Network:
        """The same memory, unknown to autograd."""
        return replace(
            self,
            input_table=self.input_table.detach(),
            output_table=self.output_table.detach(),
            bias=self.bias.detach(),
            c=self.c.detach(),
            B=None if self.B is None else self.B.detach(),
            Q=None if self.Q is None else self.Q.detach(),
            deep=tuple((W.detach(), c.detach()) for W, c in self.deep),
        )

    def named(self) -> dict[str, Tensor]:
        """All parameters by name."""
        layers = {
            name: tensor
            for i, pair in enumerate(self.deep)
            for name, tensor in zip((f"deep_W.{i}", f"deep_c.{i}"), pair, strict=True)
        }
        optional = {"B": self.B, "Q": self.Q} | layers
        dense = {name: tensor for name, tensor in optional.items() if tensor is not None}
        tables = {"input_table": self.input_table, "output_table": self.output_table}
        return tables | {"bias": self.bias, "c": self.c} | dense


@dataclass
class Trace:
    """What the forward pass of some rows leaves for the backward pass."""

    sums: Tensor  # (B, D): scaled sums of the context
    layers: list[Tensor] = field(default_factory=list)  # (B, H_l) each


def forward(network: Network, sums: Tensor, out: Tensor) -> Trace:
    """State of each row from its scaled sum, written to out (B, D')."""
    g = ACTIVATIONS[network.activation]
    trace = Trace(sums)
    B, c = network.B, network.c
    h = g(sums + c if B is None else torch.addmm(c, sums, B.T))
    trace.layers.append(h)
    for W, c in network.deep:
        h = g(torch.addmm(c, h, W.T))
        trace.layers.append(h)
    if network.Q is None:
        out.copy_(h)
    else:
        torch.mm(h, network.Q.T, out=out)
    return trace


def backward(network: Network, trace: Trace, d_state: Tensor, grads: dict[str, Tensor]) -> Tensor:
    """Gradient of the scaled sums (B, D) from that of the state; parameters' go to grads."""
    slope = SLOPES[network.activation]
    d = d_state
    if network.Q is not None:
        torch.mm(d.T, trace.layers[-1], out=grads["Q"])
        d = d @ network.Q
    for i in range(len(network.deep) - 1, -1, -1):
        d = slope(d, trace.layers[i + 1])
        torch.mm(d.T, trace.layers[i], out=grads[f"deep_W.{i}"])
        torch.sum(d, 0, out=grads[f"deep_c.{i}"])
        d = d @ network.deep[i][0]
    d = slope(d, trace.layers[0])
    torch.sum(d, 0, out=grads["c"])
    if network.B is None:
        return d
    torch.mm(d.T, trace.sums, out=grads["B"])
    return d @ network.B


# -- checks ---------------------------------------------------------------------------------------


def require_tensor(name: str, tensor: Tensor, shape: tuple[int | None, ...], like: Tensor) -> None:
    """A CPU tensor of that shape and of one dtype with another; None stands for any size."""
    buffers.require_array(name, _array(name, tensor), shape, _array("", like).dtype)


def require_table(name: str, table: Tensor) -> tuple[int, int, int]:
    """A contiguous (M, K, D) table of floats, 2..255 levels. Returns its shape."""
    return buffers.require_table(name, _array(name, table))


def _array(name: str, tensor: Tensor) -> Array:
    if tensor.device.type != "cpu":
        raise ModelError(f"{name} is on {tensor.device}; the kernels run on cpu only")
    if tensor.dtype not in FLOATS:
        raise ModelError(f"{name} has dtype {tensor.dtype}; it must be float32 or float64")
    return np.asarray(tensor.detach().numpy())


def check_network(network: Network) -> None:
    """Every tensor fits the next one."""
    M, K, D = require_table("input_table", network.input_table)
    like = network.input_table
    width = require_table("output_table", network.output_table)[2]
    require_tensor("output_table", network.output_table, (M, K, width), like)
    require_tensor("bias", network.bias, (M, K), like)
    if (network.B is None) != (network.Q is None):
        raise ModelError(
            "B and Q come together: both for a factored network, neither for a full one"
        )
    H = network.c.shape[0] if network.B is not None else D
    require_tensor("c", network.c, (H,), like)
    if network.B is not None:
        require_tensor("B", network.B, (H, D), like)
    for i, (W, c) in enumerate(network.deep):
        require_tensor(f"deep_W.{i}", W, (None, H), like)
        H = W.shape[0]
        require_tensor(f"deep_c.{i}", c, (H,), like)
    if network.Q is not None:
        require_tensor("Q", network.Q, (width, H), like)
    elif width != H:
        raise ModelError(f"output_table has width {width}; the last hidden layer has {H} units")
    for name, tensor in network.named().items():
        if not tensor.is_contiguous():
            raise ModelError(f"{name} is not contiguous; call .contiguous() on it first")
    if network.activation not in ACTIVATIONS:
        raise ModelError(
            f"activation (={network.activation!r}) must be one of {', '.join(ACTIVATIONS)}"
        )


def check_rules(network: Network, rules: Mapping[str, object]) -> None:
    """One rule for each parameter, no more."""
    differ = set(network.named()) ^ set(rules)
    if differ:
        raise ModelError(
            f"rules must name exactly the network's parameters {sorted(network.named())}; "
            f"these differ: {sorted(differ)}"
        )
