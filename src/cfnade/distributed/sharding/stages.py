"""A sharding job: stages one after the other, each of tasks that an engine runs in any order.

    read     pieces of files become chunks with raw ids of their own
    texts    integer ids become texts where other chunks have texts
    ids      ranges of raw ids, each id once, and which one each chunk's ids are
    scatter  chunks by indices in the whole, by bands of rows
    sort     bands: duplicates settled, divided, placed, by part
    join     parts, counts of rows and ids: the files that stay

A task writes files that are whole or not there, and is left out if they are there: a job that was
stopped anywhere goes on where it was. Tasks meet only on the disk, which all workers must see.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cfnade.data.dataset import Axis
from cfnade.data.load import LoadOptions
from cfnade.distributed.engines import Task, TaskEngine
from cfnade.distributed.sharding import finding, finishing, sorting
from cfnade.distributed.sharding.chunks import piece_name, read_piece
from cfnade.distributed.sharding.layout import (
    MANIFEST,
    PARTS,
    SIDES,
    ids_file,
    part_file,
    rows_file,
)
from cfnade.distributed.sharding.plan import ShardOptions, ShardPlan, plan_of
from cfnade.distributed.sharding.workplace import Workplace
from cfnade.distributed.shards import ShardedRatings
from cfnade.exceptions import DataError

log = logging.getLogger(__name__)


def shard(
    data: Sequence[str | Path],
    out: str | Path,
    engine: TaskEngine,
    options: ShardOptions | None = None,
    reading: LoadOptions | None = None,
    *,
    force: bool = False,
) -> ShardedRatings:
    """Cut the ratings of these files into parts in a folder, or go on with a job left there."""
    place = Workplace(Path(out).absolute())
    plan = plan_of(
        data, options or ShardOptions(), reading or LoadOptions()
    )  # before anything is removed
    if force and (place.work.exists() or (place.folder / MANIFEST).exists()):
        _clear(place)
    if (place.folder / MANIFEST).exists():
        _same_or_raise(ShardPlan.load(place.folder / finishing.SOURCE), plan, place, "holds shards")
        log.info("%s: finished before, from the same files", out)
        return ShardedRatings.open(out)
    if place.plan_file.exists() and not any((place.work / "pieces").glob("*")):
        _clear(place)  # it failed before anything was done
    if place.plan_file.exists():
        _same_or_raise(place.plan(), plan, place, "holds an unfinished job")
        log.info("%s: going on with the job that was left here", out)
    else:
        _refuse_other(place)
        plan.save(place.plan_file)
    _run(place, plan, engine)
    return ShardedRatings.open(out)


def _run(place: Workplace, plan: ShardPlan, engine: TaskEngine) -> None:
    sides = plan.options.sides

    def stage(
        name: str, function: Callable[..., Any], tasks: Sequence[Task], done: Sequence[bool]
    ) -> None:
        # what a worker is told is the folder and some numbers
        left = [(place, *task) for task, over in zip(tasks, done, strict=True) if not over]
        started = time.perf_counter()
        engine.each(function, left)
        seconds = time.perf_counter() - started
        log.info("%s: %d of %d tasks, %.1f s", name, len(left), len(tasks), seconds)

    pieces = [(number,) for number in range(len(plan.pieces))]
    done = [place.noted(piece_name(number)) is not None for (number,) in pieces]
    stage("read", read_piece, pieces, done)
    facts = place.noted("found") or finding.find_out(place)
    for words in (*facts["skipped"], facts["assumed"]):
        if words:
            log.info("%s", words)
    again = [(axis, chunk) for axis in SIDES for chunk in facts["retext"][axis]]
    done = [place.has(finding.ids_name(facts, *task)) for task in again]
    stage("texts", sorting.write_as_texts, again, done)
    ranges = {axis: finding.cut_ids(place, axis) for axis in SIDES}
    merged = [(axis, number) for axis in SIDES for number in range(ranges[axis])]
    done = [place.has(f"ids/{axis}-{number}") for axis, number in merged]
    stage("ids", sorting.merge_ids, merged, done)
    for axis in SIDES:
        finding.number_ids(place, axis, ranges[axis])
    each = [(number,) for number in range(len(facts["chunks"]))]
    done = [place.has(f"scattered/{sides[-1]}-{number:06d}") for (number,) in each]
    stage("scatter", sorting.scatter, each, done)
    bands = [
        (side, band)
        for side in sides
        for band in range(len(place.read(f"bands/{side}")["bounds"]) - 1)
    ]
    done = [place.has(f"sorted/{side}-{band:06d}") for side, band in bands]
    stage("sort", sorting.sort_band, bands, done)
    for side in sides:
        finishing.note_sizes(place, side)
    joined = _files(place, sides)
    done = [(place.folder / file).exists() for _, file in joined]
    stage("join", finishing.join, [task for task, _ in joined], done)
    finishing.write_manifest(place)


def _files(place: Workplace, sides: Sequence[Axis]) -> list[tuple[Task, str]]:
    """What to join, and the file that it becomes."""
    joined: list[tuple[Task, str]] = [
        (("ids", axis, piece), ids_file(axis, piece))
        for axis in SIDES
        for piece in range(len(finishing.id_pieces(place, axis)))
    ]
    joined += [(("rows", side, 0), rows_file(side)) for side in sides]
    joined += [(("part", s, p), part_file(s, p)) for s in sides for p in range(PARTS)]
    return joined


# -- the folder -----------------------------------------------------------------------------------


def _same_or_raise(old: ShardPlan, new: ShardPlan, place: Workplace, what: str) -> None:
    if difference := old.difference(new):
        raise DataError(
            f"{place.folder}: {what} made otherwise: {difference}; give --overwrite to "
            "replace it, or "
            "another folder with --out"
        )


def _refuse_other(place: Workplace) -> None:
    if any(file.name[0] != "." for file in place.folder.glob("*")):
        raise DataError(
            f"{place.folder}: is not empty and holds no shards; give an empty folder with --out"
        )


def _clear(place: Workplace) -> None:
    """Remove what a job writes, and nothing else; the manifest first, so that none lies."""
    (place.folder / MANIFEST).unlink(missing_ok=True)
    for name in ("work", "ids", "rows", *SIDES):
        shutil.rmtree(place.folder / name, ignore_errors=True)
    (place.folder / finishing.SOURCE).unlink(missing_ok=True)
