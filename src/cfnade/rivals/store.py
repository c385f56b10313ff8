"""A fitted model of our own as a folder: rival.json to read, rival.safetensors with its arrays.

Saving replaces both or neither. Loading runs no code from the folder and trusts nothing in it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cfnade import __version__
from cfnade.checkpoint.folders import current, replacing_files
from cfnade.errors import CfnadeError, CheckpointError
from cfnade.rivals import make
from cfnade.rivals.interface import Arrays, Rival

FACTS, ARRAYS = "rival.json", "rival.safetensors"
FORMAT = "cfnade rival 1"
_ANEW = "save the model again"


def save(rival: Rival, folder: str | Path) -> None:
    """Write a fitted model into a folder, in place of one that is there; other files stay."""
    folder = Path(folder)
    arrays = {name: np.ascontiguousarray(array) for name, array in rival.arrays().items()}
    facts = {
        "format": FORMAT,
        "version": __version__,
        "model": rival.name,
        "options": asdict(rival.options),
        "arrays": {name: f"{array.dtype} {list(array.shape)}" for name, array in arrays.items()},
    }
    try:
        _check_place(folder)
        with replacing_files(folder, (FACTS, ARRAYS)) as part:
            (part / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            save_file(arrays, part / ARRAYS)
            (part / ARRAYS).chmod((part / FACTS).stat().st_mode)  # else readable by its owner only
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: could not be saved ({error}); a model saved there before is whole"
        ) from error


def load(folder: str | Path) -> Rival:
    """The saved model; it predicts the same bits."""
    folder = Path(folder)
    facts = _read_facts(current(folder, FACTS))
    arrays = _read_arrays(current(folder, ARRAYS))
    where = folder / ARRAYS
    listed = {name: f"{array.dtype} {list(array.shape)}" for name, array in arrays.items()}
    if listed != facts["arrays"]:
        raise CheckpointError(
            f"{where}: holds {sorted(listed.items())}, but {FACTS} lists "
            f"{sorted(facts['arrays'].items())}; {_ANEW}"
        )
    try:
        options = {name: _tuple(value) for name, value in facts["options"].items()}
        rival = make(facts["model"], **options)
        rival.restore(arrays)
    except CfnadeError as error:
        raise CheckpointError(f"{folder}: is not a saved model that fits: {error}") from error
    return rival


def _check_place(folder: Path) -> None:
    """Never overwrite files of the same names that are not ours."""
    if current(folder, FACTS).exists():
        _read_facts(current(folder, FACTS))
    elif (folder / ARRAYS).exists():
        raise CheckpointError(
            f"{folder}: holds {ARRAYS} but no {FACTS}, so it is not a saved model and would be "
            "lost; choose another folder"
        )


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such file, so no saved model here") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); {_ANEW}") from error
    parts = {"model": str, "options": dict, "arrays": dict}
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise CheckpointError(f"{path}: is not a saved model of the format {FORMAT!r}; {_ANEW}")
    for name, kind in parts.items():
        if not isinstance(facts.get(name), kind):
            raise CheckpointError(f"{path}: {name} (={facts.get(name)!r}) is damaged; {_ANEW}")
    return facts


def _read_arrays(path: Path) -> Arrays:
    try:
        # Copies: what load_file gives may be a view of the file, which can change under us.
        return {name: np.array(array) for name, array in load_file(path).items()}
    except FileNotFoundError:
        raise CheckpointError(f"{path}: is missing; {_ANEW}") from None
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: is no safetensors file ({error}); {_ANEW}") from error


def _tuple(value: Any) -> Any:
    """JSON knows lists only; options that hold several values are tuples."""
    return tuple(_tuple(part) for part in value) if isinstance(value, list) else value
