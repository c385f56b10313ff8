"""The output folder of a command: one writer at a time, and nothing is replaced by accident."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cfnade.cli.run_config import RUN_FILE, RunConfig, is_finished
from cfnade.exceptions import CfnadeError, CheckpointError, TrainingError
from cfnade.utils.files import LockedError, exclusive, write_text

LOCK = "training.lock"
_TRAINING = "is training into it; wait until it ends, or give another folder with --out"


@contextmanager
def locked_output_dir(
    out: Path,
    lock: str = LOCK,
    error: type[CfnadeError] = TrainingError,
    busy: str = _TRAINING,
) -> Iterator[None]:
    """Create the folder and hold its lock; folders that stay empty are removed.

    Args:
        out: The folder.
        lock: Name of the lock file.
        error: Raised if the folder cannot be used.
        busy: What the holder of the lock does, for the error message.
    """
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(path for path in (out, *out.parents) if path.is_file())
        raise error(f"{file}: is a file; give a folder with --out") from None
    try:
        with exclusive(out / lock):
            yield
    except LockedError as holder:
        raise error(f"{out}: {holder} {busy}") from None
    finally:
        for folder in missing:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def require_replaceable(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace a model or an unfinished run without `overwrite`."""
    from cfnade.checkpoint.folder import resolve_file
    from cfnade.checkpoint.manifest import MANIFEST
    from cfnade.checkpoint.save import require_replaceable as require_own_files
    from cfnade.distributed import state as rank_state
    from cfnade.training import state

    require_own_files(out)
    if overwrite:
        return
    has_rank_state = rank_state.exists(out)
    has_state = any(path.name == state.NAME for path in state.state_files(out))
    if has_rank_state or (has_state and _is_unfinished(out)):
        ranks = " of several ranks (resuming needs as many ranks)" if has_rank_state else ""
        raise TrainingError(
            f"{out}: holds an unfinished run{ranks}; continue it with --resume, or replace it with "
            "--overwrite"
        )
    if resolve_file(out, MANIFEST).exists():
        raise TrainingError(
            f"{out}: holds a trained model; give --overwrite to replace it, or another folder with "
            "--out"
        )


def _is_unfinished(out: Path) -> bool:
    """Return whether the run in the folder can be resumed: it has a readable run.json."""
    try:
        return not is_finished(out)
    except TrainingError:
        return False


def require_no_model(out: Path) -> None:
    """Refuse to write other files into the folder of a saved model."""
    from cfnade.checkpoint.folder import resolve_file
    from cfnade.checkpoint.manifest import MANIFEST, read_manifest

    with suppress(CheckpointError):  # of another program, or none
        read_manifest(resolve_file(out, MANIFEST))
        raise TrainingError(f"{out}: is the folder of a saved model; give another folder")


def begin_run(out: Path, config: RunConfig, earlier: Mapping[Path, int] | None = None) -> None:
    """Remove the states of an earlier run and write the configuration of this one.

    Args:
        out: The output folder.
        config: The configuration.
        earlier: State files of the earlier run; None: all. Members train in parallel: one may save
            its state before another has taken the first step.
    """
    from cfnade.distributed import state as rank_state
    from cfnade.training import state

    state.delete_states(out, earlier)
    rank_state.forget(out)
    _write(out, config.to_json())


def end_run(out: Path, config: RunConfig) -> None:
    """Mark the run as finished; its training state is removed unless it is to be kept."""
    from cfnade.training import state

    _write(out, config.to_json() | {"finished": True})
    if not config.keep_state:
        state.delete_states(out)


def require_unfinished(out: Path) -> None:
    """Refuse to resume a finished run whose training state is removed."""
    from cfnade.training import state

    if is_finished(out) and not (out / state.NAME).exists():
        raise TrainingError(
            f"{out}: the run is finished, so there is nothing to resume: its training state was "
            "removed when the model was saved (--keep-state keeps it). To train the model further, "
            f"give --init-model {out} and another folder with --out"
        )


@contextmanager
def write_errors_explained(out: Path) -> Iterator[None]:
    """Turn a failed write into an error that states what is saved and how to continue."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, CheckpointError) as error:
        from cfnade.training import state

        message = str(error)
        if isinstance(error, OSError):
            message = f"{error.filename or out}: cannot be written ({error.strerror or error})"
        advice = "nothing of this run was saved before; correct that and start again"
        if (out / state.NAME).exists():
            advice = (
                "the saved state of the run is intact: correct that and continue with: "
                f"cfnade train --resume --out {out}"
            )
        raise TrainingError(f"{message}; {advice}") from error


def _write(out: Path, values: dict[str, Any]) -> None:
    write_text(out / RUN_FILE, json.dumps(values, indent=1) + "\n")
