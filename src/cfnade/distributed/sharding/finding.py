"""Between the stages: what all pieces came to together. Small enough for the process that leads."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Axis
from cfnade.data.scale import INTERACTIONS, Scale, bin_scale, infer_scale, parse_scale
from cfnade.distributed.sharding.chunks import chunk_name, piece_name
from cfnade.distributed.sharding.layout import SIDES
from cfnade.distributed.sharding.plan import ShardPlan
from cfnade.distributed.sharding.workplace import StoredIds, Workplace
from cfnade.exceptions import DataError
from cfnade.utils.text import option

IDS_AT_ONCE = 1 << 21
"""So many raw ids of all chunks, the same ones counted again, are merged by one task."""
BAND = 1 << 22
"""So many ratings are put in order by one task, or as many as the largest row has."""
_SAMPLES = 256  # ids of a chunk that are looked at for even ranges
_MOST = 2**31 - 1


def find_out(place: Workplace) -> dict[str, Any]:
    """Note which chunks there are, what ids they have, and what the scale is."""
    plan = place.plan()
    notes = [place.noted(piece_name(number)) or {} for number in range(len(plan.pieces))]
    chunks = [chunk for note in notes for chunk in note["chunks"]]
    if not chunks:
        raise DataError(_nothing(plan))
    kinds = {chunk["implicit"] for chunk in chunks}
    if len(kinds) > 1:
        rated = next(chunk for chunk in chunks if not chunk["implicit"])
        bare = next(chunk for chunk in chunks if chunk["implicit"])
        raise DataError(
            f"{_source(plan, rated)} has ratings and {_source(plan, bare)} has none; name the "
            f"column with {option('rating')}, or take all as interactions with "
            f"{option('implicit', True)}"
        )
    scale = INTERACTIONS if kinds == {True} else _scale(place, plan, chunks)
    texts = {axis: any(chunk[axis]["texts"] for chunk in chunks) for axis in SIDES}
    return place.note(
        "found",
        {
            "chunks": [chunk["name"] for chunk in chunks],
            "retext": {
                axis: [i for i, c in enumerate(chunks) if texts[axis] and not c[axis]["texts"]]
                for axis in SIDES
            },
            "scale": scale.values,
            "edges": scale.edges,
            "read": sum(chunk["ratings"] for chunk in chunks),
            "skipped": [words for note in notes for words in note["skipped"]],
            "assumed": next((c["assumed"] for c in chunks if c["assumed"]), ""),
        },
    )


def _nothing(plan: ShardPlan) -> str:
    if plan.options.min_rating is not None:
        return f"min_rating={plan.options.min_rating:g}: no rating is as high; give a lower one"
    return f"{plan.inputs[0][0]} …: no ratings in {len(plan.inputs)} files"


def _source(plan: ShardPlan, chunk: dict[str, Any]) -> str:
    return plan.pieces[int(chunk["name"].split("-")[0])].path


def _scale(place: Workplace, plan: ShardPlan, chunks: list[dict[str, Any]]) -> Scale:
    """As given, as files say, or the even grid that holds all ratings."""
    if plan.options.scale is not None:
        return parse_scale(plan.options.scale)
    distinct = np.empty(0)
    for chunk in chunks:
        values = place.read(chunk_name(chunk["name"], "ratings"))["values"]
        distinct = np.union1d(distinct, values)
    if plan.options.bins is not None:
        return bin_scale(plan.options.bins, float(distinct[0]), float(distinct[-1]))
    said = {repr(chunk["scale"]): chunk["scale"] for chunk in chunks}
    if len(said) == 1 and (own := next(iter(said.values()))) is not None:
        return Scale.saved(*own)
    return infer_scale(distinct)


# -- ids ------------------------------------------------------------------------------------------


def ids_name(facts: dict[str, Any], axis: Axis, chunk: int) -> str:
    """The file with the ids of a chunk, as texts if any chunk has texts."""
    name = chunk_name(facts["chunks"][chunk], axis)
    return f"{name}-texts" if chunk in facts["retext"][axis] else name


def cut_ids(place: Workplace, axis: Axis) -> int:
    """Cut all ids into ranges of about as many ids in all chunks. Returns how many ranges."""
    facts = place.found()
    names = [ids_name(facts, axis, chunk) for chunk in range(len(facts["chunks"]))]
    samples: list[tuple[Any, float]] = []
    total = 0
    for name in names:
        ids = StoredIds(place.read(name))
        total += len(ids)
        places = np.unique(np.linspace(0, len(ids) - 1, min(_SAMPLES, len(ids))).astype(int))
        samples += [(ids[i], len(ids) / len(places)) for i in places.tolist()]
    samples.sort()
    before = np.cumsum([weight for _, weight in samples])
    count = -(-total // IDS_AT_ONCE)
    ends = np.searchsorted(before, total * np.arange(1, count) / count)
    bounds = sorted({samples[i][0] for i in ends.tolist() if i < len(samples)})
    cuts = np.zeros((len(names), len(bounds) + 2), np.int64)
    for chunk, name in enumerate(names):
        ids = StoredIds(place.read(name))
        cuts[chunk, 1:-1] = [bisect_left(ids, bound) for bound in bounds]
        cuts[chunk, -1] = len(ids)
    place.write(f"cuts/{axis}", {"cuts": cuts})
    return len(bounds) + 1


def number_ids(place: Workplace, axis: Axis, ranges: int) -> int:
    """Note the first index of every range, and the rows of each band. Returns how many ids."""
    firsts, before, bands = [0], 0, [np.zeros(1, np.int64)]
    last_band = 0
    for number in range(ranges):
        counts = place.read(f"ids/{axis}-{number}")["counts"]
        band = (before + np.cumsum(counts) - counts) // BAND
        new = np.flatnonzero(np.diff(band, prepend=last_band)) + firsts[-1]
        bands.append(new)
        if len(band):
            last_band, before = int(band[-1]), before + int(counts.sum())
        firsts.append(firsts[-1] + len(counts))
    if firsts[-1] > _MOST:
        raise DataError(f"{firsts[-1]:,} {axis}s: at most {_MOST:,} can be told apart")
    place.write(f"numbers/{axis}", {"firsts": np.array(firsts, np.int64)})
    bounds = np.concatenate([*bands, [firsts[-1]]])
    place.write(f"bands/{axis}", {"bounds": np.unique(bounds)})
    return firsts[-1]


def raw_id(place: Workplace, axis: Axis, index: int) -> Any:
    """The raw id of an index, for messages."""
    firsts: npt.NDArray[np.int64] = place.read(f"numbers/{axis}")["firsts"]
    number = int(np.searchsorted(firsts, index, side="right")) - 1
    return StoredIds(place.read(f"ids/{axis}-{number}"))[index - int(firsts[number])]
