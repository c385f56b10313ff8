"""Ratings as files: out and in again, and those of Letterboxd, IMDb, Goodreads and MovieLens."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest
from tests.browser.films import ITEM
from tests.browser.visit import Visit

LETTERBOXD = """Date,Name,Year,Letterboxd URI,Rating
2024-01-02,The Matrix,1999,https://boxd.it/2a1m,4.5
2024-01-03,"Good Bye, ""Miss"" Daisy",1991,https://boxd.it/29,0.5
2024-01-04,Amelie,2001,https://boxd.it/2b,2
2024-01-05,A Film Nobody Knows,2020,https://boxd.it/2c,5
2024-01-06,Casablanca,1942,https://boxd.it/2d,
"""
IMDB = """Const,Your Rating,Date Rated,Title,Original Title,URL,Title Type,IMDb Rating,Mins,Year
tt0133093,10,2024-01-02,The Matrix,The Matrix,https://imdb/tt0133093,Movie,8.7,136,1999
tt0078748,1,2024-01-03,Alien,Alien,https://imdb/tt0078748,Movie,8.5,117,1979
tt0034583,4,2024-01-04,Casablanca,Casablanca,https://imdb/tt0034583,Movie,8.5,102,1942
tt9999999,7,2024-01-05,Alien,Alien,https://imdb/tt9999999,Movie,5.0,90,2015
"""


def _exported(visit: Visit, folder: Path) -> str:
    with visit.page.expect_download() as download:
        visit.page.click("#export")
    path = folder / "out.csv"
    download.value.save_as(path)
    assert download.value.suggested_filename == "my-ratings.csv"
    return path.read_bytes().decode()


def test_export_and_import_are_a_round_trip(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    page.click("#clear")
    for text, rating in {"Daisy": 2, "Amelie": 4, "Matrix": 5}.items():
        visit.rate(text, rating)
    before, listed = visit.mine(), visit.scores()
    text = _exported(visit, tmp_path)
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    titles = ["Matrix, The (1999)", "Amélie (2001)", 'Good Bye, "Miss" Daisy (1991)']
    assert [line["title"] for line in lines] == titles
    assert [int(line["item"]) for line in lines] == [ITEM[title] for title in titles]
    assert [line["rating"] for line in lines] == ["5", "4", "2"]
    assert {line["scale"] for line in lines} == {"1-5"}

    page.click("#clear")
    assert visit.mine() == {}
    assert "3 ratings imported." in visit.upload("my-ratings.csv", text)
    assert visit.mine() == before
    assert visit.scores() == listed
    assert _exported(visit, tmp_path) == text


def test_letterboxd_is_mapped_and_tells_what_it_missed(visit: Visit) -> None:
    told = visit.upload("ratings.csv", LETTERBOXD)
    assert "3 ratings imported from Letterboxd." in told
    assert "1 film not found in this catalogue" in told
    assert "1 line without a usable rating" in told
    # half stars from 0.5 to 5, spread over 1 to 5: 4.5 is 4.56, 0.5 is 1, 2 is 2.33
    assert visit.mine() == {
        "The Matrix 1999": "5",
        'Good Bye, "Miss" Daisy 1991': "1",
        "Amélie 2001": "2",
    }
    visit.page.locator("#report summary").first.click()
    assert "A Film Nobody Knows (2020)" in visit.page.locator("#report").inner_text()
    visit.picture("import")


def test_imdb_is_mapped_and_a_film_of_another_year_is_no_match(visit: Visit) -> None:
    told = visit.upload("ratings.csv", "\ufeff" + IMDB.replace("\n", "\r\n"))
    assert "3 ratings imported from IMDb." in told
    assert "1 film not found in this catalogue" in told
    # 1 to 10, spread over 1 to 5: 4 is 2.33
    assert visit.mine() == {"The Matrix 1999": "5", "Alien 1979": "1", "Casablanca 1942": "2"}


GOODREADS = """Book Id,Title,Author,My Rating,Average Rating,Original Publication Year,ItemMetadata
1,"Alien (Space, #1)",A. Author,4,4.1,1979,read
2,Casablanca,A. Author,0,4.4,1942,to-read
3,Metropolis,A. Author,2,3.9,1926,read
"""
MOVIELENS = """movie_id,imdb_id,tmdb_id,rating,average_rating,title
{alien},78748,348,4.5,4.0,Alien (1979)
999999,34583,289,1.0,4.2,Casablanca (1942)
"""


def test_goodreads_leaves_out_what_was_not_rated(visit: Visit) -> None:
    told = visit.upload("goodreads_library_export.csv", GOODREADS)
    assert "2 ratings imported from Goodreads." in told
    assert "without a usable rating" not in told
    assert visit.mine() == {"Alien 1979": "4", "Metropolis 1926": "2"}


def test_movielens_is_found_by_id_or_title(visit: Visit) -> None:
    told = visit.upload("movielens-ratings.csv", MOVIELENS.format(alien=ITEM["Alien (1979)"]))
    assert "2 ratings imported from MovieLens." in told
    # half stars from 0.5 to 5, spread over 1 to 5: 4.5 is 4.56, 1 is 1.44
    assert visit.mine() == {"Alien 1979": "5", "Casablanca 1942": "1"}
    ids = f"userId,movieId,rating,timestamp\n1,{ITEM['Brazil (1985)']},3.0,964982703\n"
    assert "1 rating imported from MovieLens." in visit.upload("ratings.csv", ids)
    assert visit.mine()["Brazil 1985"] == "3"


def test_what_was_rated_stays_and_what_comes_in_counts(visit: Visit) -> None:
    visit.page.click("#clear")
    visit.rate("Alien", 5)
    visit.rate("Brazil", 2)
    visit.upload("mine.csv", "Title;Rating;Year\nAlien;3;1979\n")
    assert visit.mine() == {"Alien 1979": "3", "Brazil 1985": "2"}
    visit.page.click("#undo")
    assert visit.mine() == {"Brazil 1985": "2", "Alien 1979": "5"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PK\x03\x04rest", "is a zip archive: unpack it"),
        (b"Date,Name,Year,Letterboxd URI\n2024,Alien,1979,x\n", "No ratings found in this file"),
        (b"", "No ratings found in this file"),
        (b"\x89PNG\r\n\x1a\n", "No ratings found in this file"),
        (b"title,rating\nAlien (1979),lots\n", "1 line without a usable rating"),
        (b"title,rating\nAlien (1979),6\n", "1 line without a usable rating"),
        (b"title,rating\nAlien (1979)\n", "1 line without a usable rating"),
        ("title,rating\nAmélie (2001),4\n".encode("cp1252"), "1 rating imported."),
        (b"item,rating\n22,4\n99999,3\n", "1 film not found in this catalogue"),
    ],
)
def test_files_of_every_kind_get_an_answer(visit: Visit, content: bytes, told: str) -> None:
    before = visit.mine()
    assert told in visit.upload("file.csv", content)
    assert visit.mine() == before or "imported" in visit.page.locator("#report").inner_text()


def test_an_id_of_another_catalogue_is_not_believed(visit: Visit) -> None:
    other = ITEM["Casablanca (1942)"]
    told = visit.upload("mine.csv", f"item,title,rating,scale\n{other},Alien (1979),10,1-10\n")
    assert "1 rating imported." in told
    assert visit.mine() == {"Alien 1979": "5"}


def test_the_parser_and_writer_agree_with_python(visit: Visit) -> None:
    rng = random.Random(4)
    signs = [*'ab",;\t \r\n', "\r\n", "é"]
    tables = [
        [["".join(rng.choices(signs, k=rng.randrange(5))) for _ in range(3)] for _ in range(4)]
        for _ in range(300)
    ]
    # A first line of plain words: the separator is recognised by it.
    tables = [[["one", "two", "three"], *table] for table in tables]
    texts = []
    for at, table in enumerate(tables):
        out = io.StringIO(newline="")
        # Python leaves a lone return bare if lines end otherwise: quote all fields then.
        style = {"lineterminator": "\n", "quoting": csv.QUOTE_ALL} if at % 2 else {}
        csv.writer(out, delimiter=",;\t"[at % 3], **style).writerows(table)  # type: ignore[arg-type]
        texts.append(out.getvalue())
    script = """async (given) => {
        const { parse, write } = await import("/page/import_export.js");
        return [given.texts.map(parse), given.tables.map(write)];
    }"""
    parsed, written = visit.page.evaluate(script, {"texts": texts, "tables": tables})
    assert parsed == tables
    assert [list(csv.reader(io.StringIO(text, newline=""))) for text in written] == tables
