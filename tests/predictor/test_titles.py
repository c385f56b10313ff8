"""Titles taken apart: spellings of one title become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.predictor.titles import parse, words_of


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
