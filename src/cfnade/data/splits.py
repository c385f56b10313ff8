"""Train, validation and test parts of a data set, by name: "paper:1", "authors:1234", "time" …

Every rating is in one part; "liang" alone leaves some out. Parts keep the order of the file and the
id tables of the whole. `docs/splits.md` says what each split is for.
"""

from __future__ import annotations

import difflib
import random
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray
from cfnade.data.array_files import digest, digest_text
from cfnade.data.choices import BoolArray, chosen, keys_of
from cfnade.data.csr import stable_order
from cfnade.data.dataset import Dataset, TimeArray
from cfnade.data.scale import usual_threshold
from cfnade.exceptions import DataError

TEST_FRACTION = Fraction(1, 10)
VALID_FRACTION = Fraction(1, 20)
"""The paper's protocol: 10 % test, and 5 % of the rest validation; both rounded up.

Fractions, so that no floating-point error is rounded up."""

TRAIN, VALID, TEST, GIVEN, NONE = range(5)
Parts = npt.NDArray[np.uint8]  # (n,) which of the four each rating is in, or in none

_LIANG_SEED, _LIANG_LEAST = 98765, 5

# Each draw of a split has its own stream of random numbers, so that none repeats another's.
_TEST_STREAM, _VALID_STREAM, _GIVEN_STREAM = range(3)


@dataclass(frozen=True, repr=False)
class Split:
    """The parts of a data set; `given` holds what is known of users held out whole."""

    name: str
    train: Dataset
    valid: Dataset
    test: Dataset
    given: Dataset
    fingerprint: str
    """32 hex digits of the name, the data and which rating is in which part."""
    data: str = ""
    """The fingerprint of the ratings that were cut."""

    def parts(self) -> dict[str, Dataset]:
        """The parts by name."""
        return {name: getattr(self, name) for name in ("train", "valid", "test", "given")}

    def __repr__(self) -> str:
        given = f", {len(self.given):,} given" if len(self.given) else ""
        source = f" of {self.train.source}" if self.train.source else ""
        return (
            f"<Split {self.name}{source}: {len(self.train):,} train, {len(self.valid):,} valid, "
            f"{len(self.test):,} test{given}, fingerprint {self.fingerprint[:12]}>"
        )


def split(ratings: Dataset, name: str) -> Split:
    """Cut ratings into parts by the split's name, such as "paper:1"."""
    kind, form, arguments = _parse(name)
    parts = form.rule(ratings, *arguments)
    texts = [_plain(argument) for argument in arguments]
    if form.brief and texts[-len(form.defaults) :] == list(form.defaults):
        texts = texts[: -len(form.defaults)]
    full_name = ":".join([kind, *texts])
    return cut(ratings, parts, full_name)


def cut(ratings: Dataset, parts: Parts, name: str) -> Split:
    """The split in which rating i is in part parts[i]."""
    parts = parts.copy()  # kept by all four, which are cut from the whole when they are needed
    train, valid, test, given = (
        ratings.subset(parts, label) for label in (TRAIN, VALID, TEST, GIVEN)
    )
    fingerprint = digest_text(f"{name}\n{ratings.fingerprint}\n{digest(parts)}")
    return Split(name, train, valid, test, given, fingerprint, ratings.fingerprint)


def add_validation(parts: Parts, seed: int) -> Parts:
    """Move 5 % of the training ratings, chosen at random, to validation. Changes `parts`."""
    train = parts == TRAIN
    n_train = _enough(int(train.sum()))
    valid = chosen(n_train, ceil(n_train * VALID_FRACTION), (seed, _VALID_STREAM))
    parts[train] = np.where(valid, np.uint8(VALID), np.uint8(TRAIN))
    return parts


def _enough(n_train: int) -> int:
    if n_train < 2:
        raise DataError(
            f"a split needs at least 2 ratings to train and validate on, but this one leaves "
            f"{n_train}; use more data or a smaller test part"
        )
    return n_train


# -- the rules: each says which part every rating is in ----------------------------------------


def _all(ratings: Dataset) -> Parts:
    """Train on everything."""
    return np.full(len(ratings), TRAIN, np.uint8)


def _paper(ratings: Dataset, seed: int) -> Parts:
    n = len(ratings)
    test = chosen(n, ceil(n * TEST_FRACTION), (seed, _TEST_STREAM))
    return add_validation(_test_part(test), seed)


def authors_order(n: int, seed: int) -> IndexArray:
    """Positions in the file as the script of the paper's authors shuffles them. Returns (n,).

    That was Python 2's `random.shuffle`. Python 3 seeds its generator with an integer as Python 2
    did and draws the same numbers in [0, 1), but picks shuffle partners in another way.
    """
    draw = random.Random(seed).random
    order = array("i", range(n))
    for i in range(n - 1, 0, -1):
        j = int(draw() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return np.frombuffer(order, np.intc).astype(np.int32, copy=False)


def authors_sizes(n: int) -> tuple[int, int]:
    """How many ratings are validation and test: ceilings of floating-point products, as theirs."""
    # 0.9 * 0.005 is a little above 0.0045, so 2,000 ratings give 10 of validation, not 9.
    return ceil(n * (0.9 * 0.005)), ceil(n * 0.1)


def _authors(ratings: Dataset, seed: int) -> Parts:
    _, n_test = authors_sizes(len(ratings))
    parts = np.full(len(ratings), TRAIN, np.uint8)
    parts[authors_order(len(ratings), seed)[len(ratings) - n_test :]] = TEST
    return add_validation(parts, seed)


def _authors_code(ratings: Dataset, seed: int) -> Parts:
    n_valid, n_test = authors_sizes(len(ratings))
    n_train = len(ratings) - n_test - n_valid
    _enough(n_train + n_valid)
    order = authors_order(len(ratings), seed)
    parts = np.full(len(ratings), TRAIN, np.uint8)
    parts[order[n_train:]] = VALID
    parts[order[n_train + n_valid :]] = TEST
    return parts


def _fold(ratings: Dataset, folds: int, fold: int, seed: int) -> Parts:
    n = len(ratings)
    if not 2 <= folds <= n:
        raise DataError(f"kfold:{folds}: there can be 2 to {n:,} folds of these ratings")
    if fold >= folds:
        raise DataError(f"kfold:{folds}:{fold}: folds count from 0, so the last is {folds - 1}")
    # Folds follow each other in one random order, so that together they are everything.
    first, last = n * fold // folds, n * (fold + 1) // folds
    test = chosen(n, last, (seed, _TEST_STREAM)) & ~chosen(n, first, (seed, _TEST_STREAM))
    return add_validation(_test_part(test), seed)


def _by_time(ratings: Dataset, fraction: Fraction) -> Parts:
    if ratings.times is None:
        raise DataError(
            "time: these ratings have no timestamps, so none is newest; "
            "load data with times, or split at random with paper:SEED"
        )
    parts = _test_part(newest(ratings.times, ceil(len(ratings) * fraction)))
    rest = parts == TRAIN
    n_rest = _enough(int(rest.sum()))
    valid = newest(ratings.times[rest], ceil(n_rest * VALID_FRACTION))
    parts[rest] = np.where(valid, np.uint8(VALID), np.uint8(TRAIN))
    return parts


def newest(times: TimeArray, count: int) -> BoolArray:
    """True at the `count` newest; of equally old ones the later in the file is newer."""
    if count == 0:
        return np.zeros(len(times), bool)
    threshold = np.partition(times, len(times) - count)[len(times) - count]
    mask: BoolArray = times > threshold
    ties = np.flatnonzero(times == threshold)
    mask[ties[len(ties) - (count - int(mask.sum())) :]] = True
    return mask


def _by_users(ratings: Dataset, seed: int, given: int) -> Parts:
    counts = np.bincount(ratings.users, minlength=ratings.n_users)
    eligible = np.flatnonzero(counts > given)
    if len(eligible) == 0:
        raise DataError(
            f"users: nobody has more than {given} ratings, so nobody can be held out with {given} "
            f"given and something to predict; the most is {counts.max(initial=0)}"
        )
    held = np.zeros(ratings.n_users, bool)
    n_held = ceil(len(eligible) * TEST_FRACTION)
    held[eligible[chosen(len(eligible), n_held, (seed, _TEST_STREAM))]] = True
    test = held[ratings.users]
    parts = add_validation(_test_part(test), seed)
    positions = np.flatnonzero(test)
    # Rank a person's ratings by random keys; the first `given` are what is known of them.
    shuffled = positions[np.argsort(keys_of(len(positions), (seed, _GIVEN_STREAM)), kind="stable")]
    order = stable_order(ratings.users[shuffled], ratings.n_users)
    grouped = shuffled if order is None else shuffled[order]
    sizes = counts[held]
    rank = np.arange(len(grouped)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    parts[grouped[rank < given]] = GIVEN
    return parts


def _by_last(ratings: Dataset, count: int) -> Parts:
    if ratings.times is None:
        raise DataError(
            "last: these ratings have no timestamps, so nobody's last are known; "
            "load data with times, or split at random with paper:SEED"
        )
    if count == 0:
        raise DataError("last:0 leaves nothing to test; write last:1 or more")
    order = np.lexsort((ratings.times, ratings.users))  # stable: later in the file is newer
    sizes = np.bincount(ratings.users, minlength=ratings.n_users)
    left = np.empty(len(ratings), np.int64)  # how many of the person's are newer
    left[order] = np.repeat(np.cumsum(sizes), sizes) - 1 - np.arange(len(ratings))
    enough = (sizes > 2 * count)[ratings.users]
    if not enough.any():
        raise DataError(
            f"last:{count}: nobody has more than {2 * count} ratings, so {count} for testing, "
            f"{count} for validation and one to know them by; the most is {sizes.max(initial=0)}"
        )
    parts = _test_part(enough & (left < count))
    parts[enough & (left >= count) & (left < 2 * count)] = VALID
    return parts


def _by_liang(ratings: Dataset, held: int, seed: int) -> Parts:
    """The protocol of Liang et al. (2018), with their seed draw for draw; docs/splits.md says it in
    words."""
    least = usual_threshold(ratings.scale)
    liked = ratings.values >= least
    counts = np.bincount(ratings.users[liked], minlength=ratings.n_users)
    eligible = np.flatnonzero(counts >= _LIANG_LEAST)
    if not 0 < 2 * held < len(eligible):
        gave = "have" if ratings.implicit else "gave"
        what = "interactions" if ratings.implicit else f"ratings of {least:g} or more"
        raise DataError(
            f"liang:{held} holds out {held} people for testing and as many for validation; of "
            f"{len(eligible):,} who {gave} {_LIANG_LEAST} {what} some must be "
            "left to train on, and nobody held out is none: give another number, or more data"
        )
    # NumPy has frozen this generator and what it draws.
    people = eligible[np.random.RandomState(seed).permutation(len(eligible))]
    role = np.full(ratings.n_users, NONE, np.uint8)
    role[people] = TRAIN
    role[people[-2 * held :]] = VALID
    role[people[-held:]] = TEST
    parts = role[ratings.users]
    catalogue = np.zeros(ratings.n_items, bool)
    catalogue[ratings.items[liked & (parts == TRAIN)]] = True
    for part in (VALID, TEST):
        theirs = parts == part
        parts[theirs] = GIVEN
        parts[theirs & liked & ~catalogue[ratings.items]] = NONE
        parts[_liang_answers(ratings, theirs & liked & catalogue[ratings.items], seed)] = part
    return parts


def _liang_answers(ratings: Dataset, likes: BoolArray, seed: int) -> IndexArray:
    """Positions of a fifth of each person's likes, people in the order of their ids."""
    draw = np.random.RandomState(seed)
    positions = np.flatnonzero(likes)
    positions = positions[np.argsort(ratings.users[positions], kind="stable")]
    starts = np.flatnonzero(np.diff(ratings.users[positions])) + 1
    answers = [
        mine[draw.choice(len(mine), int(0.2 * len(mine)), replace=False)]
        for mine in np.split(positions, starts)
        if len(mine) >= _LIANG_LEAST
    ]
    return np.concatenate([positions[:0], *answers])


def _test_part(test: BoolArray) -> Parts:
    parts = np.full(len(test), TRAIN, np.uint8)
    parts[test] = TEST
    return parts


# -- names -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    fields: tuple[str, ...]
    rule: Callable[..., Parts]
    example: str
    defaults: tuple[str, ...] = ()  # of the last fields
    brief: bool = False  # whether the split's name leaves them out

    def usage(self, kind: str) -> str:
        needed = len(self.fields) - len(self.defaults)
        return kind + "".join(
            f":{field}" if i < needed else f"[:{field}]" for i, field in enumerate(self.fields)
        )


_FORMS = {
    "all": _Form((), _all, "all"),
    "paper": _Form(("SEED",), _paper, "paper:1"),
    "authors": _Form(("SEED",), _authors, "authors:1234"),
    "authors-code": _Form(("SEED",), _authors_code, "authors-code:1234"),
    "kfold": _Form(("K", "I", "SEED"), _fold, "kfold:5:0", ("0",)),
    "time": _Form(("TEST_FRACTION",), _by_time, "time:0.1", ("0.1",)),
    "users": _Form(("SEED", "GIVEN"), _by_users, "users:1:10", ("10",)),
    "last": _Form(("COUNT",), _by_last, "last:1", ("1",)),
    "liang": _Form(("HELD", "SEED"), _by_liang, "liang:600", (str(_LIANG_SEED),), brief=True),
}

SPLITS = tuple(form.usage(kind) for kind, form in _FORMS.items())
"""The names of splits as a person may write them."""


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
            f"write {form.usage(kind)}, for example {form.example}"
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
