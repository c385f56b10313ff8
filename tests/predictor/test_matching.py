"""Films from elsewhere: the right one or none."""

from __future__ import annotations

import pytest

from cfnade.predictor.matching import TitleMatch
from cfnade.predictor.titles import parse

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
    at = MATCH.match(title, year)
    return None if at is None else TITLES[at]


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
