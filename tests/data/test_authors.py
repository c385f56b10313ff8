from __future__ import annotations

import hashlib
import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cfnade.data.authors import AUTHORS_SEEDS, authors_order, authors_sizes
from cfnade.data.build import Columns, build
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.data.splits import split


def cells_of(part: Ratings) -> list[tuple[int, int]]:
    return list(zip(part.users.tolist(), part.items.tolist(), strict=True))


def numbered(n: int) -> Ratings:
    """n ratings; the i-th is of cell (i // 50, i % 50)."""
    cells = np.arange(n, dtype=np.int32)
    return Ratings(
        users=cells // 50,
        items=cells % 50,
        levels=np.ones(n, np.uint8),
        scale=Scale((1.0, 2.0)),
        user_ids=np.arange(n // 50 + 1),
        item_ids=np.arange(50),
    )


def authors_by_hand(n: int, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Their script on the list 0..n-1, with Python 2.7's shuffle written out."""
    generator = random.Random(seed)
    listed = list(range(n))
    i = n
    while i > 1:
        i -= 1
        partner = int(generator.random() * (i + 1))
        listed[i], listed[partner] = listed[partner], listed[i]
    n_test, n_valid = np.ceil(n * 0.1), np.ceil(n * (0.9 * 0.005))
    n_train = n - n_test - n_valid
    train, valid, test = [], [], []
    for count, position in enumerate(listed):
        if count < n_train:
            train.append(position)
        elif count < n_train + n_valid:
            valid.append(position)
        else:
            test.append(position)
    return sorted(train), sorted(valid), sorted(test)


@pytest.mark.parametrize("n", [3, 10, 11, 30, 110, 200, 222, 1000])
@pytest.mark.parametrize("seed", [0, 1234, 1324])
def test_the_split_is_that_of_their_code(n: int, seed: int) -> None:
    whole = numbered(n)
    everything = cells_of(whole)
    train, valid, test = authors_by_hand(n, seed)
    code = split(whole, f"authors-code:{seed}")
    assert cells_of(code.test) == [everything[i] for i in test]
    assert cells_of(code.valid) == [everything[i] for i in valid]
    assert cells_of(code.train) == [everything[i] for i in train]
    paper = split(whole, f"authors:{seed}")
    assert cells_of(paper.test) == cells_of(code.test)
    assert len(paper.valid) == -(-(n - len(test)) // 20)


def test_python_2_shuffles_ten_numbers_so() -> None:
    """Printed by Python 2.7.18: random.seed(1234); x = list(range(10)); random.shuffle(x)."""
    assert authors_order(10, 1234).tolist() == PYTHON_2
    assert AUTHORS_SEEDS == (1234, 2341, 3412, 4123, 1324)


PYTHON_2 = [8, 1, 7, 4, 2, 5, 6, 0, 3, 9]


def test_the_authors_sizes_are_ceilings_of_floats() -> None:
    assert authors_sizes(1_000_209) == (4_501, 100_021)
    assert authors_sizes(2_000) == (10, 200)  # 9.000000000000002 rounds up
    for n in range(1, 3000):
        assert authors_sizes(n) == (int(np.ceil(n * (0.9 * 0.005))), int(np.ceil(n * 0.1)))


# md5 of the sorted (user, movie) pairs of each part, as made by Python 2.7.18 from ratings.dat.
PYTHON_2_PARTS = {
    1234: ("dfe30fcb24806a531ad829d9e5cbe9f5", "963ef349937dfefbeefe8728053deb18"),
    2341: ("d7d6ff9a2520905cebee22828a8ce48c", "8594c4f1daf27c6ca2f0e92461369bbe"),
    3412: ("96f7d27ccfd3f135a0ca9332986c15a3", "9b7e9d83307747ec667d0a2e15b1fde4"),
    4123: ("8b9cc21bdb8292e5d063871cec95eba8", "cb451487043661a6b96c8ec2a09ccd10"),
    1324: ("d0e7a7747ab7712489814e53a9b8101d", "f643d85f35d51dbcbaf8f52cf56fc110"),
}


@pytest.fixture(scope="module")
def ml_1m() -> Ratings:
    folder = os.environ.get("CFNADE_DATA")
    path = Path(folder or ".") / "ml-1m.zip"
    if folder is None or not path.exists():
        pytest.skip("ml-1m.zip is not in the folder CFNADE_DATA")
    with zipfile.ZipFile(path) as archive:
        text = archive.read("ml-1m/ratings.dat").replace(b"::", b" ")
    table = np.fromstring(text.decode(), np.int64, sep=" ").reshape(-1, 4)
    return build(Columns(table[:, 0], table[:, 1], table[:, 2], table[:, 3]))


@pytest.mark.realdata
@pytest.mark.parametrize("seed", AUTHORS_SEEDS)
def test_movielens_1m_is_split_as_python_2_does(ml_1m: Ratings, seed: int) -> None:
    code, paper = split(ml_1m, f"authors-code:{seed}"), split(ml_1m, f"authors:{seed}")
    assert [len(part) for part in (code.train, code.valid, code.test)] == [895_687, 4_501, 100_021]
    assert [len(part) for part in (paper.train, paper.valid, paper.test)] == [
        855_178,
        45_010,
        100_021,
    ]
    assert (raw_digest(code.valid), raw_digest(code.test)) == PYTHON_2_PARTS[seed]
    assert raw_digest(paper.test) == raw_digest(code.test)


def raw_digest(part: Ratings) -> str:
    users, items = part.user_ids[part.users].tolist(), part.item_ids[part.items].tolist()
    text = repr(sorted(zip(users, items, strict=True))).replace(" ", "")
    return hashlib.md5(text.encode()).hexdigest()
