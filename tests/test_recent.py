"""What was computed of late: the same value, never another's, and no more bytes than allowed."""

from __future__ import annotations

import threading

import numpy as np

from cfnade.recent import Recent, key_of


def test_a_value_is_made_once_while_it_is_kept() -> None:
    made: list[int] = []

    def make(number: int) -> list[int]:
        made.append(number)
        return [number] * 10

    kept: Recent[list[int]] = Recent(30, len)
    for number in (1, 2, 3, 1, 2, 3):
        assert kept.get(key_of(number), lambda n=number: make(n)) == [number] * 10  # type: ignore[misc]
    assert made == [1, 2, 3]
    kept.get(key_of(1), lambda: make(1))
    kept.get(key_of(4), lambda: make(4))  # there is no room for four: 2 was asked for longest ago
    made.clear()
    for number in (1, 3, 4, 2):
        kept.get(key_of(number), lambda n=number: make(n))  # type: ignore[misc]
    assert made == [2]


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept: Recent[str] = Recent(3, len)
    assert kept.get(b"a", lambda: "long text") == "long text"
    assert kept.get(b"a", lambda: "another") == "another"
    assert kept.get(b"b", lambda: "two") == "two"
    assert kept.get(b"b", lambda: "not") == "two"


def test_keys_differ_wherever_a_part_differs() -> None:
    one, two = np.array([1, 2], np.int32), np.array([3], np.int32)
    both = np.array([1, 2, 3], np.int32)
    none = both[:0]
    keys = [
        key_of(one, two),
        key_of(both, none),
        key_of(none, both),
        key_of(two, one),
        key_of(1, one, two),
        key_of("1", one, two),
        key_of(True, one, two),
        key_of(one),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(1, one) == key_of(1, one.copy())


def test_many_threads_get_what_belongs_to_them() -> None:
    kept: Recent[tuple[int, ...]] = Recent(40, len)
    wrong: list[int] = []

    def ask(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 30, 2000).tolist():
            if kept.get(key_of(number), lambda n=number: (n,) * 3) != (number,) * 3:  # type: ignore[misc]
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert kept._held == sum(map(len, kept._values.values())) <= 40
