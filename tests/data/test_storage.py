from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.data.storage import open_dataset
from cfnade.exceptions import DataError


def tiny(**changes: object) -> Dataset:
    plain = Ratings(
        users=np.array([0, 1, 1], np.int32),
        items=np.array([1, 0, 1], np.int32),
        levels=np.array([4, 0, 2], np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.array([-7, 2**40]),
        item_ids=np.array(["a", "日本"], object),
        times=np.array([5, 6, 7], np.int32),
        titles=np.array(["", "É\ud800"], object),
        source="tiny",
    )
    return plain.replace(**changes)


VARIANTS = {
    "plain": tiny(),
    "no extras": tiny(times=None, titles=None),
    "long times": tiny(times=np.array([5, 2**40, -7])),
    "genres": tiny(genres=np.array(["A|B", ""], object)),
    "text users": tiny(user_ids=np.array(["", "x\n\0"], object)),
    "half stars": tiny(scale=Scale((0.1, 0.5, 1.0, 1.5, 2.0))),
    "bins": tiny(scale=Scale((0.5, 1.5, 2.5, 3.5, 1e300), (1.0, 2.0, 3.0, 4.0))),
    "empty part": tiny().select(np.zeros(3, bool)),
    "reversed": tiny().select(np.array([2, 1, 0])),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    ratings = VARIANTS[name]
    ratings.save(tmp_path / "r", "why ✓")
    back, note = open_dataset(tmp_path / "r")
    assert back == ratings
    assert back.scale == ratings.scale
    assert note == "why ✓"
    assert repr(back) == repr(ratings)
    for field in ("users", "items", "levels", "user_ids", "item_ids", "times", "titles", "genres"):
        one, two = getattr(back, field), getattr(ratings, field)
        assert (one is None) == (two is None)
        if one is not None:
            assert one.dtype == two.dtype
            assert one.tolist() == two.tolist()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(), max_size=5), min_size=2, max_size=10))
def test_round_trip_of_any_text(tmp_path: Path, texts: list[str]) -> None:
    array = np.empty(len(texts), object)
    array[:] = texts
    tiny(item_ids=array, titles=array[::-1]).save(tmp_path / "r")
    back = Dataset.open(tmp_path / "r")
    assert back.item_ids.tolist() == texts
    assert back.titles is not None
    assert back.titles.tolist() == texts[::-1]


def test_arrays_are_mapped_and_read_only(tmp_path: Path) -> None:
    tiny().save(tmp_path / "r")
    back = Dataset.open(tmp_path / "r")
    assert not back.levels.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        back.levels[0] = 1
    assert back.users.ctypes.data % 4 == 0  # aligned, so kernels may read it as it is


# -- damage ------------------------------------------------------------------------------------


def test_a_flipped_bit_in_any_byte_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "r"
    tiny().save(path)
    whole = path.read_bytes()
    assert len(whole) < 4000
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        assert_refused(path, bytes(damaged), f"byte {place}, bit {place % 8}")


def test_an_overwritten_byte_of_the_header_is_detected(tmp_path: Path) -> None:
    """Or else nothing is lost: a space in the header may become another kind of blank."""
    path, ratings = tmp_path / "r", tiny()
    ratings.save(path)
    whole = path.read_bytes()
    for at in range(8 + int.from_bytes(whole[:8], "little")):
        value = (9, 48, ord('"'))[at % 3]
        if whole[at] != value:
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                back = Dataset.open(path)
            except DataError:
                continue
            assert (chr(whole[at]), chr(value)) == (" ", "\t")
            assert back == ratings


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r"
    tiny().save(path)
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 3), len(whole) - 1):
        assert_refused(path, whole[:length], f"cut to {length} bytes")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans(), st.data())
def test_arbitrary_content_is_refused(
    tmp_path: Path, content: bytes, framed: bool, data: st.DataObject
) -> None:
    if framed:  # a whole header of any JSON
        value = st.recursive(
            st.none() | st.integers() | st.floats() | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
            max_leaves=6,
        )
        place = st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["I64", "I32", "U8", "F32", ""]) | value,
                "shape": st.lists(st.integers(-(2**70), 2**70), max_size=3) | value,
                "data_offsets": st.lists(st.integers(-(2**72), 2**72), max_size=3) | value,
            }
        )
        entries = st.dictionaries(
            st.sampled_from(["users", "__metadata__", "x"]), place | value, max_size=3
        )
        header = json.dumps(data.draw(entries | value)).encode()
        content = len(header).to_bytes(8, "little") + header + content
    assert_refused(tmp_path / "r", content, repr(content))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "I64", "shape": [2**70], "data_offsets": [-(2**73), 0]},
        {"dtype": "U8", "shape": [-1], "data_offsets": [1, 0]},
        {"dtype": "U8", "shape": [2**40, 0], "data_offsets": [0, 0]},
        {"dtype": "U8", "shape": [1] * 100, "data_offsets": [0, 1]},
    ],
)
def test_impossible_arrays_are_refused(entry: dict[str, object], tmp_path: Path) -> None:
    header = json.dumps({"users": entry, "__metadata__": {}}).encode()
    content = len(header).to_bytes(8, "little") + header + b"\0" * 16
    assert_refused(tmp_path / "r", content, str(entry))


def test_a_deeply_nested_header_is_refused(tmp_path: Path) -> None:
    header = b"[" * 100_000
    assert_refused(tmp_path / "r", len(header).to_bytes(8, "little") + header, "deep")


def test_a_missing_array_is_detected(tmp_path: Path) -> None:
    """The times' entry is taken out of the header; everything that is left is in order."""
    path = tmp_path / "r"
    tiny().save(path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    entries = json.loads(whole[8 : 8 + length])
    del entries["times"]
    header = json.dumps(entries).encode().ljust(length)
    assert_refused(path, whole[:8] + header + whole[8 + length :], "without times")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match=f"{path}: cannot be read"):
            Dataset.open(path)


def assert_refused(path: Path, content: bytes, what: str) -> None:
    path.write_bytes(content)
    try:
        Dataset.open(path)
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        pytest.fail(f"{what}: read as if nothing were wrong")
