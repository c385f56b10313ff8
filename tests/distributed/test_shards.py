"""Ranks read every rating once, with its position in its row, from verified partitions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.distributed.sharded import cells_of, csv_file, lines, sharded

from cfnade.data.dataset import Axis
from cfnade.distributed import shards as shards_module
from cfnade.distributed.shards import PARTS, SPLITS, ShardedRatings, owner_of
from cfnade.exceptions import DataError

pytest.importorskip("duckdb", reason="needs cfnade[shard]")

USERS, ITEMS = range(100, 160), [f"film {n}" for n in range(40)]
LINES = lines(600, 3, USERS, ITEMS)
SIDES: tuple[Axis, Axis] = ("user", "item")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardedRatings:
    folder = tmp_path_factory.mktemp("parts")
    file = csv_file(folder / "ratings.csv", LINES)
    return sharded(folder / "out", file, valid=0.2, test=0.1, seed=7, side="both")


def split_of(user: int, item: str, seed: int = 7, valid: float = 0.2, test: float = 0.1) -> str:
    share = int(hashlib.md5(f"{seed}:{user}:{item}".encode()).hexdigest()[:8], 16) / 16**8
    return "test" if share < test else "valid" if share < test + (1 - test) * valid else "train"


def expected_cells(side: Axis, split: str) -> list[tuple[int, int, int, int]]:
    """Row, column, level and position in the row of the ratings of a split."""
    users, items = sorted({u for u, _, _ in LINES}), sorted({i for _, i, _ in LINES})
    cells = []
    for user, item, star in LINES:
        if split_of(user, item) == split:
            cell = users.index(user), items.index(item)
            cells.append((*(cell if side == "user" else cell[::-1]), int(star) - 1))
    sizes: Counter[int] = Counter()
    positioned = []
    for row, column, level in sorted(cells):
        positioned.append((row, column, level, sizes[row]))
        sizes[row] += 1
    return positioned


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("side", SIDES)
def test_every_rating_is_on_the_rank_of_its_column_with_its_position(
    shards: ShardedRatings, side: Axis, size: int
) -> None:
    for split in SPLITS:
        cells, all_columns = [], []
        for rank in range(size):
            part = shards.load(side, split, rank, size)
            all_columns += part.columns.tolist()
            assert set(owner_of(size, part.columns)) <= {rank}
            columns = part.columns[part.rows.columns]
            arrays = part.row_indices, columns, part.rows.levels, part.position_in_row
            cells += list(zip(*(array.tolist() for array in arrays), strict=True))
            if size == 1:
                assert cells == sorted(cells)
        assert sorted(cells) == expected_cells(side, split)
        assert sorted(all_columns) == list(range(len(ITEMS if side == "user" else USERS)))


def test_one_process_has_the_rows_of_the_shards(shards: ShardedRatings) -> None:
    train = shards.ratings("train")
    for side in SIDES:
        own, rows = shards.load(side, "train").rows, train.rows(side)
        assert np.array_equal(own.offsets, rows.offsets)
        assert np.array_equal(own.columns, rows.columns)
        assert np.array_equal(own.levels, rows.levels)


def test_one_side_alone_is_half_of_it(tmp_path: Path, shards: ShardedRatings) -> None:
    file = csv_file(tmp_path / "ratings.csv", LINES)
    for side in SIDES:
        alone = sharded(tmp_path / side, file, valid=0.2, test=0.1, seed=7, side=side)
        assert cells_of(alone, "train") == cells_of(shards, "train")
        other: Axis = "item" if side == "user" else "user"
        with pytest.raises(DataError, match=f"no partitions whose rows are {other}s.*--side both"):
            alone.load(other, "train")


def test_ranks_that_cannot_be_are_refused(shards: ShardedRatings) -> None:
    for rank, size in ((2, 2), (-1, 2), (0, 65), (0, 0)):
        with pytest.raises(DataError, match=rf"rank {rank} of {size}: .*1 to 64 ranks"):
            shards.load("user", "train", rank, size)


# -- damage ---------------------------------------------------------------------------------------


def test_a_flipped_byte_is_found_in_every_file(shards: ShardedRatings) -> None:
    def read_all(opened: ShardedRatings) -> None:
        for axis in SIDES:
            opened.ids(axis)
            opened.load(axis, "train")

    files = sorted(shards.folder.rglob("*.parquet"))
    assert len(files) > PARTS
    train = [file for file in files if "split=train" in str(file)]
    for file in [*sorted(shards.folder.glob("ids/*/*.parquet")), *train[:3], *train[-3:]]:
        whole = file.read_bytes()
        for at in (30, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(DataError, match=file.name):
                read_all(shards)
        file.write_bytes(whole)
    read_all(shards)


def test_ratings_are_sorted_in_bands_of_any_size(
    shards: ShardedRatings, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shards.load("user", "train")
    monkeypatch.setattr(shards_module, "_BAND", 50)
    banded = shards.load("user", "train")
    assert np.array_equal(banded.rows.columns, whole.rows.columns)
    assert np.array_equal(banded.position_in_row, whole.position_in_row)


def test_a_changed_or_missing_manifest_is_one_error(tmp_path: Path) -> None:
    shards = sharded(tmp_path / "out", csv_file(tmp_path / "r.csv", LINES[:99]))
    file = shards.folder / "manifest.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"users": told["users"] + 1}))
    with pytest.raises(DataError, match="manifest is damaged"):
        ShardedRatings.open(shards.folder)
    file.unlink()
    with pytest.raises(DataError, match=r"no finished shards.*cfnade data shard"):
        ShardedRatings.open(shards.folder)
