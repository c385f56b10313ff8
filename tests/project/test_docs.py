"""The documentation: examples run, links and names exist, and the language is plain."""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer

import cfnade
from cfnade.cli import app
from cfnade.data.synthetic import synthetic_interactions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
NEEDS_ENGINES = "how-to/scale.md"
"""Its block needs Ray and Spark; tests/distributed/test_batch_engines.py makes the same calls."""
WITH_PYTHON = [
    str(page.relative_to(DOCS))
    for page in sorted(DOCS.rglob("*.md"))
    if "```python" in page.read_text(encoding="utf-8") and page != DOCS / NEEDS_ENGINES
]
PRIVATE_WORDS = re.compile(
    r"\b(somebody|nobody|of whom|gone on with|goes on with|is told|are told|is said|by heart|"
    r"of late|made[- ]up|people who come back|whosoever|what is near|such a person|"
    r"(?:it|model|page|file) says|stands beside)\b",
    re.IGNORECASE,
)
"""Phrases of earlier versions. Write what scikit-learn's documentation would write."""


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def run_cell(source: str, variables: dict[str, Any]) -> str:
    """Return what a cell prints, and the value of its last line, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), variables)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), variables)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


def test_the_tutorial_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers may differ in their last digits, so they are left out of the comparison."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((DOCS / "get-started" / "tutorial.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 8
    variables: dict[str, Any] = {}
    for cell in cells:
        printed = run_cell("".join(cell["source"]), variables)
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        assert without_numbers(printed) == without_numbers(shown)
    assert variables["scores"].rmse < 0.95 * float(variables["parts"].test.values.std())


def without_numbers(text: str) -> list[str]:
    """Return lines without numbers, bars and the blanks that they move."""
    return [re.sub(r"[-\d.%█┌┐└┘─┬┴┼╞╪╡═ ]+", " ", line).strip() for line in text.splitlines()]


TITLES = ("Alien (1979)", "Aliens (1986)", "Blade Runner (1982)", "Notting Hill (1999)")


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the pages name, and a model trained on one of them."""
    folder = tmp_path_factory.mktemp("docs")
    ratings = cfnade.synthetic(40, 25, 700, seed=5).ratings
    titles = [*TITLES, *(f"Film {number} (2000)" for number in range(len(TITLES), 25))]
    frame = pl.DataFrame(
        {
            "user": ratings.users + 1,
            "item": np.where(ratings.items == 20, 480, ratings.items + 1),
            "rating": ratings.values.astype(int),
            "title": [titles[item] for item in ratings.items],
        }
    )
    frame.write_csv(folder / "ratings.csv")
    clicks = synthetic_interactions(users=60, items=20, per_user=8, seed=1).interactions
    items = [f"p{item}" for item in clicks.items]
    pl.DataFrame({"user": clicks.users + 1, "item": items}).write_csv(folder / "clicks.csv")
    books = frame.unique("item", maintain_order=True)
    books.select(pl.col("item"), "title").write_csv(folder / "books.csv")
    model = cfnade.CFNADE(side="user", hidden=(8,), epochs=2, learn_interactions=True)
    model.fit(frame).save(folder / "model")
    return folder


def test_python_blocks_are_found() -> None:
    assert len(WITH_PYTHON) >= 6


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_blocks_run(page: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a page run one after another, with `frame` and `ratings` as tables of a user."""
    if page == "how-to/integrate.md":
        pytest.importorskip("sklearn")
    monkeypatch.chdir(data_folder)
    text = (DOCS / page).read_text(encoding="utf-8")
    if '"ml-100k"' in text and "CFNADE_DATA" not in os.environ:
        pytest.skip("CFNADE_DATA names no folder with ml-100k")
    columns = {"user": "customer", "item": "book", "rating": "stars"}
    variables: dict[str, Any] = {
        "cfnade": cfnade,
        "frame": pl.read_csv("ratings.csv").rename(columns).drop("title"),
        "ratings": cfnade.load("ratings.csv"),
    }
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        with redirect_stdout(io.StringIO()):
            exec(compile(block, page, "exec"), variables)


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of cfnade in the code blocks of a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:    |\$ )(?:.*\| )?(cfnade [a-z].*)$", text, re.MULTILINE):
        yield re.split(r" (?:#|&&|\|) ", line)[0]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_are_valid(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        if words[0] == "compare":  # registered when it runs, as it imports the baselines
            continue
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, [word for word in words if word != "…"])


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if DOCS in page.parents:
            assert DOCS in file.parents, f"{target}: the site has no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


def links(page: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs build them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", re.sub(r"`|\[|\]\([^)]*\)", "", text)) for text in headings]
    return {re.sub(r"\s+", "-", text.strip().lower()) for text in plain}


def test_the_navigation_names_every_page_once() -> None:
    listed = re.findall(r"((?:[\w-]+/)*[\w-]+\.(?:md|ipynb))$", SITE, re.MULTILINE)
    pages = [
        str(path.relative_to(DOCS)) for path in DOCS.rglob("*") if path.suffix in (".md", ".ipynb")
    ]
    assert sorted(listed) == sorted(pages)


def test_the_reference_documents_all_public_names() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    documented = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    for name in documented:
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute).__doc__, name
    public = {name for name in cfnade.__all__ if not name.startswith("_")}
    assert {name.rpartition(".")[2] for name in documented} >= public


def test_source_files_cite_pages_that_exist() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for page in re.findall(r"docs/[\w/-]+\.(?:md|ipynb)", path.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{path}: {page}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_pages_use_no_private_vocabulary(page: Path) -> None:
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    found = [f"{number}: {line}" for number, line in lines if PRIVATE_WORDS.search(line)]
    assert found == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
