"""MovieLens's three layouts, from folders and archives, with titles and genres."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.raw_tables import read, write_files, zip_bytes

from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.validate import build
from cfnade.exceptions import DataError

RATINGS = [(1, 10, 5, 978300760), (1, 20, 3, 978300761), (2, 10, 4, 978300762)]
FLAGS_10 = "0|0|0|0|0|1|0|0|1|0|0|0|0|0|0|0|0|0|0"
FLAGS_20 = "1" + "|0" * 18
GENRES = (
    "unknown Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy "
    "Film-Noir Horror Musical Mystery Romance Sci-Fi Thriller War Western"
)


def _joined(separator: str, header: str = "") -> bytes:
    return (header + "".join(separator.join(map(str, row)) + "\n" for row in RATINGS)).encode()


LAYOUTS: dict[str, dict[str, bytes]] = {
    "100k": {
        "ml/u.data": _joined("\t"),
        "ml/u.item": (
            f'10|Amélie, "the" (2001)|01-Jan-2001||http://x|{FLAGS_10}\n20|B|||http://y|{FLAGS_20}\n'
        ).encode("latin-1"),
        "ml/u1.base": _joined("\t"),
        "ml/README": b"about",
    },
    "1m": {
        "ml/ratings.dat": _joined("::"),
        "ml/movies.dat": (
            '10::Amélie, "the" (2001)::Comedy|Drama\n20::B::(no genres listed)\n'.encode("latin-1")
        ),
        "ml/users.dat": b"1::F::1::10::48067\n",
    },
    "10m": {
        "ml/ratings.dat": _joined("::"),
        "ml/movies.dat": (
            '10::Amélie, "the" (2001)::Comedy|Drama\r\n20::B::(no genres listed)\r\n'.encode()
        ),
        "ml/tags.dat": b"1::10::funny::1\n",
    },
    "latest": {
        "ml/ratings.csv": _joined(",", "userId,movieId,rating,timestamp\n").replace(b"\n", b"\r\n"),
        "ml/movies.csv": (
            "movieId,title,genres\r\n"
            '10,"Amélie, ""the"" (2001)",Comedy|Drama\r\n20,B,(no genres listed)\r\n'
        ).encode(),
        "ml/tags.csv": b"userId,movieId,tag,timestamp\r\n1,10,fun,1\r\n",
        "ml/links.csv": b"movieId,imdbId,tmdbId\r\n10,1,1\r\n",
    },
}


def _every_way(layout: str, root: Path) -> Iterator[Dataset]:
    members = LAYOUTS[layout]
    (root / "f").mkdir()
    write_files(root / "f", members)
    main = next(name for name in members if name.rsplit("/")[-1] in ("u.data", *MAIN))
    for path in (
        write_files(root, {"z.zip": zip_bytes(members)}),
        root / "f",
        root / "f" / "ml",
        root / "f" / main,
    ):
        yield build(read(path, LoadOptions()), LoadOptions())


MAIN = ("ratings.dat", "ratings.csv")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_ratings_titles_and_genres(layout: str, tmp_path: Path) -> None:
    count = 0
    for ratings in _every_way(layout, tmp_path):
        count += 1
        assert ratings.times is not None
        assert ratings.titles is not None
        assert ratings.genres is not None
        users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
        found = zip(users, items, ratings.values, ratings.times, strict=True)
        assert [tuple(map(int, row)) for row in found] == RATINGS
        assert ratings.titles.tolist() == ['Amélie, "the" (2001)', "B"]
        assert ratings.genres.tolist() == ["Comedy|Drama", ""]
    assert count == 4


def test_genre_names_come_from_u_genre(tmp_path: Path) -> None:
    names = GENRES.replace("Comedy", "Komödie").split()
    listed = "".join(f"{name}|{i}\n" for i, name in enumerate(names)).encode("latin-1")
    write_files(tmp_path, {**LAYOUTS["100k"], "ml/u.genre": listed + b"\n"})
    ratings = build(read(tmp_path, LoadOptions()), LoadOptions())
    assert ratings.genres is not None
    assert ratings.genres[0] == "Komödie|Drama"


def test_the_data_set_is_named_by_its_size(tmp_path: Path) -> None:
    write_files(tmp_path, LAYOUTS["1m"])
    assert read(tmp_path, LoadOptions()).description == "MovieLens files (ratings.dat, movies.dat)"
    lines = "".join(f"{i}\t1\t{1 + i % 5}\t7\n" for i in range(100_000))
    (tmp_path / "u.data").write_text(lines)
    assert read(tmp_path / "u.data", LoadOptions()).description == "MovieLens 100K (u.data)"


@pytest.mark.parametrize(
    ("layout", "name", "data", "message"),
    [
        ("1m", "ml/movies.dat", b"10::A\n", r"movies\.dat:1: .* 2 fields, not 3 .*::.*;"),
        ("100k", "ml/u.item", b"10|A|x\n", r"u\.item:1: .* 3 fields, not 24 .*;"),
        ("latest", "ml/movies.csv", b"a,b,c\n1,2\n", r"movies\.csv:2: .* 2 fields, not 3"),
        (
            "latest",
            "ml/movies.csv",
            b'a,b,c\n1,"2"x,3\n',
            r"movies\.csv:2: .*; correct it, or take",
        ),
        ("1m", "ml/ratings.dat", b"1::2::x::5\n", r"ml/ratings\.dat:1: rating 'x' is not a number"),
        ("1m", "ml/ratings.dat", b"1::2::3\n", r"time=3 is no column; there are 3 columns"),
    ],
)
def test_invalid_files_are_located(
    layout: str, name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    write_files(tmp_path, {**LAYOUTS[layout], name: data})
    with pytest.raises(DataError, match=message):
        read(tmp_path, LoadOptions())


def test_two_data_sets_in_one_folder_are_an_error(tmp_path: Path) -> None:
    write_files(tmp_path, {**LAYOUTS["100k"], **LAYOUTS["1m"]})
    with pytest.raises(DataError, match=r"several files .*: ml/ratings\.dat, ml/u\.data; give the"):
        read(tmp_path, LoadOptions())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ratings.dat", "1\t10\t5\n2\t10\t3\n"),
        ("ratings.dat", "user,item,rating\n1,10,5\n2,10,3\n"),
        ("u.data", "1,10,5\n2,10,3\n"),
    ],
)
def test_other_files_of_the_same_name_are_read_as_text(
    name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    table = read(tmp_path / name, LoadOptions())
    assert table.frame.rows() == [(1, 10, 5.0), (2, 10, 3.0)]
    assert "MovieLens" not in table.description
