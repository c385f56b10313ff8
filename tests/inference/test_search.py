"""Searching titles: what people type finds what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.inference.titles import TitleSearch

FILMS = {
    "Matrix, The (1999)": 2590,
    "Matrix Reloaded, The (2003)": 800,
    "Animatrix, The (2003)": 50,
    "Star Wars: Episode IV - A New Hope (1977)": 2991,
    "Star Wars: Episode V - The Empire Strikes Back (1980)": 2990,
    "Star Wars: The Clone Wars (2008)": 70,
    "Star Trek II: The Wrath of Khan (1982)": 900,
    "Fabulous Destiny of Amélie Poulain, Le (Amelie) (2001)": 700,
    "Seven (a.k.a. Se7en) (1995)": 1100,
    "Seven Samurai (The Magnificent Seven) (Shichinin no samurai) (1954)": 600,
    "Alien (1979)": 2000,
    "Aliens (1986)": 1800,
    "Die Hard (1988)": 1600,
    "Spider-Man (2002)": 1500,
    "E.T. the Extra-Terrestrial (1982)": 2200,
    "Eternity and a Day (1998)": 20,
    "Godfather, The (1972)": 2223,
    "Godfather: Part II, The (1974)": 1692,
    "Godfather: Part III, The (1990)": 600,
    "2001: A Space Odyssey (1968)": 1700,
    "Forrest Gump (1994)": 2100,
    "Emerald Forest, The (1985)": 90,
    "Hamlet (1948)": 100,
    "Hamlet (1996)": 300,
    "Up (2009)": 1000,
    "Life Is Beautiful (La Vita è bella) (1997)": 1150,
    "Crouching Tiger, Hidden Dragon (Wo hu cang long) (2000)": 950,
    "": 5,
}
TITLES = list(FILMS)
SEARCH = TitleSearch(TITLES, np.array(list(FILMS.values())))


def found(text: str, limit: int = 5) -> list[str]:
    items, costs = SEARCH.search(text, limit)
    assert len(items) == len(costs) <= limit
    assert (np.diff(costs.round(6)) >= 0).all()
    return [TITLES[at] for at in items]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("matrix", "Matrix, The (1999)"),
        ("the matrix", "Matrix, The (1999)"),
        ("MATRIX, THE", "Matrix, The (1999)"),
        ("matrx", "Matrix, The (1999)"),
        ("mtarix", "Matrix, The (1999)"),
        ("matri", "Matrix, The (1999)"),
        ("the matrix reloded", "Matrix Reloaded, The (2003)"),
        ("animatrx", "Animatrix, The (2003)"),
        ("Amelie", "Fabulous Destiny of Amélie Poulain, Le (Amelie) (2001)"),
        ("amélie poulain", "Fabulous Destiny of Amélie Poulain, Le (Amelie) (2001)"),
        ("star wrs", "Star Wars: Episode IV - A New Hope (1977)"),
        ("starwars", "Star Wars: Episode IV - A New Hope (1977)"),
        ("star wars", "Star Wars: Episode IV - A New Hope (1977)"),
        ("wars star", "Star Wars: Episode IV - A New Hope (1977)"),
        ("empire strikes back", "Star Wars: Episode V - The Empire Strikes Back (1980)"),
        ("star wars 5", "Star Wars: Episode V - The Empire Strikes Back (1980)"),
        ("star trek 2", "Star Trek II: The Wrath of Khan (1982)"),
        ("se7en", "Seven (a.k.a. Se7en) (1995)"),
        ("seven", "Seven (a.k.a. Se7en) (1995)"),
        ("shichinin", "Seven Samurai (The Magnificent Seven) (Shichinin no samurai) (1954)"),
        ("alein", "Alien (1979)"),
        ("aliens", "Aliens (1986)"),
        ("die hard", "Die Hard (1988)"),
        ("spiderman", "Spider-Man (2002)"),
        ("et", "E.T. the Extra-Terrestrial (1982)"),
        ("e.t.", "E.T. the Extra-Terrestrial (1982)"),
        ("godfther 2", "Godfather: Part II, The (1974)"),
        ("godfather", "Godfather, The (1972)"),
        ("2001", "2001: A Space Odyssey (1968)"),
        ("forest gump", "Forrest Gump (1994)"),
        ("crouch tiger", "Crouching Tiger, Hidden Dragon (Wo hu cang long) (2000)"),
        ("hamlet", "Hamlet (1996)"),
        ("hamlet 1948", "Hamlet (1948)"),
        ("Hamlet (1948)", "Hamlet (1948)"),
        ("up", "Up (2009)"),
        ("la vita e bella", "Life Is Beautiful (La Vita è bella) (1997)"),
        ("crouching tigre", "Crouching Tiger, Hidden Dragon (Wo hu cang long) (2000)"),
    ],
)
def test_what_people_type_finds_what_they_mean(text: str, title: str) -> None:
    assert found(text)[0] == title


def test_equally_near_titles_come_by_ratings() -> None:
    assert found("star wars", 3) == [
        "Star Wars: Episode IV - A New Hope (1977)",
        "Star Wars: Episode V - The Empire Strikes Back (1980)",
        "Star Wars: The Clone Wars (2008)",
    ]
    assert found("hamlet") == ["Hamlet (1996)", "Hamlet (1948)"]


@pytest.mark.parametrize("text", ["", "   ", "!!!", "zzzzqqq", "xkcd grommit"])
def test_nothing_is_found_where_nothing_is_near(text: str) -> None:
    assert found(text) == []


def test_a_number_is_never_a_typing_error() -> None:
    assert "Godfather: Part III, The (1990)" not in found("godfather part 2")[:1]
    assert found("2002") == []


def test_an_empty_index_finds_nothing() -> None:
    for titles in ([], ["", "!!"]):
        items, costs = TitleSearch(titles, np.zeros(len(titles), np.int64)).search("a", 5)
        assert len(items) == len(costs) == 0


@pytest.mark.parametrize("title", [title for title in TITLES if title])
def test_every_title_finds_itself_first(title: str) -> None:
    assert found(title)[0] == title
    assert found(title.upper())[0] == title


@given(st.sampled_from([t for t in TITLES if t]), st.integers(0, 10**6), st.sampled_from("abz "))
def test_a_title_with_one_wrong_letter_is_found(title: str, place: int, letter: str) -> None:
    name = title.rsplit(" (", 1)[0]
    long = [at for at, c in enumerate(name) if c.isalpha() and _word_at(name, at) >= 6]
    if not long:
        return
    at = long[place % len(long)]
    typed = name[:at] + letter + name[at + 1 :] if letter != " " else name[:at] + name[at + 1 :]
    assert title in found(typed, 10)


def _word_at(text: str, at: int) -> int:
    """The length of the word around a place."""
    begin = max(text.rfind(c, 0, at) for c in " -(:.")
    ends = [text.find(c, at) for c in " -):,."]
    end = min([e for e in ends if e >= 0], default=len(text))
    return end - begin - 1


@given(st.text(max_size=300), st.integers(1, 5))
def test_any_text_can_be_asked_for(text: str, limit: int) -> None:
    assert len(set(found(text, limit))) <= limit
