"""The rules of splits: each returns a label for every row, the part that the row is in.

Random choices use only the raw output of NumPy's PCG64, which NumPy promises never to change; its
methods that shuffle and permute may change between releases, and a published split must not.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray
from cfnade.data.dataset import Dataset, LabelArray, TimeArray
from cfnade.exceptions import DataError

BoolArray = npt.NDArray[np.bool_]

TEST_FRACTION = Fraction(1, 10)
VALID_FRACTION = Fraction(1, 20)
"""The paper's protocol: 10 % test, and 5 % of the rest validation; both rounded up.

Fractions, so that no floating-point error is rounded up."""

TRAIN, VALID, TEST, FOLD_IN, NONE = range(5)
"""Labels of rows: the part that a row is in."""

LIANG_SEED, _LIANG_FEWEST = 98765, 5

# Each draw of a split has its own stream of random numbers, so that none repeats another's.
TEST_STREAM, _VALID_STREAM, _FOLD_IN_STREAM = range(3)

_CHUNK = 1 << 20  # random numbers drawn at a time
_BUCKET_SHIFT = 52  # random keys are bucketed by the 12 bits above this one


def add_validation(labels: LabelArray, seed: int) -> LabelArray:
    """Move 5 % of the training rows, chosen at random, to validation. Changes `labels`."""
    train = labels == TRAIN
    n_train = _check_train_size(int(train.sum()))
    valid = choose_positions(n_train, ceil(n_train * VALID_FRACTION), (seed, _VALID_STREAM))
    labels[train] = np.where(valid, np.uint8(VALID), np.uint8(TRAIN))
    return labels


def _check_train_size(n_train: int) -> int:
    if n_train < 2:
        raise DataError(
            f"a split needs at least 2 ratings to train and validate on, but this one leaves "
            f"{n_train}; use more data or a smaller test part"
        )
    return n_train


# -- random choices ----------------------------------------------------------------------------


def choose_positions(n: int, count: int, seed: tuple[int, ...]) -> BoolArray:
    """Choose `count` of n positions at random: those with the smallest random keys, (n,).

    Keys are drawn twice instead of stored: 100 million positions take 100 MB, not 800. A larger
    count of the same n and seed chooses the same positions and more.
    """
    histogram = np.zeros(1 << (64 - _BUCKET_SHIFT), np.int64)
    for _, keys in _key_chunks(n, seed):
        histogram += np.bincount(keys >> _BUCKET_SHIFT, minlength=len(histogram))
    below = np.cumsum(histogram)
    edge = int(np.searchsorted(below, count))  # the bucket in which the count is reached
    missing = count - (int(below[edge - 1]) if edge else 0)

    mask = np.empty(n, bool)
    positions, contested = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for start, keys in _key_chunks(n, seed):
        bucket = keys >> _BUCKET_SHIFT
        mask[start : start + len(keys)] = bucket < edge
        inside = np.flatnonzero(bucket == edge)
        positions.append(inside + start)
        contested.append(keys[inside])
    smallest = np.argsort(np.concatenate(contested), kind="stable")[:missing]
    mask[np.concatenate(positions)[smallest]] = True
    return mask


def random_keys(n: int, seed: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """Return random 64-bit keys, (n,)."""
    return np.random.PCG64(seed).random_raw(n)


def _key_chunks(n: int, seed: tuple[int, ...]) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    bits = np.random.PCG64(seed)
    for start in range(0, n, _CHUNK):
        yield start, bits.random_raw(min(_CHUNK, n - start))


# -- the rules: each labels every row with its part ---------------------------------------------


def everything(dataset: Dataset) -> LabelArray:
    """Train on all rows."""
    return np.full(len(dataset), TRAIN, np.uint8)


def paper(dataset: Dataset, seed: int) -> LabelArray:
    """Ten percent test, five percent of the rest validation, both at random."""
    n = len(dataset)
    test = choose_positions(n, ceil(n * TEST_FRACTION), (seed, TEST_STREAM))
    return add_validation(label_test(test), seed)


def authors_order(n: int, seed: int) -> IndexArray:
    """Return positions in the file as the script of the paper's authors shuffles them, (n,).

    That was Python 2's `random.shuffle`. Python 3 seeds its generator with an integer as Python 2
    did and draws the same numbers in [0, 1), as does NumPy's `RandomState` from the same state, in
    arrays; but both choose shuffle partners in another way.
    """
    _, state, _ = random.Random(seed).getstate()
    generator = np.random.RandomState()
    generator.set_state(("MT19937", np.array(state[:-1], np.uint32), state[-1], 0, 0.0))
    order = array("i", range(n))
    for start in range(n - 1, 0, -_CHUNK):
        positions = np.arange(start, max(0, start - _CHUNK), -1)
        partners = (generator.random_sample(len(positions)) * (positions + 1)).astype(np.int64)
        for i, j in zip(positions.tolist(), partners.tolist(), strict=True):
            order[i], order[j] = order[j], order[i]
    return np.frombuffer(order, np.intc).astype(np.int32, copy=False)


def authors_sizes(n: int) -> tuple[int, int]:
    """Return the numbers of validation and test ratings: ceilings of float products."""
    # 0.9 * 0.005 is a little above 0.0045, so 2,000 ratings give 10 of validation, not 9.
    return ceil(n * (0.9 * 0.005)), ceil(n * 0.1)


def authors(dataset: Dataset, seed: int) -> LabelArray:
    """The test part of the authors' script; validation as in the text of the paper."""
    _, n_test = authors_sizes(len(dataset))
    labels = np.full(len(dataset), TRAIN, np.uint8)
    labels[authors_order(len(dataset), seed)[len(dataset) - n_test :]] = TEST
    return add_validation(labels, seed)


def authors_code(dataset: Dataset, seed: int) -> LabelArray:
    """The parts of the authors' script, with its small validation part."""
    n_valid, n_test = authors_sizes(len(dataset))
    n_train = len(dataset) - n_test - n_valid
    _check_train_size(n_train + n_valid)
    order = authors_order(len(dataset), seed)
    labels = np.full(len(dataset), TRAIN, np.uint8)
    labels[order[n_train:]] = VALID
    labels[order[n_train + n_valid :]] = TEST
    return labels


def kfold(dataset: Dataset, folds: int, fold: int, seed: int) -> LabelArray:
    """One fold of a random cross-validation is the test part."""
    n = len(dataset)
    if not 2 <= folds <= n:
        raise DataError(f"kfold:{folds}: there can be 2 to {n:,} folds of these ratings")
    if fold >= folds:
        raise DataError(f"kfold:{folds}:{fold}: folds count from 0, so the last is {folds - 1}")
    # Folds follow each other in one random order, so that together they are everything.
    first, last = n * fold // folds, n * (fold + 1) // folds
    until_last, until_first = (choose_positions(n, m, (seed, TEST_STREAM)) for m in (last, first))
    return add_validation(label_test(until_last & ~until_first), seed)


def by_time(dataset: Dataset, fraction: Fraction) -> LabelArray:
    """The newest rows are the test part, the newest of the rest validation."""
    if dataset.times is None:
        raise DataError(
            "time: these ratings have no timestamps, so none is newest; "
            "load data with times, or split at random with paper:SEED"
        )
    labels = label_test(newest(dataset.times, ceil(len(dataset) * fraction)))
    train = labels == TRAIN
    n_train = _check_train_size(int(train.sum()))
    valid = newest(dataset.times[train], ceil(n_train * VALID_FRACTION))
    labels[train] = np.where(valid, np.uint8(VALID), np.uint8(TRAIN))
    return labels


def newest(times: TimeArray, count: int) -> BoolArray:
    """Mark the `count` newest; of equally old ones the later in the file is newer, (n,)."""
    if count == 0:
        return np.zeros(len(times), bool)
    threshold = np.partition(times, len(times) - count)[len(times) - count]
    mask: BoolArray = times > threshold
    ties = np.flatnonzero(times == threshold)
    mask[ties[len(ties) - (count - int(mask.sum())) :]] = True
    return mask


def by_users(dataset: Dataset, seed: int, n_fold_in: int) -> LabelArray:
    """A tenth of the users is held out, with some rows each to fold in."""
    counts = np.bincount(dataset.users, minlength=dataset.n_users)
    eligible = np.flatnonzero(counts > n_fold_in)
    if len(eligible) == 0:
        raise DataError(
            f"users: no user has more than {n_fold_in} ratings, so none can be held out with "
            f"{n_fold_in} to fold in and one to predict; the most is {counts.max(initial=0)}"
        )
    held = np.zeros(dataset.n_users, bool)
    n_held = ceil(len(eligible) * TEST_FRACTION)
    held[eligible[choose_positions(len(eligible), n_held, (seed, TEST_STREAM))]] = True
    test = held[dataset.users]
    labels = add_validation(label_test(test), seed)
    positions = np.flatnonzero(test)
    # Rank each user's ratings by random keys; the first are folded in.
    keys = random_keys(len(positions), (seed, _FOLD_IN_STREAM))
    shuffled = positions[np.argsort(keys, kind="stable")]
    rank = rank_in_row(dataset.users[shuffled])
    labels[shuffled[rank < n_fold_in]] = FOLD_IN
    return labels


def by_last(dataset: Dataset, count: int) -> LabelArray:
    """The last rows of each user are the test part, those before validation."""
    if dataset.times is None:
        raise DataError(
            "last: these ratings have no timestamps, so the last of each user are unknown; "
            "load data with times, or split at random with paper:SEED"
        )
    if count == 0:
        raise DataError("last:0 leaves nothing to test; write last:1 or more")
    order = np.lexsort((dataset.times, dataset.users))  # stable: later in the file is newer
    sizes = np.bincount(dataset.users, minlength=dataset.n_users)
    n_newer = np.empty(len(dataset), np.int64)  # ratings of the same user that are newer
    n_newer[order] = np.repeat(np.cumsum(sizes), sizes) - 1 - np.arange(len(dataset))
    enough = (sizes > 2 * count)[dataset.users]
    if not enough.any():
        raise DataError(
            f"last:{count}: no user has more than {2 * count} ratings, {count} for testing and "
            f"{count} for validation; the most is {sizes.max(initial=0)}"
        )
    labels = label_test(enough & (n_newer < count))
    labels[enough & (n_newer >= count) & (n_newer < 2 * count)] = VALID
    return labels


def by_liang(dataset: Dataset, held: int, seed: int) -> LabelArray:
    """The protocol of Liang et al. (2018), draw for draw; see docs/concepts/evaluation.md."""
    threshold = dataset.scale.default_threshold
    liked = dataset.values >= threshold
    counts = np.bincount(dataset.users[liked], minlength=dataset.n_users)
    eligible = np.flatnonzero(counts >= _LIANG_FEWEST)
    if not 0 < 2 * held < len(eligible):
        noun = "interactions" if dataset.implicit else f"ratings of {threshold:g} or more"
        raise DataError(
            f"liang:{held} holds out {held} users for testing and {held} for validation, of the "
            f"{len(eligible):,} users with {_LIANG_FEWEST} {noun}; some must remain to train on: "
            f"give a number from 1 to {max(1, (len(eligible) - 1) // 2):,}, or more data"
        )
    # NumPy has frozen this generator and what it draws.
    users = eligible[np.random.RandomState(seed).permutation(len(eligible))]
    role = np.full(dataset.n_users, NONE, np.uint8)
    role[users] = TRAIN
    role[users[-2 * held :]] = VALID
    role[users[-held:]] = TEST
    labels = role[dataset.users]
    catalog = np.zeros(dataset.n_items, bool)
    catalog[dataset.items[liked & (labels == TRAIN)]] = True
    for part in (VALID, TEST):
        held_out = labels == part
        labels[held_out] = FOLD_IN
        labels[held_out & liked & ~catalog[dataset.items]] = NONE
        labels[_liang_answers(dataset, held_out & liked & catalog[dataset.items], seed)] = part
    return labels


def _liang_answers(dataset: Dataset, likes: BoolArray, seed: int) -> IndexArray:
    """Return positions of a fifth of each user's likes, users in the order of their ids."""
    draw = np.random.RandomState(seed)
    positions = np.flatnonzero(likes)
    positions = positions[np.argsort(dataset.users[positions], kind="stable")]
    starts = np.flatnonzero(np.diff(dataset.users[positions])) + 1
    answers = [
        row[draw.choice(len(row), int(0.2 * len(row)), replace=False)]
        for row in np.split(positions, starts)
        if len(row) >= _LIANG_FEWEST
    ]
    return np.concatenate([positions[:0], *answers])


def rank_in_row(rows: IndexArray) -> npt.NDArray[np.int64]:
    """Return how many earlier entries have the same row, (n,)."""
    order, position = np.argsort(rows, kind="stable"), np.arange(len(rows))
    is_first = np.diff(rows[order], prepend=-1) != 0
    rank = np.empty(len(rows), np.int64)
    rank[order] = position - np.maximum.accumulate(np.where(is_first, position, 0))
    return rank


def label_test(test: BoolArray) -> LabelArray:
    """Return labels of a test part; all other rows are training."""
    labels = np.full(len(test), TRAIN, np.uint8)
    labels[test] = TEST
    return labels
