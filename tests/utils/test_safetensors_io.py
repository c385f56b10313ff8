"""Arrays in safetensors files: chunks, mapping, verification, digests. Damage: test_storage.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import (
    Arrays,
    digest,
    digest_chunks,
    open_arrays,
    write_arrays,
    write_chunks,
)


def some_arrays() -> Arrays:
    rng = np.random.default_rng(0)
    return {
        "bytes": rng.integers(0, 255, 7, np.uint8),
        "matrix": rng.normal(size=(5, 3)),
        "single": rng.normal(size=(4, 2, 2)).astype(np.float32),
        "index": rng.integers(-9, 9, 11).astype(np.int32),
        "none": np.empty((0, 3), np.int64),
    }


def assert_same(one: Arrays, other: Arrays) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name])


def test_round_trip_and_compatibility(tmp_path: Path) -> None:
    path, arrays = tmp_path / "a", some_arrays()
    write_arrays(path, arrays, {"note": "é \u2713"})
    found, metadata = open_arrays(path)
    assert_same(found, arrays)
    assert metadata["note"] == "é \u2713"
    assert_same(load_file(path), arrays)
    assert all(array.ctypes.data % array.itemsize == 0 for array in found.values())


def test_chunks_give_the_same_file_as_arrays(tmp_path: Path) -> None:
    arrays = some_arrays()

    def rows(name: str) -> Iterator[npt.NDArray[Any]]:
        yield from (arrays[name][first : first + 2] for first in range(0, len(arrays[name]), 2))

    write_arrays(tmp_path / "whole", arrays, {"k": "v"})
    specs = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    check = write_chunks(tmp_path / "chunks", specs, rows, {"k": "v"})
    assert (tmp_path / "chunks").read_bytes() == (tmp_path / "whole").read_bytes()
    assert open_arrays(tmp_path / "chunks")[1]["check"] == check


def test_a_failing_chunk_leaves_the_old_file(tmp_path: Path) -> None:
    path, arrays = tmp_path / "a", some_arrays()
    write_arrays(path, arrays, {})

    def fail(_: str) -> Iterator[npt.NDArray[Any]]:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        write_chunks(path, {"x": (np.int32, (3,))}, fail, {})
    assert_same(open_arrays(path)[0], arrays)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_a_writable_mapping_never_changes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_arrays(path, some_arrays(), {})
    before = path.read_bytes()
    found, _ = open_arrays(path, writable=True)
    found["matrix"][:] = 7.0
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="read-only"):
        open_arrays(path)[0]["matrix"][:] = 7.0


def test_verification_is_optional(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_arrays(path, some_arrays(), {})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # of the last array
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="bytes: damaged"):
        open_arrays(path)
    open_arrays(path, verify=False)
    content[20] ^= 1  # of the header
    path.write_bytes(bytes(content))
    with pytest.raises(DataError):
        open_arrays(path, verify=False)


# -- digests --------------------------------------------------------------------------------------


def test_digests_of_chunks_equal_those_of_arrays() -> None:
    array = np.arange(100, dtype=np.int32)
    chunks = (array[first : first + 7] for first in range(0, 100, 7))
    assert digest_chunks(array.dtype, (100,), chunks) == digest(array)


def test_digests_depend_on_dtype_shape_and_content() -> None:
    base = np.arange(6, dtype=np.int32)
    others: list[npt.NDArray[Any]] = [
        base.astype(np.int64),
        base.reshape(2, 3),
        base[::-1],
        base[:5],
        base.view(np.uint8),
    ]
    digests = [digest(array) for array in others] + [digest(base)]
    digests += [digest(base[:0]), digest(base[:0].view(np.uint8))]
    digests += [digest(np.array(t, object)) for t in (["ab", ""], ["a", "b"], ["", "ab"], ["ab"])]
    assert len(set(digests)) == len(digests)
    assert digest(np.arange(12, dtype=np.int32)[::2]) == digest(np.arange(0, 12, 2, dtype=np.int32))
