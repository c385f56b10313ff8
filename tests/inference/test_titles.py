"""Titles taken apart: spellings of one title become one, and films from elsewhere the right one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.inference.titles import TitleMatch, parse, words_of


@pytest.mark.parametrize(
    "spellings",
    [
        ["The Matrix", "Matrix, The", "MATRIX", "the matrix", "  Matrix,  The "],
        ["Amélie", "AMELIE", "Ame\u0301lie"],
        ["La dolce vita", "Dolce Vita, La"],
        ["Spider-Man", "spider man", "Spider‑Man"],
        ["Schindler's List", "Schindler’s List", "schindlers list"],
        ["Rocky II", "Rocky 2"],
        ["Star Trek VI: The Undiscovered Country", "star trek 6 the undiscovered country"],
        ["E.T. the Extra-Terrestrial", "ET the extra terrestrial"],
        ["Thelma & Louise", "Thelma and Louise"],
        ["Sjöström", "sjostrom"],
        ["Smørrebrød", "SMORREBROD"],
        ["Straße", "strasse"],
        ["An Affair to Remember", "Affair to Remember, An"],
    ],
)
def test_spellings_of_one_title_are_alike(spellings: list[str]) -> None:
    assert len({words_of(text) for text in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Die Hard", "Hard"),
        ("Rocky II", "Rocky III"),
        ("Malcolm X", "Malcolm"),
        ("Das Boot", "The Boot"),
        ("I, Robot", "Robot"),
        ("V for Vendetta", "5 for Vendetta"),
        ("Alien", "Aliens"),
    ],
)
def test_other_titles_stay_others(one: str, other: str) -> None:
    assert words_of(one) != words_of(other)


@pytest.mark.parametrize(
    ("text", "keys", "year"),
    [
        ("Matrix, The (1999)", ["matrix"], 1999),
        ("Seven (a.k.a. Se7en) (1995)", ["seven", "se7en"], 1995),
        (
            "City of Lost Children, The (Cité des enfants perdus, La) (1995)",
            ["cityoflostchildren", "lacitedesenfantsperdus"],
            1995,
        ),
        ("2001: A Space Odyssey", ["2001aspaceodyssey"], None),
        ("1984 (1984)", ["1984"], 1984),
        ("The Office (2005-2013)", ["office"], 2005),
        ("The", ["the"], None),
        ("(500) Days of Summer (2009)", ["daysofsummer", "500"], 2009),
        ("千と千尋の神隠し (2001)", ["千と千尋の神隠し"], 2001),
        ("!!! (2000)", [], 2000),
        ("", [], None),
    ],
)
def test_names_and_years(text: str, keys: list[str], year: int | None) -> None:
    title = parse(text)
    assert [name.key for name in title.names] == keys
    assert title.year == year


def test_parts_stand_around_colons_and_dashes() -> None:
    (name,) = parse("Star Wars: Episode IV - A New Hope (1977)").names
    assert name.parts == ("starwars", "episode4", "newhope")
    assert parse("Spider-Man (2002)").names[0].parts == ()


@given(st.text(max_size=60))
def test_any_text_can_be_read_and_case_and_spaces_do_not_matter(text: str) -> None:
    title = parse(text)
    for name in title.names:
        assert name.words
        assert all(word.isalnum() for word in name.words)
        assert words_of(" ".join(name.words)) in (name.words, name.words[1:])
    assert words_of(f"  {text} ") == words_of(text)


# -- films from elsewhere: the right one or none --------------------------------------------------

TITLES = [
    "Matrix, The (1999)",
    "Seven (a.k.a. Se7en) (1995)",
    "Star Wars: Episode IV - A New Hope (1977)",
    "Star Wars: Episode V - The Empire Strikes Back (1980)",
    "Star Wars: Episode V - The Empire Strikes Back: Bonus Material (1981)",
    "Fabulous Destiny of Amélie Poulain, Le (Amelie) (2001)",
    "Hamlet (1948)",
    "Hamlet (1996)",
    "Hamlet (1990)",
    "Alien (1979)",
    "Aliens (1986)",
    "Cape Fear: Bonus Material (1991)",
    "Professional, The (a.k.a. Leon: The Professional) (1994)",
    "Dr. Strangelove (1963)",
    "Die Hard 2 (1990)",
    "Undated Film",
    "Twin (2000)",
    "Twin (2001)",
    "",
]
MATCH = TitleMatch([parse(title) for title in TITLES])


def matched(title: str, year: int | None) -> str | None:
    item = MATCH.match(title, year)
    return None if item is None else TITLES[item]


@pytest.mark.parametrize(
    ("title", "year", "expected"),
    [
        ("The Matrix", 1999, "Matrix, The (1999)"),
        ("Matrix, The (1999)", None, "Matrix, The (1999)"),
        ("the matrix", None, "Matrix, The (1999)"),
        ("Se7en", 1995, "Seven (a.k.a. Se7en) (1995)"),
        ("Seven", 1996, "Seven (a.k.a. Se7en) (1995)"),
        ("Star Wars", 1977, "Star Wars: Episode IV - A New Hope (1977)"),
        ("The Empire Strikes Back", 1980, "Star Wars: Episode V - The Empire Strikes Back (1980)"),
        ("Amélie", 2001, "Fabulous Destiny of Amélie Poulain, Le (Amelie) (2001)"),
        (
            "Léon: The Professional",
            1994,
            "Professional, The (a.k.a. Leon: The Professional) (1994)",
        ),
        ("Hamlet", 1996, "Hamlet (1996)"),
        ("Hamlet", 1991, "Hamlet (1990)"),
        (
            "Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb",
            1963,
            None,
        ),
        ("Dr. Strangelove: How I Learned", 1963, "Dr. Strangelove (1963)"),
        ("Dr. Strangelove", 1964, "Dr. Strangelove (1963)"),
        ("DIE HARD II", 1990, "Die Hard 2 (1990)"),
        ("Undated Film", 1970, "Undated Film"),
        ("Twin", 2000, "Twin (2000)"),
        ("Twin", 2001, "Twin (2001)"),
    ],
)
def test_the_film_that_is_meant(title: str, year: int | None, expected: str | None) -> None:
    assert matched(title, year) == expected


@pytest.mark.parametrize(
    ("title", "year"),
    [
        ("Hamlet", None),  # three of them
        ("Hamlet", 2000),
        ("Alien", 1986),
        ("Alein", 1979),  # may be another film
        ("Die Hard", 1988),
        ("Die Hard", 1990),
        ("The Matrix", 2003),
        ("Star Wars", 1978),
        ("Star Wars", None),
        ("Cape Fear", 1991),  # only a film about it is here
        ("Star Wars: The Clone Wars", 1977),
        ("", 1999),
        ("!!!", None),
    ],
)
def test_no_film_rather_than_a_wrong_one(title: str, year: int | None) -> None:
    assert matched(title, year) is None


@pytest.mark.parametrize("title", [t for t in TITLES if t])
def test_every_title_is_itself(title: str) -> None:
    assert matched(title, None) == title
