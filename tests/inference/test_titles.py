"""Titles: normalization, matching with titles of other data sets, and search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.inference.titles import TitleMatch, TitleSearch, parse, split_words


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
    assert len({split_words(text) for text in spellings}) == 1


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
    assert split_words(one) != split_words(other)


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
        assert split_words(" ".join(name.words)) in (name.words, name.words[1:])
    assert split_words(f"  {text} ") == split_words(text)


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


# -- search ----------------------------------------------------------------------------------------

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
FILM_TITLES = list(FILMS)
SEARCH = TitleSearch(FILM_TITLES, np.array(list(FILMS.values())))


def search(text: str, limit: int = 5) -> list[str]:
    items, costs = SEARCH.search(text, limit)
    assert len(items) == len(costs) <= limit
    assert (np.diff(costs.round(6)) >= 0).all()
    return [FILM_TITLES[at] for at in items]


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
    assert search(text)[0] == title


def test_equally_near_titles_come_by_ratings() -> None:
    assert search("star wars", 3) == [
        "Star Wars: Episode IV - A New Hope (1977)",
        "Star Wars: Episode V - The Empire Strikes Back (1980)",
        "Star Wars: The Clone Wars (2008)",
    ]
    assert search("hamlet") == ["Hamlet (1996)", "Hamlet (1948)"]


@pytest.mark.parametrize("text", ["", "   ", "!!!", "zzzzqqq", "xkcd grommit"])
def test_nothing_is_found_where_nothing_is_near(text: str) -> None:
    assert search(text) == []


def test_a_number_is_never_a_typing_error() -> None:
    assert "Godfather: Part III, The (1990)" not in search("godfather part 2")[:1]
    assert search("2002") == []


def test_an_empty_index_finds_nothing() -> None:
    for titles in ([], ["", "!!"]):
        items, costs = TitleSearch(titles, np.zeros(len(titles), np.int64)).search("a", 5)
        assert len(items) == len(costs) == 0


@pytest.mark.parametrize("title", [title for title in FILM_TITLES if title])
def test_every_title_finds_itself_first(title: str) -> None:
    assert search(title)[0] == title
    assert search(title.upper())[0] == title


@given(
    st.sampled_from([t for t in FILM_TITLES if t]), st.integers(0, 10**6), st.sampled_from("abz ")
)
def test_a_title_with_one_wrong_letter_is_found(title: str, place: int, letter: str) -> None:
    name = title.rsplit(" (", 1)[0]
    long = [at for at, c in enumerate(name) if c.isalpha() and _word_at(name, at) >= 6]
    if not long:
        return
    at = long[place % len(long)]
    typed = name[:at] + letter + name[at + 1 :] if letter != " " else name[:at] + name[at + 1 :]
    assert title in search(typed, 10)


def _word_at(text: str, at: int) -> int:
    """The length of the word around a place."""
    begin = max(text.rfind(c, 0, at) for c in " -(:.")
    ends = [text.find(c, at) for c in " -):,."]
    end = min([e for e in ends if e >= 0], default=len(text))
    return end - begin - 1


@given(st.text(max_size=300), st.integers(1, 5))
def test_any_text_can_be_asked_for(text: str, limit: int) -> None:
    assert len(set(search(text, limit))) <= limit
