"""Ratings that were marked, written to their columns: contexts first, then targets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.kernels.compiled import glue, inner, kernel
from cfnade.kernels.gates import Gate, pass_gate
from cfnade.kernels.marking import CONTEXT, DROPPED, TARGET, bare_rows
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import address, beyond

ROLES = 3


class Tallies(NamedTuple):
    """How many ratings each thread has marked of each role and column; and where the next one is
    written, which every thread finds by itself."""

    counts: Array  # (threads · 3 · M,) int32
    cursors: Array  # the same


class GroupedPlaces(NamedTuple):
    """Where contexts and targets are, by column; each begins with 0."""

    starts: Array  # (2 · (M+1),) int64: targets, contexts
    touched: Array  # (2 · M,) int32: the columns that have any
    found: Array  # (2,) int64: how many these are


@inner
def _place(role: int, first: int, gate: Any, tallies: Any, n_columns: int, groups: Any) -> int:
    """Where the ratings of a role are written, from `first` on; one thread notes where columns
    begin. Returns how many ratings of that role there are."""
    counts = beyond(address(tallies.counts), role * n_columns)
    stride = ROLES * n_columns
    end = gate.threads * stride
    cursors = beyond(address(tallies.cursors), gate.thread * stride + role * n_columns)
    starts = beyond(address(groups.starts), role * (n_columns + 1))
    touched, place, n = beyond(address(groups.touched), role * n_columns), 0, 0
    notes = role != DROPPED and gate.thread == role % gate.threads
    for c in range(n_columns):
        begin = place
        cursors[c] = first + place
        for t in range(c, end, stride):
            place += counts[t]
        if notes:
            starts[c] = begin
            touched[n] = c
            n += place > begin
    if notes:
        starts[n_columns] = place
        groups.found[role] = n
    return place


@glue
def _first_column(part: int, gate: Any, tallies: Any, n_columns: int, total: int) -> int:
    """Where a thread's columns begin, so that each has about as many ratings to write."""
    if part == gate.threads:
        return n_columns
    cursors = beyond(address(tallies.cursors), gate.thread * ROLES * n_columns)
    contexts = beyond(cursors, CONTEXT * n_columns)
    targets = beyond(cursors, TARGET * n_columns)
    goal = total * part // gate.threads + contexts[0] + targets[0]
    lo, hi = 0, n_columns
    while lo < hi:
        middle = (lo + hi) // 2
        if contexts[middle] + targets[middle] < goal:
            lo = middle + 1
        else:
            hi = middle
    return lo


@glue
def _clear_tally(gate: Any, tallies: Any, n_columns: int) -> None:
    """This thread's, for the next batch, once nobody reads it."""
    pass_gate(Gate(gate.passed, gate.thread, gate.threads, gate.number + 1))
    counts, first = address(tallies.counts), gate.thread * ROLES * n_columns
    for i in range(first, first + ROLES * n_columns):
        counts[i] = 0


@kernel
def scatter(
    gate: Any,
    source: Any,
    levels: Any,
    marks: Any,
    sizes: Any,
    paper: bool,
    drawn: Any,
    tallies: Any,
    groups: Any,
) -> None:
    """Write all rows' ratings in this thread's share of the columns, once all have been marked.

    Shares of rows would lie between each other, and threads write to the same cache lines. A
    target counts as many as its row (of `sizes` ratings) has over those that are targets, or 1.
    Traffic: 6 bytes read, 9 written a rating; a role and a column read of those of others.
    """
    pass_gate(gate)
    n_columns = len(groups.touched) // 2
    middle = _place(np.int64(CONTEXT), np.int64(0), gate, tallies, n_columns, groups)
    end = middle + _place(np.int64(TARGET), middle, gate, tallies, n_columns, groups)
    if end < len(marks.roles):  # they are written too, behind all others
        _place(np.int64(DROPPED), end, gate, tallies, n_columns, groups)
    lo = _first_column(gate.thread, gate, tallies, n_columns, end)
    hi = _first_column(gate.thread + 1, gate, tallies, n_columns, end)
    n_rows, source, roles = len(source.rows), bare_rows(source), address(marks.roles)
    next_place = beyond(address(tallies.cursors), gate.thread * ROLES * n_columns)
    level_of = address(levels)
    rows, new_levels, weights = address(drawn.rows), address(drawn.levels), address(drawn.weights)
    for b in range(n_rows):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        weight = np.float32(sizes[b] / max(1, sizes[b] - marks.counts[b]) if paper else 1.0)
        for j in range(count):
            column = source.columns[begin + j]
            if lo <= column < hi:
                c = np.int64(roles[place + j]) * n_columns + column
                p = next_place[c]
                next_place[c] = p + 1
                rows[p] = b
                new_levels[p] = level_of[begin + j]
                weights[p] = weight
    _clear_tally(gate, tallies, n_columns)


def no_tallies(threads: int, n_columns: int) -> Tallies:
    numbers = threads * ROLES * n_columns
    return Tallies(np.zeros(numbers, np.int32), np.empty(numbers, np.int32))
