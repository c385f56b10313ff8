"""Refuse bad shapes, dtypes and indices before a kernel is entered: kernels check nothing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.kernels.dense import ACTIVATIONS, Network

FLOATS = (torch.float32, torch.float64)
MAX_LEVELS = 255


def require_tensor(
    name: str, tensor: Tensor, shape: tuple[int | None, ...], dtype: torch.dtype
) -> None:
    """A CPU tensor of that dtype and shape; None stands for any size."""
    if tensor.device.type != "cpu":
        raise ModelError(f"{name} is on {tensor.device}; the kernels run on cpu only")
    if tensor.dtype != dtype:
        raise ModelError(f"{name} has dtype {tensor.dtype}; it must be {dtype}")
    fits = len(tensor.shape) == len(shape) and all(
        want is None or got == want for got, want in zip(tensor.shape, shape, strict=True)
    )
    if not fits:
        wanted = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise ModelError(f"{name} has shape {tuple(tensor.shape)}; it must be {wanted}")


def require_table(name: str, table: Tensor) -> tuple[int, int, int]:
    """A contiguous (M, K, D) table of floats, 2..255 levels. Returns its shape."""
    if table.dtype not in FLOATS:
        raise ModelError(f"{name} has dtype {table.dtype}; it must be float32 or float64")
    require_tensor(name, table, (None, None, None), table.dtype)
    M, K, D = table.shape
    if not (M >= 1 and 2 <= K <= MAX_LEVELS and D >= 1):
        raise ModelError(
            f"{name} has shape {tuple(table.shape)}; it must be (columns, levels, width) with "
            f"2..{MAX_LEVELS} levels and no empty side"
        )
    if not table.is_contiguous():
        raise ModelError(f"{name} is not contiguous; call .contiguous() on it first")
    return M, K, D


def check_network(network: Network) -> None:
    """Every tensor fits the next one."""
    M, K, D = require_table("input_table", network.input_table)
    dtype = network.input_table.dtype
    width = require_table("output_table", network.output_table)[2]
    require_tensor("output_table", network.output_table, (M, K, width), dtype)
    require_tensor("bias", network.bias, (M, K), dtype)
    if (network.B is None) != (network.Q is None):
        raise ModelError(
            "B and Q come together: both for a factored network, neither for a full one"
        )
    H = network.c.shape[0] if network.B is not None else D
    require_tensor("c", network.c, (H,), dtype)
    if network.B is not None:
        require_tensor("B", network.B, (H, D), dtype)
    for i, (W, c) in enumerate(network.deep):
        require_tensor(f"deep_W.{i}", W, (None, H), dtype)
        H = W.shape[0]
        require_tensor(f"deep_c.{i}", c, (H,), dtype)
    if network.Q is not None:
        require_tensor("Q", network.Q, (width, H), dtype)
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
