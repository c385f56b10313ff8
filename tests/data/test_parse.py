"""Times in common formats, and ids with blanks around them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade import DataError, load

MOMENT = st.datetimes(datetime(1971, 1, 1), datetime(2037, 12, 31))
FORMATS = [
    *("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%d %b %Y"),
    *("%B %d, %Y", "%b %d, %Y", "%d %B %Y %H:%M", "%d-%b-%Y", "%m %d, %Y", "%Y-%m-%d %H:%M:%S UTC"),
]


def file_of(times: list[str], folder: Path) -> Path:
    path = folder / "own.csv"
    lines = [f'{n};{n % 3};{1 + n % 5};"{text}"' for n, text in enumerate(times)]
    path.write_text("\n".join(["user;item;rating;date", *lines]) + "\n")
    return path


def seconds_of(times: list[str], folder: Path) -> list[int]:
    found = load(file_of(times, folder), time="date", cache=False, scale="1-5").times
    assert found is not None
    seconds: list[int] = found.tolist()
    return seconds


@settings(max_examples=60, derandomize=True)
@given(st.lists(MOMENT, min_size=1, max_size=8), st.sampled_from(FORMATS))
def test_common_formats_are_read(
    tmp_path_factory: pytest.TempPathFactory, moments: list[datetime], layout: str
) -> None:
    texts = [moment.strftime(layout) for moment in moments]
    expected = [
        int(datetime.strptime(text, layout).replace(tzinfo=UTC).timestamp()) for text in texts
    ]
    assert seconds_of(texts, tmp_path_factory.mktemp("times")) == expected


@pytest.mark.parametrize("separator", "/-")
@pytest.mark.parametrize("clock", ["", " 13:45", " 1:45 PM"])
def test_a_day_above_12_decides_the_order_of_day_and_month(
    separator: str, clock: str, tmp_path: Path
) -> None:
    time_of_day = 13 * 3600 + 45 * 60 if clock else 0
    days_first = [f"{day}{separator}05{separator}2025{clock}" for day in ("05", "15")]
    months_first = [f"05{separator}{day}{separator}2025{clock}" for day in ("05", "15")]
    expected = [
        int(datetime(2025, 5, day, tzinfo=UTC).timestamp()) + time_of_day for day in (5, 15)
    ]
    assert seconds_of(days_first, tmp_path) == expected
    assert seconds_of(months_first, tmp_path) == expected


def test_dates_with_dots_have_the_day_first(tmp_path: Path) -> None:
    expected = int(datetime(2025, 6, 5, tzinfo=UTC).timestamp())
    assert seconds_of(["05.06.2025"], tmp_path) == [expected]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("5. März 2005", (2005, 3, 5)),
        ("24. DEZEMBER 2010", (2010, 12, 24)),
        ("03. Okt. 2007", (2007, 10, 3)),
        ("7. Mai 2004", (2004, 5, 7)),
        ("1. Januar 2001", (2001, 1, 1)),
        ("30 Juni 2019", (2019, 6, 30)),
    ],
)
def test_german_months_are_read(text: str, day: tuple[int, int, int], tmp_path: Path) -> None:
    assert seconds_of([text], tmp_path) == [int(datetime(*day, tzinfo=UTC).timestamp())]


def test_days_without_separators_are_dates(tmp_path: Path) -> None:
    expected = int(datetime(2005, 9, 6, tzinfo=UTC).timestamp())
    assert seconds_of(["20050906"], tmp_path) == [expected]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["05/06/2025", "07/08/2025"], "may have the day or the month first"),
        (["last week", "yesterday"], "is neither a number nor a date"),
    ],
)
def test_ambiguous_times_are_an_error_if_named_and_else_ignored(
    times: list[str], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(times * 3, tmp_path)
    with pytest.raises(DataError, match=rf"own\.csv:2: .*{message}.*time=False"):
        load(path, time="date")
    for _ in range(2):  # parsed, and from the cache
        caplog.clear()
        with caplog.at_level(logging.INFO, "cfnade"):
            assert load(path).times is None
        assert "times are ignored" in caplog.text
        assert message in caplog.text


def test_a_single_invalid_date_is_located(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"own\.csv:4: time 'soon' is neither a number nor a date"):
        load(file_of(["15.05.2025", "16.05.2025", "soon"], tmp_path))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::"])
def test_blanks_around_ids_are_stripped(separator: str, tmp_path: Path) -> None:
    rows = [["ann ", "alien", "4"], ["bob", " alien ", "3"], [" ann", "up", "5"]]
    path = tmp_path / "own.csv"
    path.write_text("".join(separator.join(row) + "\n" for row in rows))
    ratings = load(path)
    assert ratings.user_ids.tolist() == ["ann", "bob"]
    assert ratings.item_ids.tolist() == ["alien", "up"]


def test_identical_rows_are_dropped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "own.csv"
    path.write_text("user,item,rating,time\n1,2,3,9\n1,3,4,9\n1,2,3,9\n1,2,3,9\n2,3,4,9\n")
    for _ in range(2):  # parsed, and from the cache
        caplog.clear()
        with caplog.at_level(logging.INFO, "cfnade"):
            ratings = load(path)
        assert ratings.items.tolist() == [0, 1, 1]
        assert "2 identical duplicate rows were dropped" in caplog.text
    path.write_text("user,item,rating,time\n1,2,3,9\n1,3,4,9\n1,2,3,10\n")
    with pytest.raises(DataError, match=r'user 1 rated item 2 again.*duplicates="last"'):
        load(path)
    assert len(load(path, time=False)) == 2
