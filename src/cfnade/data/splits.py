"""Training, validation and test parts of a data set, by protocol name: "paper:1", "time" …

Every row is in one part; "liang" alone leaves some out. Parts keep the order of the file and the id
tables of the whole. Their purposes are in `docs/concepts/evaluation.md`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from cfnade.data import split_protocols
from cfnade.data.dataset import Dataset, LabelArray, match_ids, pair_keys
from cfnade.data.merge import merge
from cfnade.data.split_protocols import (
    FOLD_IN,
    LIANG_SEED,
    TEST,
    TEST_STREAM,
    TRAIN,
    VALID,
    add_validation,
    choose_positions,
    label_test,
    rank_in_row,
)
from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import digest, digest_text
from cfnade.utils.validation import check_scalar

D = TypeVar("D", bound=Dataset)

MOVIELENS_100K_SPLITS = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
"""The splits that MovieLens 100K comes with."""
_MOVIELENS_100K = "ad5a4d5a87cbd9e2c43dc8532399f224"
"""Digest of the (user, item) pairs of MovieLens 100K in their published order."""
_FILES_SEED = 0  # of the validation part of splits that name no seed


@dataclass(frozen=True, repr=False)
class Split:
    """The parts of a data set.

    Attributes:
        name: Full name of the protocol, such as "kfold:5:0:0".
        train: Rows to train on.
        valid: Rows to choose epochs and weights by.
        test: Rows to evaluate on.
        fold_in: Known rows of held-out users, who are in no other part but valid and test.
        fingerprint: 32 hex digits of the name, the data and the part of every row.
        data: The fingerprint of the data set that was split.
    """

    name: str
    train: Dataset
    valid: Dataset
    test: Dataset
    fold_in: Dataset
    fingerprint: str
    data: str = ""

    def parts(self) -> dict[str, Dataset]:
        """Return the parts by name."""
        return {name: getattr(self, name) for name in ("train", "valid", "test", "fold_in")}

    def __repr__(self) -> str:
        fold_in = f", {len(self.fold_in):,} fold-in" if len(self.fold_in) else ""
        source = f" of {self.train.source}" if self.train.source else ""
        return (
            f"<Split {self.name}{source}: {len(self.train):,} train, {len(self.valid):,} valid, "
            f"{len(self.test):,} test{fold_in}, fingerprint {self.fingerprint[:12]}>"
        )


def split(dataset: Dataset, name: str) -> Split:
    """Split a data set by a protocol.

    Args:
        dataset: Ratings or interactions.
        name: Name of the protocol with its arguments, such as "paper:1". See
            docs/concepts/evaluation.md.

    Returns:
        The training, validation, test and fold-in parts.

    Raises:
        DataError: If the name is unknown, or the data too small or without the timestamps needed.
    """
    _require_dataset(dataset, "split")
    if not isinstance(name, str):
        raise DataError(f'the name of a split is a text such as "paper:1", not {name!r}')
    if name in MOVIELENS_100K_SPLITS:
        return split_movielens_100k(dataset, name)
    kind, form, arguments = _parse(name)
    labels = form.rule(dataset, *arguments)
    texts = [_plain(argument) for argument in arguments]
    if form.is_brief and texts[-len(form.defaults) :] == list(form.defaults):
        texts = texts[: -len(form.defaults)]
    return apply_labels(dataset, labels, ":".join([kind, *texts]))


def train_test_split(ratings: D, test_size: float | int = 0.2, seed: int = 0) -> tuple[D, D]:
    """Split a data set at random into a training and a test part.

    Args:
        ratings: Ratings or interactions.
        test_size: Fraction of the rows in the test part, rounded up, or their number.
        seed: Seed of the random choice; the same seed gives the same parts on every machine.

    Returns:
        The training and the test part, both in the order of the file. `CFNADE.fit` takes its
        validation part from the training part.

    Examples:
        >>> train, test = cfnade.train_test_split(ratings, test_size=0.2, seed=0)
    """
    _require_dataset(ratings, "train_test_split")
    seed = check_scalar("seed", seed, int, Ge(0), error=DataError)
    n = len(ratings)
    if isinstance(test_size, int | np.integer) and not isinstance(test_size, bool):
        size = int(test_size)
    else:
        fraction = check_scalar("test_size", test_size, float, Gt(0), Lt(1), error=DataError)
        size = ceil(n * Fraction(repr(fraction)))
    if not 0 < size < n:
        raise DataError(
            f"test_size={test_size} leaves {max(0, n - size):,} of {n:,} rows to train on; give a "
            f"fraction between 0 and 1, or a number from 1 to {n - 1:,}"
        )
    labels = choose_positions(n, size, (seed, TEST_STREAM)).astype(np.uint8)
    return ratings.subset(labels, 0), ratings.subset(labels, 1)


def _require_dataset(value: object, function: str) -> None:
    if not isinstance(value, Dataset):
        raise DataError(
            f"{function} splits Ratings or Interactions, not {type(value).__name__}; "
            "read other data with cfnade.load first"
        )


def apply_labels(dataset: Dataset, labels: LabelArray, name: str) -> Split:
    """Return the split in which row i is in the part labels[i]; its parts are lazy."""
    labels = labels.copy()  # the parts keep it
    train, valid, test, fold_in = (
        dataset.subset(labels, label) for label in (TRAIN, VALID, TEST, FOLD_IN)
    )
    fingerprint = digest_text(f"{name}\n{dataset.fingerprint}\n{digest(labels)}")
    return Split(name, train, valid, test, fold_in, fingerprint, dataset.fingerprint)


def split_from_files(train: Dataset, test: Dataset, name: str) -> Split:
    """Return the split of a training and a test file.

    Rows of the training file come first; 5 % of them, always the same, become validation.
    """
    merged = merge(train, test)
    keys = pair_keys(merged.users, merged.items, merged.n_items)
    common = np.isin(keys[: len(train)], keys[len(train) :])
    if common.any():
        raise DataError(
            f"split {name}: {int(common.sum()):,} ratings are in both parts, for example "
            f"{_pair(train, int(np.argmax(common)))}; a rating may be in one part only"
        )
    labels = np.repeat(np.array([TRAIN, TEST], np.uint8), [len(train), len(test)])
    return apply_labels(merged, add_validation(labels, _FILES_SEED), name)


def split_movielens_100k(dataset: Dataset, name: str, complete: Dataset | None = None) -> Split:
    """Return a split that MovieLens 100K is published with; 5 % of its training file validate.

    The files of these splits are made of u.data by scripts in the archive: the i-th fifth of its
    lines is u`i`.test; ua.test and ub.test are the first ten lines of every user and the next ten.

    Args:
        dataset: MovieLens 100K, perhaps without some of its ratings.
        name: One of `MOVIELENS_100K_SPLITS`.
        complete: All of MovieLens 100K, if `dataset` lacks some of its ratings.
    """
    complete = dataset if complete is None else complete
    if _pairs_digest(complete) != _MOVIELENS_100K:
        raise DataError(
            f"split {name!r} is a part of MovieLens 100K; this data is not MovieLens 100K in its "
            'published order: choose another split, such as "paper:1"'
        )
    if name in ("ua", "ub"):
        rank, first = rank_in_row(complete.users), 0 if name == "ua" else 10
        test = (rank >= first) & (rank < first + 10)
    else:
        fifth, number = len(complete) // 5, int(name[1:])
        test = np.arange(len(complete)) // fifth == number - 1
    labels = label_test(test)
    if complete is not dataset:
        labels = labels[_matching_rows(dataset, complete)]
    return apply_labels(dataset, add_validation(labels, _FILES_SEED), name)


def _pairs_digest(dataset: Dataset) -> str:
    ids = (dataset.user_ids[dataset.users], dataset.item_ids[dataset.items])
    return digest_text(" ".join(map(digest, ids)))


def _matching_rows(dataset: Dataset, complete: Dataset) -> npt.NDArray[np.int64]:
    """Return where the rows of a data set are in another one that has them all, (n,)."""
    users = match_ids(complete.user_ids, dataset.user_ids).astype(np.int32)[dataset.users]
    items = match_ids(complete.item_ids, dataset.item_ids).astype(np.int32)[dataset.items]
    keys = pair_keys(complete.users, complete.items, complete.n_items)
    order = np.argsort(keys)
    return order[np.searchsorted(keys, pair_keys(users, items, complete.n_items), sorter=order)]


def _pair(dataset: Dataset, row: int) -> str:
    user, item = dataset.user_ids[dataset.users[row]], dataset.item_ids[dataset.items[row]]
    return f"user {user}, item {item}"


# -- names -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    usage: str
    """Its name with the fields, of which those in brackets may be left out."""
    rule: Callable[..., LabelArray]
    example: str
    defaults: tuple[str, ...] = ()
    """Values of the fields in brackets."""
    is_brief: bool = False
    """Whether the name of the split leaves out fields with their defaults."""

    @property
    def fields(self) -> list[str]:
        """Names of the fields."""
        return re.findall(r"[A-Z_]+", self.usage)


_FORMS = {
    "all": _Form("all", split_protocols.everything, "all"),
    "paper": _Form("paper:SEED", split_protocols.paper, "paper:1"),
    "authors": _Form("authors:SEED", split_protocols.authors, "authors:1234"),
    "authors-code": _Form("authors-code:SEED", split_protocols.authors_code, "authors-code:1234"),
    "kfold": _Form("kfold:K:I[:SEED]", split_protocols.kfold, "kfold:5:0", ("0",)),
    "time": _Form("time[:TEST_FRACTION]", split_protocols.by_time, "time:0.1", ("0.1",)),
    "users": _Form("users:SEED[:FOLD_IN]", split_protocols.by_users, "users:1:10", ("10",)),
    "last": _Form("last[:COUNT]", split_protocols.by_last, "last:1", ("1",)),
    "liang": _Form(
        "liang:HELD[:SEED]",
        split_protocols.by_liang,
        "liang:600",
        (str(LIANG_SEED),),
        is_brief=True,
    ),
}

SPLITS = tuple(form.usage for form in _FORMS.values())
"""The names of protocols with their arguments, for messages."""


def _parse(name: str) -> tuple[str, _Form, list[int | Fraction]]:
    kind, *texts = name.strip().split(":")
    if kind not in _FORMS:
        nearest = difflib.get_close_matches(kind.lower(), _FORMS, 1, 0.4)
        hint = f"did you mean {_FORMS[nearest[0]].example}? " if nearest else ""
        raise DataError(
            f"unknown split {name!r}; {hint}possible are {', '.join(SPLITS)}, and where data is "
            "given by name or path file:PATH and, of MovieLens 100K, u1 … u5, ua, ub"
        )
    form = _FORMS[kind]
    needed = len(form.fields) - len(form.defaults)
    if not needed <= len(texts) <= len(form.fields):
        raise DataError(
            f"split {name!r} has {len(texts)} values after {kind!r}; "
            f"write {form.usage}, for example {form.example}"
        )
    texts += form.defaults[len(texts) - needed :]
    return kind, form, [_argument(*pair, name) for pair in zip(form.fields, texts, strict=True)]


def _argument(field: str, text: str, name: str) -> int | Fraction:
    if field == "TEST_FRACTION":
        if re.fullmatch(r"0?\.[0-9]{1,9}", text) and Fraction(text) > 0:
            return Fraction(text)
        raise DataError(f"split {name!r}: {field} is {text!r}, it must lie between 0 and 1")
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    raise DataError(f"split {name!r}: {field} is {text!r}, it must be a whole number from 0")


def _plain(argument: int | Fraction) -> str:
    return str(argument) if isinstance(argument, int) else f"{float(argument):.9f}".rstrip("0")
