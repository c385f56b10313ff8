"""A device that is not the CPU, made of Python: what stands in for a graphics card in tests.

Its tensors are calculated on the CPU, but refuse to meet tensors that are not theirs, as those of a
real device do, and have no memory that NumPy could read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "far"
MAY_MEET = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}


class FarTensor(Tensor):
    """A tensor of the device; `near` is its content."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> FarTensor:
        made: FarTensor = Tensor._make_wrapper_subclass(
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=torch.device(NAME, 0),
            requires_grad=near.requires_grad,
        )
        made.near = near
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def tolist(self) -> Any:
        return self.near.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        del types
        return dispatch(function, given, named or {})


class FarDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, `device="far"` can be used."""

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        del types
        return dispatch(function, given, named or {})


def dispatch(function: Any, given: Any, named: dict[str, Any]) -> Any:
    """Calculate it, on the device if all that it is given lies there."""
    tensors = [x for x in tree_flatten((given, named))[0] if isinstance(x, Tensor)]
    far = [isinstance(tensor, FarTensor) for tensor in tensors]
    alone = [t for t in tensors if not isinstance(t, FarTensor) and t.dim() > 0]
    if any(far) and alone and function not in MAY_MEET:
        raise RuntimeError(f"{function}: expected all tensors to be on the same device")
    device = named.get("device")
    where = any(far) if device is None else torch.device(device).type == NAME
    own = named | ({} if device is None else {"device": torch.device("cpu")})
    own.pop("pin_memory", None)
    found = function(*tree_map(_near, given), **tree_map(_near, own))
    if not where:
        return found
    wrapped = tree_map(lambda x: FarTensor(x) if isinstance(x, Tensor) else x, found)
    if not any(far):
        return wrapped
    return return_and_correct_aliasing(function, given, named, wrapped)  # type: ignore[no-untyped-call]


def _near(value: Any) -> Any:
    return value.near if isinstance(value, FarTensor) else value


def register() -> None:
    """Make the device known to torch, once in a process."""
    _setup_privateuseone_for_python_backend(NAME)
