"""Arrays of a checkpoint, read and held against what model.json says of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cfnade.choice import Choice, choice_shapes, saved_choice
from cfnade.errors import CheckpointError, ModelError


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All arrays of a file, mapped into memory; float16 becomes float32, a copy.

    Processes that load the same model share its pages, and where the file system keeps large ones
    a table is read faster than from memory that was asked for in small ones. Who writes to an array
    has a copy of that page. Files are replaced, never written to (folders.py).
    """
    try:
        return {
            name: tensor.float() if tensor.dtype == torch.float16 else tensor
            for name, tensor in load_file(path).items()
        }
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors ({error})") from error


def read_choice(described: Mapping[str, Any] | None, path: Path | None) -> Choice | None:
    """What is picked, if the model knows that."""
    if described is None:
        return None
    if path is None:
        raise ModelError("it knows what is picked, but lists no file of that")
    tensors = read_tensors(path)
    kinds = {
        name: (torch.int32 if name.endswith(".of") else torch.float32, shape)
        for name, shape in choice_shapes(described).items()
    }
    check_tensors(path, tensors, kinds)
    return saved_choice(described, tensors)


def check_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]],
) -> None:
    """Refuse arrays of other names, types or shapes than wanted."""
    if set(tensors) != set(kinds):
        raise CheckpointError(
            f"{path}: holds the arrays {sorted(tensors)}; model.json describes {sorted(kinds)}"
        )
    for name, tensor in tensors.items():
        kind = tensor.dtype, tuple(tensor.shape)
        if kind != kinds[name]:
            raise CheckpointError(
                f"{path}: {name} is {kind[0]} of shape {kind[1]}; model.json describes "
                f"{kinds[name][0]} of shape {kinds[name][1]}"
            )
