"""Delimited text: well-formed text is read exactly, errors name line, value and remedy."""

from __future__ import annotations

import csv
import gzip
import io
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.raw_tables import item_texts, read, rows

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.readers import files
from cfnade.data.readers.text import decode, read_text
from cfnade.data.readers.text_blocks import iter_text_blocks
from cfnade.data.validate import build
from cfnade.exceptions import DataError

HEADER = "userId,movieId,rating,timestamp\n"
GOOD = HEADER + "1,10,4.5,978300760\n2,20,3,978300761\n"


def text(data: str | bytes, **options: Any) -> RawTable:
    raw = data.encode() if isinstance(data, str) else data
    return read_text(raw, "r.csv", LoadOptions(**options))


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
def test_dialects_give_the_same_ratings(data: str | bytes) -> None:
    assert rows(text(data)) == EXPECTED


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEADER + "1,10,4,5\n2,20,-inf,6\n", r"r\.csv:3: rating -inf is not a finite number"),
        (HEADER + "1,10,4,5\n2,20,3,nan\n", r"r\.csv:3: time nan is not a finite number"),
        (
            HEADER + "1,1,4,9\n2,2,3,978300761000\n",
            r"r\.csv:2: time .9. is not written like the others",
        ),
        (HEADER + "1,10,4\n2,20,3,6,7\n", r"r\.csv:2: the line has 3 fields"),
        (HEADER + "1,10,4,5,\n2,20,3\n", r"r\.csv:2: the line has 5 fields"),
        (HEADER + '"1","10","4","5"\n"2","20","3"\n', r"r\.csv:3: the line has 3 fields"),
        (HEADER + '"1","10","4"\n"2","20","3",7,8\n', r"r\.csv:2: the line has 3 fields"),
        (HEADER + "1,10,4,5\n2,2\r0,3,6\n", r"r\.csv:3: .*carriage return"),
        (HEADER + "1,10,4,5\n2,2\x000,3,6\n", r"r\.csv:3: a NUL byte: this is not text"),
        (HEADER, r"r\.csv: holds a header and no ratings"),
        ("", r"r\.csv: is empty; it should hold a user, an item and a rating"),
        ("\n\n", r"r\.csv: is empty"),
        ("hello\nworld\n", r"(?s)r\.csv:1: no separator cuts .*separator=.*\n    hello\n"),
        ("1\n3\n", r"r\.csv:1: no separator cuts the lines into a user, an item and perhaps a rat"),
        ("ann,up\nbob,up\n", r"which column is the user, which the item.*header=False"),
        ("a,b,c\n1,2,3\n", r"which column is the user, which the item.*'a', 'b', 'c'; name"),
        ("1,2,3,4,5\n1,2,3,4,5\n", r"which column is the user, .*5 columns without names"),
        ("1;2;1,000\n1;3;4,5\n", r"r\.csv:1: rating '1,000' is not a number; write decimals wi"),
        ("1;2;3\n1;3;1,2,3\n", r"r\.csv:2: rating '1,2,3' is not a number; write decimals wi"),
    ],
)
def test_invalid_text_is_located(data: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(data)


def test_a_first_line_with_a_decimal_comma_is_not_a_header() -> None:
    assert rows(text("ann;alien;4,5\nbob;brazil;,5\n")) == [
        ("ann", "alien", 4.5),
        ("bob", "brazil", 0.5),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_invalid_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(options.pop("data", GOOD), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "movieId", "item": "userId"},
        {"user": 1, "item": 0},
        {"user": "1", "item": "0", "rating": 2, "time": "timestamp"},
    ],
)
def test_columns_can_be_given_by_name_or_position(options: dict[str, Any]) -> None:
    assert rows(text(GOOD, **options))[0] == (10, 1, 4.5, 978300760)


def test_separator_and_encoding_can_be_given() -> None:
    columns = text("1¦Amélie¦4\n".encode("latin-1"), separator="¦", encoding="latin-1")
    assert rows(columns) == [(1, "Amélie", 4.0)]


@pytest.mark.parametrize(
    ("ids", "expected"),
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
def test_ids_become_integers_if_that_loses_nothing(ids: list[str], expected: list[Any]) -> None:
    data = "".join(f"{raw}\t7\t{star}\n" for star, raw in enumerate(ids, 1))
    assert list(text(data, header=False).frame["user"]) == expected


@given(
    st.lists(
        st.tuples(*[st.text("ab1,\";\n '\u00e9", min_size=1, max_size=4)] * 2),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=50, derandomize=True)
def test_quoted_text_of_the_csv_module_is_read_back(pairs: list[tuple[str, str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["user", "item", "rating"])
    writer.writerows([f"u{user}", f"i{item}", 3] for user, item in pairs)
    columns = text(out.getvalue(), separator=",")
    assert rows(columns) == [
        (f"u{user}".strip(" "), f"i{item}".strip(" "), 3.0) for user, item in pairs
    ]


def test_lines_are_counted_through_quoted_line_breaks() -> None:
    data = 'user,item,rating,text\n1,1,2,"a\nb"\n1,2,3,c\n1,2,4,d\n'
    with pytest.raises(DataError, match=r"r\.csv:5: user 1 rated item 2 again .*r\.csv:4"):
        build(text(data), LoadOptions())


# -- quotes that a backslash escapes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("separator", "doubled"),  # quotes that are doubled, as well, take the slow way
    [(",", ""), (";", ""), ("|", ""), ("\t", ""), (",", 'a ""b"" c'), (";", 'a ""b"" c')],
)
def test_backslashes_escape_quotes(separator: str, doubled: str) -> None:
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


def test_a_backslash_before_a_closing_quote_alone_is_not_an_escape() -> None:
    data = 'user,item,rating\n"1","c:\\","5"\n"2","d:\\","4"\n'
    assert rows(text(data)) == [(1, "c:\\", 5.0), (2, "d:\\", 4.0)]
    assert rows(text(r"1;5\" disk;4" + "\n")) == [(1, '5" disk', 4.0)]


@given(
    st.lists(st.tuples(*[st.text('ab,";\n \\é', max_size=4)] * 2), min_size=1, max_size=8),
    st.sampled_from(",;|"),
)
@settings(max_examples=100, derandomize=True)
def test_escaped_text_of_the_csv_module_is_read_back(
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
def test_bad_lines_are_errors_or_skipped_with_their_reason(line: str) -> None:
    first, *others = GOOD.splitlines()[1:] * 2
    data = "\n".join([HEADER.strip(), first, line, *others]) + "\n"
    reason = re.escape(BAD[line].removesuffix(" (unexpected end of data)"))
    with pytest.raises(
        DataError, match=rf"r\.csv:3: {reason}.*, or leave such lines out with skip_"
    ):
        text(data)
    columns = text(data, skip_bad_lines=True)
    assert rows(columns) == EXPECTED * 2
    assert columns.description.endswith(f"; skipped 1 bad line (line 3: {BAD[line]})")
    assert [columns.locate(row) for row in range(4)] == [f"r.csv:{n}" for n in (2, 4, 5, 6)]


def test_a_file_of_bad_lines_only_is_an_error() -> None:
    for data in (HEADER + "1,10,abc,5\n2,20,good,6\n", HEADER + "1,10\n2,20\n"):
        with pytest.raises(DataError, match=r"r\.csv(:2: rating 'abc'|: holds a header and no)"):
            text(data, skip_bad_lines=True)


# -- titles, and names by meaning ------------------------------------------------------------------


def test_a_title_column_describes_items_if_each_item_has_one_title() -> None:
    data = "user,item,rating,Title,genres\n1,10,5,Alien,A|B\n2,10,4,Alien,A|B\n2,20,4,,C\n"
    columns = text(data)
    assert item_texts(columns, "title") == {10: "Alien"}
    assert item_texts(columns, "genres") == {10: "A|B", 20: "C"}
    reviews = data.replace("2,10,4,Alien", "2,10,4,I liked it")
    assert item_texts(text(reviews), "title") == {}


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
def test_roles_of_columns_follow_from_their_names(header: str) -> None:
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
def test_ambiguous_columns_are_an_error_with_the_first_lines(header: str) -> None:
    line = ",".join("7" for _ in header.split(","))
    with pytest.raises(DataError) as caught:
        text(f"{header}\n{line}\n{line}\n")
    message = str(caught.value)
    assert "which column is the" in message
    assert ("user=" in message) != ("rating=" in message)
    assert message.endswith(f"It begins:\n    {header}\n    {line}\n    {line}")


# -- encodings ------------------------------------------------------------------------------------

NAMES = ["a", "b", "Zoë", "Amélie", "Ångström", "naïve", "Tür", "piñata", "it’s", "€5"]
WORDS = st.lists(st.sampled_from(NAMES))


@given(WORDS)
@settings(max_examples=50, derandomize=True)
def test_western_text_is_decoded_as_utf8_or_cp1252(words: list[str]) -> None:
    text = " ".join(["x", *words])
    for encoding in ("cp1252", "utf-8", "utf-8-sig", "utf-16"):
        assert decode(text.encode(encoding), "r.csv")[0].decode() == text


def test_a_guessed_encoding_is_reported() -> None:
    columns = text("1,Amélie,4\n".encode("latin-1"))
    assert list(columns.frame["item"]) == ["Amélie"]
    assert "read as cp1252" in columns.description
    assert "cp1252" not in text("1,Amélie,4\n").description


@pytest.mark.parametrize(
    ("encoding", "title"), [("cp1251", "Сталкер"), ("gbk", "霸王别姬"), ("shift_jis", "七人の侍")]
)
def test_an_encoding_can_be_given(encoding: str, title: str) -> None:
    data = f"1,{title},4\n2,{title},5\n".encode(encoding)
    with pytest.raises(DataError, match=r"r\.csv:1: byte 0x.. is not UTF-8, .*encoding="):
        text(data)
    columns = text(data, encoding=encoding)
    assert list(columns.frame["item"]) == [title, title]


def test_invalid_utf8_is_located_or_skipped() -> None:
    lines = [f"{user},Zoë,Amélie {user},4".encode() for user in range(5)]
    lines[2] = lines[2].replace("é".encode(), b"\xc3")  # in the title's column, not in an id
    lines[3] = lines[3].replace("ë".encode(), b"\xab")
    data = b"\n".join([b"user,item,note,rating", *lines])
    with pytest.raises(DataError, match=r"r\.csv:4: byte 0xc3 is not UTF-8, .*skip_bad_lines=True"):
        text(data)
    columns = text(data, skip_bad_lines=True)
    assert list(columns.frame["user"]) == [0, 1, 2, 4]
    assert "(line 5: the item id holds damaged characters)" in columns.description


# -- RecBole --------------------------------------------------------------------------------------

INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
ITEMS = (
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "10\tToy Story\t1995\tAnimation Children's\n20\t\t1996\t\n"
)


def _write_inter(path: Path, text: str, items: str | None = None) -> Path:
    path.write_text(text, newline="")
    if items is not None:
        path.with_suffix(".item").write_text(items)
    return path


def test_recbole_ids_titles_and_genres_are_read(tmp_path: Path) -> None:
    path = _write_inter(
        tmp_path / "ml.inter", INTER + "2\t10\t3\t881250949\n1\t20\t4.5\t7\n", ITEMS
    )
    for source in (path, tmp_path):
        ratings = build(read(source, LoadOptions()), LoadOptions())
        assert ratings.user_ids.tolist() == [1, 2]
        assert ratings.values.tolist() == [3.0, 4.5]
        assert ratings.times is not None
        assert ratings.times.tolist() == [881250949, 7]
        assert ratings.titles is not None
        assert ratings.titles.tolist() == ["Toy Story", ""]
        assert ratings.genres is not None
        assert ratings.genres.tolist() == ["Animation|Children's", ""]


def test_recbole_tokens_keep_prefixes_and_quotes(tmp_path: Path) -> None:
    text = INTER + '1m_1\t"Great Performances" Cats (1998)\t5\t978300760\n1m_2\t8 ½ "\t3\t5\n'
    columns = read(
        _write_inter(tmp_path / "ml-1m.inter", text.replace("\n", "\r\n")), LoadOptions()
    )
    assert list(columns.frame["user"]) == ["1m_1", "1m_2"]
    assert list(columns.frame["item"]) == ['"Great Performances" Cats (1998)', '8 ½ "']


def test_a_recbole_token_with_blanks_is_not_a_list_of_genres(tmp_path: Path) -> None:
    items = ITEMS.replace("class:token_seq", "genre:token")
    path = _write_inter(tmp_path / "x.inter", INTER + "1\t10\t3\t5\n1\t20\t4\t5\n", items)
    genres = build(read(path, LoadOptions()), LoadOptions()).genres
    assert genres is not None
    assert genres.tolist() == ["Animation Children's", ""]


# -- blocks of a long text ------------------------------------------------------------------------

BLOCK_LINES = [["ann", "Alien", "5"], ["bob", 'two\n"lines"\n', "1"], ["cy", "a, b\n", "2"]] * 5
BLOCK_TEXT = io.StringIO(newline="")
csv.writer(BLOCK_TEXT, lineterminator="\n").writerows(BLOCK_LINES)


@pytest.mark.parametrize("size", [1, 40, 100, 10_000])
@pytest.mark.parametrize("stored", [3, 64])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_blocks_end_between_lines_even_with_quoted_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, stored: int, packed: bool
) -> None:
    data, path = BLOCK_TEXT.getvalue().encode(), tmp_path / "ratings.csv"
    path.write_bytes(gzip.compress(data) if packed else data)
    monkeypatch.setattr(files, "_BLOCK", stored)
    pieces = files.open_source(path).blocks(path.name)
    blocks, starts = zip(*iter_text_blocks(pieces, size), strict=True)
    assert b"".join(blocks) == data
    read = [csv.reader(io.StringIO(block.decode(), newline="")) for block in blocks]
    assert [line for lines in read for line in lines] == BLOCK_LINES
    ends = accumulate(block.count(b"\n") for block in blocks)
    assert list(starts) == [1, *(1 + end for end in ends)][:-1]
