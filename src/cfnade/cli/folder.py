"""The folder that a command writes: one command at a time, and nothing in it is lost by mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cfnade.cli.job import RUN, Job, refuse_unfinished
from cfnade.exceptions import CfnadeError, CheckpointError, TrainingError
from cfnade.utils.files import LockedError, exclusive

LOCK = "training.lock"
_TRAINING = "is training into it; wait until that has ended, or give another folder with --out"
_FINISHED = "finished"  # in run.json: the run is at its end


@contextmanager
def own_folder(
    out: Path,
    lock: str = LOCK,
    error: type[CfnadeError] = TrainingError,
    busy: str = _TRAINING,
) -> Iterator[None]:
    """Make the folder and keep other runs out; if nothing comes into it, it goes again.

    `busy` says what another one that holds the lock is doing, and what to do about it.
    """
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(place for place in (out, *out.parents) if place.is_file())
        raise error(f"{file}: is a file; give a folder with --out") from None
    try:
        with exclusive(out / lock):
            yield
    except LockedError as holder:
        raise error(f"{out}: {holder} {busy}") from None
    finally:
        for folder in missing:
            with suppress(OSError):  # it holds something
                folder.rmdir()


def refuse_overwriting(out: Path, *, force: bool) -> None:
    """A model, or a run that can be gone on with, is replaced only if that is said."""
    from cfnade.checkpoint.folder import resolve_file
    from cfnade.checkpoint.manifest import MANIFEST
    from cfnade.checkpoint.save import require_replaceable

    require_replaceable(out)
    if force:
        return
    refuse_unfinished(out)
    if resolve_file(out, MANIFEST).exists():
        raise TrainingError(
            f"{out}: holds a trained model; give --force to replace it, or another folder with "
            "--out"
        )


def begin_run(out: Path, job: Job, earlier: Mapping[Path, int] | None = None) -> None:
    """Remove the states of an earlier run and write down this one.

    Members train at the same time: one may save its state before another has taken the first step,
    with which a run begins. `earlier` are the states before either, which alone are removed.
    """
    from cfnade.distributed import state as rank_state
    from cfnade.training import state

    state.delete_states(out, earlier)
    rank_state.forget(out)
    _write(out, job)


def end_run(out: Path, job: Job) -> None:
    """The model is saved: its training state, several times as large, goes unless it is wanted."""
    from cfnade.training import state

    _write(out, job | {_FINISHED: True})
    if not job["keep_state"]:
        state.delete_states(out)


def refuse_finished(out: Path, job: Job) -> None:
    """A run that is done, and whose state is gone, cannot be gone on with."""
    from cfnade.training import state

    if job.pop(_FINISHED, False) and not (out / state.NAME).exists():
        raise TrainingError(
            f"{out}: its training is finished, so there is nothing to resume: the state of it "
            "went when the model was saved (--keep-state keeps it). To train the model further, "
            f"give --from {out} and another folder with --out"
        )


@contextmanager
def nothing_lost(out: Path) -> Iterator[None]:
    """A disk that fails in the middle costs nothing that was saved, and the message says so."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, CheckpointError) as error:
        from cfnade.training import state

        what = str(error)
        if isinstance(error, OSError):
            what = f"{error.filename or out}: cannot be written ({error.strerror or error})"
        advice = "nothing of this run was saved before; put that right and start it again"
        if (out / state.NAME).exists():
            advice = (
                "the state of the run is whole: put that right and go on with: cfnade train "
                f"--resume --out {out}"
            )
        raise TrainingError(f"{what}; {advice}") from error


def _write(out: Path, job: Job) -> None:
    from cfnade.utils.files import write_text

    write_text(out / RUN, json.dumps(job, indent=1) + "\n")
