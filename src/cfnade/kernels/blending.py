"""Blend the scores of several interaction models, and select the top items of each row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cfnade.kernels.buffers import Array, readonly
from cfnade.kernels.jit import internal, kernel
from cfnade.kernels.threads import run_parallel, thread_count


@internal
def _insert(value, item, filled, values, items):
    """Insert a score into falling ones; of equal ones the earlier stays in front."""
    k = len(values)
    if filled == k and not value > values[k - 1]:
        return filled
    place = filled if filled < k else k - 1
    while place > 0 and values[place - 1] < value:
        values[place], items[place] = values[place - 1], items[place - 1]
        place -= 1
    values[place], items[place] = value, item
    return min(filled + 1, k)


@kernel
def _top_items(lo, hi, scores, indptr, columns, k, out):
    values, seen = np.empty(k, np.float32), np.zeros(scores.shape[1], np.bool_)
    for r in range(lo, hi):
        for p in range(indptr[r], indptr[r + 1]):
            seen[columns[p]] = True
        filled, least = np.int64(0), np.float32(-np.inf)
        for item in range(scores.shape[1]):
            score = scores[r, item]
            if (filled == k and score <= least) or seen[item]:
                continue
            filled = _insert(score, item, filled, values, out[r])
            least = values[filled - 1]
        for p in range(indptr[r], indptr[r + 1]):
            seen[columns[p]] = False


def top_items(scores: Array, indptr: Array, columns: Array, k: int) -> Array:
    """Return the k best items of each row of scores (B, M) but those of a sparse row. (B, k).

    -1 stands behind the end of a list; of equal scores the lower item comes first.
    """
    out = np.full((len(scores), min(k, scores.shape[1])), -1, np.int32)
    data = *map(readonly, (scores, indptr, columns)), out.shape[1], out
    bounds = np.linspace(0, len(scores), thread_count(None) + 1).astype(int).tolist()
    run_parallel(_top_items, [(lo, hi, *data) for lo, hi in pairwise(bounds)])
    return out


@kernel
def _relevance(items, indptr, columns, out):
    for r in range(len(items)):
        for place in range(items.shape[1]):
            for p in range(indptr[r], indptr[r + 1]):
                if columns[p] == items[r, place]:
                    out[r, place] = 1
                    break


def relevance(items: Array, indptr: Array, columns: Array) -> Array:
    """Return whether each item of lists (B, k) is in the sparse row. (B, k) of 0 and 1."""
    out = np.zeros(items.shape, np.int8)
    _relevance(*map(readonly, (items, indptr, columns)), out)
    return out


@kernel
def _blended_gains(lo, hi, parts, hits, weights, discounts, out):
    """out[r] = DCG of candidates by the weighted sum of parts (J, B, C); hits end with -1."""
    J, _, C = parts.shape
    k = len(discounts)
    values, places = np.empty(k, np.float32), np.empty(k, np.int32)
    for r in range(lo, hi):
        filled = np.int64(0)
        for c in range(C):
            if hits[r, c] < 0:
                break
            score = np.float32(0.0)
            for j in range(J):
                if weights[j] != 0:
                    score += weights[j] * parts[j, r, c]
            filled = _insert(score, c, filled, values, places)
        total = 0.0
        for place in range(filled):
            total += discounts[place] * hits[r, places[place]]
        out[r] = total


def blended_gains(parts: Array, hits: Array, weights: Array, discounts: Array) -> Array:
    """Return the discounted gain of each row's best candidates by a weighed sum. (B,)."""
    out = np.empty(len(hits), np.float64)
    factors = np.asarray(weights, np.float32), np.asarray(discounts, np.float64)
    data = *map(readonly, (parts, hits, *factors)), out
    bounds = np.linspace(0, len(hits), thread_count(None) + 1).astype(int).tolist()
    run_parallel(_blended_gains, [(lo, hi, *data) for lo, hi in pairwise(bounds)])
    return out


@kernel
def _merge_lists(lists, width, items, out):
    """The union of several lists of each row, best places first."""
    last = np.full(items, -1, np.int64)
    J, B, depth = lists.shape
    for r in range(B):
        count = 0
        for place in range(depth):
            for j in range(J):
                item = lists[j, r, place]
                if item >= 0 and last[item] != r and count < width:
                    last[item] = r
                    out[r, count] = item
                    count += 1


def merge_lists(lists: Array, width: int, items: int) -> Array:
    """Return the union of lists (J, B, depth), at most `width` items. (B, width), -1 at the end."""
    out = np.full((lists.shape[1], width), -1, np.int32)
    _merge_lists(readonly(lists), width, items, out)
    return out


_FEW = 16  # rows that are not worth a thread


@kernel
def _add_standardized(lo, hi, scores, weight, total):
    M = scores.shape[1]
    for r in range(lo, hi):
        row, out, sums = scores[r], total[r], 0.0
        for i in range(M):
            sums += row[i]
        mean, squares = sums / M, 0.0
        for i in range(M):
            gap = row[i] - mean
            squares += gap * gap
        deviation = np.sqrt(squares / M)
        if deviation <= 1e-9 * abs(mean) or deviation == 0:
            continue  # the component knows nothing of this row
        factor, offset = np.float32(weight / deviation), np.float32(mean)
        for i in range(M):
            out[i] += factor * (row[i] - offset)


def add_standardized(scores: Array, weight: float, total: Array) -> None:
    """Add to total (B, M) the weighted scores (B, M), each row shifted and scaled."""
    count = 1 if len(scores) <= _FEW else thread_count(None)
    bounds = np.linspace(0, len(scores), count + 1).astype(int).tolist()
    run_parallel(
        _add_standardized, [(lo, hi, scores, weight, total) for lo, hi in pairwise(bounds)]
    )
