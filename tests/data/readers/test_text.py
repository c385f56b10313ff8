"""Delimited text: what is well-formed is read exactly, what is not is told where and why."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raw_tables import item_texts, rows

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.readers.text import decode, read_text
from cfnade.data.validate import build
from cfnade.exceptions import DataError

HEADER = "userId,movieId,rating,timestamp\n"
GOOD = HEADER + "1,10,4.5,978300760\n2,20,3,978300761\n"


def text(data: str | bytes, **said: Any) -> RawTable:
    raw = data.encode() if isinstance(data, str) else data
    return read_text(raw, "r.csv", LoadOptions(**said))


EXPECTED = [(1, 10, 4.5, 978300760), (2, 20, 3.0, 978300761)]


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        GOOD.removesuffix("\n"),
        GOOD + "\n\n  \n",
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\r"),
        "\ufeff" + GOOD,
        "\ufeff" + GOOD.removeprefix(HEADER),
        GOOD.encode("utf-16"),
        GOOD.replace(",", "\t"),
        GOOD.replace(",", ";"),
        GOOD.replace(",", ";").replace("4.5", "4,5"),
        GOOD.replace(",", "\t").replace("4.5", " 4,50 "),
        GOOD.replace("4.5", '"4,5"'),
        GOOD.replace(",", "|"),
        GOOD.replace(",", "::"),
        GOOD.replace(",", " "),
        GOOD.replace(",", "   "),
        GOOD.replace(",", ", "),
        GOOD.removeprefix(HEADER),
        GOOD.removeprefix(HEADER).replace(",", "::"),
        GOOD.replace("1,10,", '"1","10",'),
        GOOD.replace("1,10,", '"1","10",').replace(",", "\t"),
        GOOD.replace("userId", " USER-ID ").replace("movieId", "asin").replace("rating", "Stars"),
        "rating,timestamp,note,user_id,item_id\n4.5,978300760,a,1,10\n3,978300761,,2,20\n",
        'timestamp,rating,item,user,text\n978300760,4.5,10,1,"a ""b"",\nc"\n978300761,3,20,2,""\n',
        GOOD.replace("978300760", "978300760000").replace("978300761", "978300761000"),
        GOOD.replace("978300760", "2000-12-31T22:12:40").replace(
            "978300761", "2000-12-31 22:12:41"
        ),
        GOOD.replace("978300760", "2000-12-31T22:12:40Z").replace(
            "978300761", "2001-01-01T00:12:41+02:00"
        ),
    ],
)
def test_the_same_ratings_however_they_are_written(data: str | bytes) -> None:
    assert rows(text(data)) == EXPECTED


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEADER + "1,10,abc,5\n", r"r\.csv:2: rating 'abc' is not a number; .*rating="),
        (HEADER + "1,10,4,5\n2,20,,6\n", r"r\.csv:3: the rating is missing; remove that row"),
        (HEADER + "1,10,4,5\n,20,3,6\n", r"r\.csv:3: the user id is missing"),
        (HEADER + "1,10,4,5\n2, ,3,6\n", r"r\.csv:3: the item id is missing"),
        (HEADER + "1,10,4,5\n2,20,NaN,6\n", r"r\.csv:3: rating nan is not a finite number"),
        (HEADER + "1,10,4,5\n2,20,-inf,6\n", r"r\.csv:3: rating -inf is not a finite number"),
        (HEADER + "1,10,4,5\n2,20,3,x\n", r"r\.csv:3: time 'x' is neither a number nor a date"),
        (HEADER + "1,10,4,5\n2,20,3,nan\n", r"r\.csv:3: time nan is not a finite number"),
        (HEADER + "1,10,4,5\n2,20,3,\n", r"r\.csv:3: the time is missing; .*time=False"),
        (
            HEADER + "1,1,4,9\n2,2,3,978300761000\n",
            r"r\.csv:2: time .9. is not written like the others",
        ),
        (HEADER + "1,10,4,5\n2,20,3\n", r"r\.csv:3: the line has 3 fields, not 4"),
        (HEADER + "1,10,4,5\n2,20,3,6,7\n", r"r\.csv:3: the line has 5 fields, not 4"),
        (HEADER + "1,10,4\n2,20,3,6,7\n", r"r\.csv:2: the line has 3 fields"),
        (HEADER + "1,10,4,5,\n2,20,3\n", r"r\.csv:2: the line has 5 fields"),
        (HEADER + '"1","10","4","5"\n"2","20","3"\n', r"r\.csv:3: the line has 3 fields"),
        (HEADER + '"1","10","4"\n"2","20","3",7,8\n', r"r\.csv:2: the line has 3 fields"),
        (HEADER + "1,10,4,5\n\n2,20,3,6\n", r"r\.csv:3: the line is blank; remove it"),
        (HEADER + '1,10,4,5\n2,"20,3,6\n', r"r\.csv:3: this line cannot be cut into fields"),
        (HEADER + "1,10,4,5\n2,2\r0,3,6\n", r"r\.csv:3: .*carriage return"),
        (HEADER + "1,10,4,5\n2,2\x000,3,6\n", r"r\.csv:3: a NUL byte: this is not text"),
        (HEADER, r"r\.csv: holds a header and no ratings"),
        ("", r"r\.csv: is empty; it should hold a user, an item and a rating"),
        ("\n\n", r"r\.csv: is empty"),
        ("hello\nworld\n", r"(?s)r\.csv:1: no separator cuts .*separator=.*\n    hello\n"),
        ("1\n3\n", r"r\.csv:1: no separator cuts the lines into a user, an item and perhaps a rat"),
        ("ann,up\nbob,up\n", r"which column is the user and which the item.*header=False"),
        ("a,b,c\n1,2,3\n", r"which column is the user and which the item .*'a', 'b', 'c'; name"),
        ("1,2,3,4,5\n1,2,3,4,5\n", r"which column is the user .*5 columns without names"),
        ("1;2;1,000\n1;3;4,5\n", r"r\.csv:1: rating '1,000' is not a number; write decimals wi"),
        ("1;2;3\n1;3;1,2,3\n", r"r\.csv:2: rating '1,2,3' is not a number; write decimals wi"),
    ],
)
def test_a_bad_line_is_named_with_its_value_and_a_remedy(data: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(data)


def test_a_first_line_with_a_decimal_comma_is_no_header() -> None:
    assert rows(text("ann;alien;4,5\nbob;brazil;,5\n")) == [
        ("ann", "alien", 4.5),
        ("bob", "brazil", 0.5),
    ]


def test_bad_lines_among_decimal_commas_are_skipped_alone() -> None:
    data = "ann;alien;4,5\nbob;brazil;a lot\nann;brazil;3,0\n"
    assert text(data, skip_bad_lines=True).frame["rating"].to_list() == [4.5, 3.0]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"user": "nobody"}, r'user="nobody" is no column; there are 4 columns: .userId'),
        ({"rating": 4}, r"rating=4 is no column; there are 4 columns"),
        ({"user": 1, "item": "movieId"}, "one column is given twice"),
        ({"user": "movieId"}, "which column is the item"),
        ({"time": True}, r"time \(=True\) must be a string or a whole number or False"),
        ({"separator": ""}, 'separator="" cannot separate fields'),
        ({"encoding": "klingon"}, 'encoding="klingon" is not known'),
        ({"encoding": "ascii", "data": GOOD + "é"}, r"r\.csv:4: not ascii"),
    ],
)
def test_a_wrong_option_is_named(said: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(said.pop("data", GOOD), **said)


@pytest.mark.parametrize(
    "said",
    [
        {"user": "movieId", "item": "userId"},
        {"user": 1, "item": 0},
        {"user": "1", "item": "0", "rating": 2, "time": "timestamp"},
    ],
)
def test_columns_can_be_given_by_name_or_position(said: dict[str, Any]) -> None:
    assert rows(text(GOOD, **said))[0] == (10, 1, 4.5, 978300760)


def test_times_can_be_left_out() -> None:
    assert "time" not in text(GOOD, time=False).frame.columns
    assert "time" not in text(GOOD.replace("978300760", "once"), time=False).frame.columns


def test_a_separator_and_an_encoding_can_be_given() -> None:
    columns = text("1¦Amélie¦4\n".encode("latin-1"), separator="¦", encoding="latin-1")
    assert rows(columns) == [(1, "Amélie", 4.0)]


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (["1", "-2", "0"], [1, -2, 0]),
        (["9223372036854775807", "1"], [9223372036854775807, 1]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["01", "2"], ["01", "2"]),
        (["+1", "2"], ["+1", "2"]),
        (["-0", "2"], ["-0", "2"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["a", "2"], ["a", "2"]),
        (["034545104X", "Zoë"], ["034545104X", "Zoë"]),
        (['"Great" Cats', "2"], ['"Great" Cats', "2"]),
    ],
)
def test_ids_are_integers_only_if_that_loses_nothing(ids: list[str], kept: list[Any]) -> None:
    data = "".join(f"{raw}\t7\t{star}\n" for star, raw in enumerate(ids, 1))
    assert list(text(data, header=False).frame["user"]) == kept


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
@settings(max_examples=50, derandomize=True)
def test_any_written_integer_comes_back(values: list[int]) -> None:
    assert list(text("".join(f"{v},7,1\n" for v in values)).frame["user"]) == values


@given(
    st.lists(
        st.tuples(*[st.text("ab1,\";\n '\u00e9", min_size=1, max_size=4)] * 2),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=50, derandomize=True)
def test_quoted_text_is_what_the_csv_module_wrote(pairs: list[tuple[str, str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["user", "item", "rating"])
    writer.writerows([f"u{user}", f"i{item}", 3] for user, item in pairs)
    columns = text(out.getvalue(), separator=",")
    assert rows(columns) == [
        (f"u{user}".strip(" "), f"i{item}".strip(" "), 3.0) for user, item in pairs
    ]


def test_text_is_cleaned_of_what_editors_add() -> None:
    assert decode(b"\xef\xbb\xbf1,2,3\r\n4,5,6\r\n\r\n", "r.csv")[0] == b"1,2,3\n4,5,6"


def test_lines_are_counted_through_quoted_line_breaks() -> None:
    data = 'user,item,rating,text\n1,1,2,"a\nb"\n1,2,3,c\n1,2,4,d\n'
    with pytest.raises(DataError, match=r"r\.csv:5: user 1 rated item 2 again .*r\.csv:4"):
        build(text(data), LoadOptions())


def test_repeats_are_told_by_line() -> None:
    with pytest.raises(DataError, match=r"r\.csv:4: user 1 rated item 10 again"):
        build(text(GOOD + "1,10,3,5\n"), LoadOptions())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (GOOD, "comma-separated text with header: userId, movieId, rating, timestamp"),
        ("1\t2\t3\n", "tab-separated text without header: user, item, rating in columns 0, 1, 2"),
        ("1::2::3\n", '"::"-separated text without header: user, item, rating in columns 0, 1, 2'),
    ],
)
def test_what_was_recognised_is_said(data: str, words: str) -> None:
    assert str(read_text(data.encode(), "r.csv", LoadOptions()).description) == words


def test_a_wide_table_is_read_without_mixing_columns() -> None:
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 1000, (500, 12))
    names = [f"x{i}" for i in range(9)] + ["rating", "item_id", "user_id"]
    lines = [",".join(names)] + [",".join(map(str, row)) for row in cells.tolist()]
    columns = text("\n".join(lines))
    assert np.array_equal(columns.frame["rating"], cells[:, 9])
    assert list(columns.frame["item"]) == cells[:, 10].tolist()
    assert list(columns.frame["user"]) == cells[:, 11].tolist()


# -- quotes that a backslash escapes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("separator", "doubled"),  # quotes that are doubled, as well, take the slow way
    [(",", ""), (";", ""), ("|", ""), ("\t", ""), (",", 'a ""b"" c'), (";", 'a ""b"" c')],
)
def test_a_quote_behind_a_backslash_belongs_to_the_field(separator: str, doubled: str) -> None:
    lines = [
        r'"user";"item";"rating"',
        r'"1";"\"0210000010";"5"',
        r'"2";"0210000010\"";"4"',
        r'"3";"a \"b\" c";"3"',
        r'"4";"c:\\";"2"',
        f'"5";"{doubled}x";"1"',
    ]
    data = "\n".join(lines).replace(";", separator)
    expected = ['"0210000010', '0210000010"', 'a "b" c', "c:\\", doubled.replace('""', '"') + "x"]
    assert rows(text(data)) == [(n, item, 6.0 - n) for n, item in enumerate(expected, 1)]


def test_a_backslash_before_a_closing_quote_is_no_escape_where_nothing_else_is() -> None:
    data = 'user,item,rating\n"1","c:\\","5"\n"2","d:\\","4"\n'
    assert rows(text(data)) == [(1, "c:\\", 5.0), (2, "d:\\", 4.0)]
    assert rows(text(r"1;5\" disk;4" + "\n")) == [(1, '5" disk', 4.0)]


@given(
    st.lists(st.tuples(*[st.text('ab,";\n \\é', max_size=4)] * 2), min_size=1, max_size=8),
    st.sampled_from(",;|"),
)
@settings(max_examples=100, derandomize=True)
def test_escaped_text_is_what_the_csv_module_wrote(
    pairs: list[tuple[str, str]], separator: str
) -> None:
    out = io.StringIO()
    escaping: dict[str, Any] = {"doublequote": False, "escapechar": "\\", "quoting": csv.QUOTE_ALL}
    writer = csv.writer(out, delimiter=separator, lineterminator="\n", **escaping)
    writer.writerow(["user", "item", "rating"])
    pairs = [('a"b', "c"), *pairs]  # so that the style is seen
    writer.writerows([f"u{user}", f"i{item}", 3] for user, item in pairs)
    columns = text(out.getvalue(), separator=separator)
    assert rows(columns) == [
        (f"u{user}".strip(" "), f"i{item}".strip(" "), 3.0) for user, item in pairs
    ]


# -- bad lines that are left out -------------------------------------------------------------------

BAD = {
    "1,10,abc,5": "rating 'abc' is not a number",
    "2,20,,6": "the rating is missing",
    ",20,3,6": "the user id is missing",
    "2, ,3,6": "the item id is missing",
    "2,20,NaN,6": "rating nan is not a finite number",
    "2,20,3,x": "time 'x' is neither a number nor a date such as 2005-09-06",
    "2,20,3,2005-09-06": "time '2005-09-06' is not written like the others",
    "2,20,3,": "the time is missing",
    "2,20,3": "the line has 3 fields, not 4 (separated by comma)",
    "2,20,3,6,7": "the line has 5 fields, not 4 (separated by comma)",
    "": "the line is blank",
    '2,"20,3,6': "this line cannot be cut into fields (unexpected end of data)",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_an_error_that_names_the_option_or_left_out_and_told(line: str) -> None:
    first, *others = GOOD.splitlines()[1:] * 2
    data = "\n".join([HEADER.strip(), first, line, *others]) + "\n"
    with pytest.raises(DataError, match=r"r\.csv:3: .*, or leave such lines out with skip_bad_"):
        text(data)
    columns = read_text(data.encode(), "r.csv", LoadOptions(skip_bad_lines=True))
    said = columns.description
    assert rows(columns) == EXPECTED * 2
    assert said.endswith(f"; skipped 1 bad line (line 3: {BAD[line]})")
    assert [columns.locate(row) for row in range(4)] == [f"r.csv:{n}" for n in (2, 4, 5, 6)]


@given(st.lists(st.sampled_from(["", *BAD]), min_size=1, max_size=40))
@settings(max_examples=100, derandomize=True)
def test_good_lines_are_read_whatever_stands_between_them(between: list[str]) -> None:
    lines, bad = [HEADER.strip()], []
    for user, line in enumerate(between):
        lines += [f"{user},{user},5,978300760"] * 2 + [line]
        bad.append(len(lines))
    lines += ["9,9,5,978300760"] * 2
    # two stray quotes may make one field together, as they would for any reader
    if sum('"' in line for line in lines) > 1:
        return
    columns = read_text("\n".join(lines).encode(), "r.csv", LoadOptions(skip_bad_lines=True))
    said = columns.description
    assert len(columns.frame["rating"]) == len(lines) - 1 - len(bad)
    assert columns.frame["rating"].to_list() == [5.0] * len(columns.frame["rating"])
    assert f"skipped {len(bad)} bad line" in said
    assert f"(line {bad[0]}: " in said


def test_a_file_of_bad_lines_only_is_an_error_all_the_same() -> None:
    for data in (HEADER + "1,10,abc,5\n2,20,good,6\n", HEADER + "1,10\n2,20\n"):
        with pytest.raises(DataError, match=r"r\.csv(:2: rating 'abc'|: holds a header and no)"):
            text(data, skip_bad_lines=True)


# -- titles, and names by meaning ------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_title_column_becomes_titles_if_it_is_about_items(separator: str) -> None:
    data = "user,item,rating,Title,genres\n1,10,5,Alien,A|B\n2,10,4,Alien,A|B\n2,20,4,,C\n"
    columns = text(data.replace(",", separator))
    assert item_texts(columns, "title") == {10: "Alien"}
    assert item_texts(columns, "genres") == {10: "A|B", 20: "C"}
    reviews = data.replace("2,10,4,Alien", "2,10,4,I liked it")
    assert item_texts(text(reviews.replace(",", separator)), "title") == {}


@pytest.mark.parametrize(
    "header",
    [
        "userId,movieId,rating,timestamp",
        "uid,sku,Stars,unixReviewTime",
        "customer,product_id,score,date",
        "Account ID,ISBN,GRADE,time",
        "visitor-id,song,points,review_date",
        "memberNo,artist,value,ts",
        "reviewerID,asin,overall,unixReviewTime",
        "Reader_Key,Anime,Book-Rating,createdAt",
        "shop_customer_id,venue,user_score,datetime",
        "player,game_id,ratings,event_time",
        "who,what,stars,when",
    ],
)
def test_columns_are_known_by_what_their_names_mean(header: str) -> None:
    names, values = header.split(","), ["1", "10", "4.5", "978300760"]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        lines = [",".join(row[i] for i in order) for row in (names, values)]
        assert rows(text("\n".join(lines))) == EXPECTED[:1]


@pytest.mark.parametrize(
    "header",
    [
        "whose,item,rating",
        "user,item,avg_rating",
        "user,item,num_ratings",
        "a_user,b_user,item,rating",
    ],
)
def test_what_cannot_be_told_is_asked_with_the_first_lines(header: str) -> None:
    line = ",".join("7" for _ in header.split(","))
    with pytest.raises(DataError) as caught:
        text(f"{header}\n{line}\n{line}\n")
    message = str(caught.value)
    assert "which column is the" in message
    assert ("user=" in message) != ("rating=" in message)
    assert message.endswith(f"It begins:\n    {header}\n    {line}\n    {line}")
