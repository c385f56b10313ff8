"""A look at a Parquet file's structure before polars reads it.

polars answers most damage with an error, but a negative or huge count in a header makes it ask for
more memory than there is, which ends the process. So all counts are checked first against each
other and against the size of the file. Headers are in Thrift's compact protocol; field numbers are
those of the Parquet format's definition.
"""

from __future__ import annotations

import struct
from typing import Any

from cfnade.exceptions import DataError

MAGIC = b"PAR1"
_DEPTH = 32
_HEADER = 1 << 16  # bytes at the start of a page in which its header must end

Struct = dict[int, Any]


def check_parquet(data: memoryview) -> None:
    """Raise if the file's counts and sizes cannot be right."""
    size = len(data)
    if size < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise DataError("it does not end as a Parquet file must")
    (length,) = struct.unpack("<I", data[-8:-4])
    if length > size - 12:
        raise DataError("its footer is damaged")
    try:
        footer = _Reader(data[size - 8 - length : size - 8]).struct()
        rows = [_check_group(group, data) for group in footer[4]]
        if sum(rows) != footer[3]:
            raise DataError("its row counts contradict each other")
    except (LookupError, TypeError, AttributeError, ValueError, struct.error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("its footer or a page header is damaged") from error


def _check_group(group: Struct, data: memoryview) -> int:
    rows = group[3]
    for chunk in group[1]:
        meta = chunk[3]
        values, packed, whole = meta[5], meta[7], meta[6]
        start = min(meta[9], meta.get(11) or meta[9])
        _need(rows >= 0 and values >= 0 and whole >= 0)
        _need(start >= 4 and packed >= 0 and start + packed <= len(data) - 8)
        # lists have more values than rows; anything flat has as many
        _need(len(meta[3]) > 1 or values == rows)
        _check_pages(data[start : start + packed], values, whole)
    return int(rows)


def _check_pages(chunk: memoryview, values: int, whole: int) -> None:
    counted = 0
    while counted < values:
        reader = _Reader(chunk[:_HEADER])
        page = reader.struct()
        rest = chunk[reader.place :]
        _need(0 <= page[2] <= whole and 0 <= page[3] <= len(rest))
        for field in (5, 8):  # data pages of both versions
            if field in page:
                _need(0 <= page[field][1] <= values - counted)
                counted += page[field][1]
        if 7 in page:  # the dictionary: every entry takes at least a bit
            _need(0 <= page[7][1] <= 8 * max(page[2], 1))
        if 8 in page:
            levels = page[8].get(5, 0), page[8].get(6, 0)
            _need(0 <= page[8][2] <= page[8][1] and min(levels) >= 0 and sum(levels) <= page[2])
        chunk = rest[page[3] :]


def _need(condition: bool) -> None:
    if not condition:
        raise DataError("its counts contradict each other")


class _Reader:
    """Thrift's compact protocol as dictionaries from field number to value."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.place, self.depth = data, 0, 0

    def struct(self) -> Struct:
        self.depth += 1
        if self.depth > _DEPTH:
            raise DataError("its footer is nested too deeply")
        fields: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            # as a field, true and false are kinds of their own and have no byte
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        self.depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:  # a map occurs nowhere in Parquet
            case 1 | 2 | 3:  # true, false, byte
                return self._byte()
            case 4 | 5 | 6:  # integers
                return self._zigzag()
            case 7:  # double
                return self._skip(8)
            case 8:  # bytes
                return self._skip(self._varint())
            case 9 | 10:  # list, set
                return self._list()
            case 12:
                return self.struct()
        raise DataError("its footer holds a field of unknown type")

    def _list(self) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._varint()
        if count > len(self.data) - self.place:
            raise DataError("its footer ends too early")
        return [self._value(kind) for _ in range(count)]

    def _byte(self) -> int:
        byte = self.data[self.place]
        self.place += 1
        return byte

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise DataError("its footer holds a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> memoryview:
        start, self.place = self.place, self.place + count
        if self.place > len(self.data):
            raise DataError("its footer ends too early")
        return self.data[start : self.place]
