"""The documentation: examples run, links and names exist, and the language is plain."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import cfnade

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
RUN = ("how-to/integrate.md", "reference/python.md")
"""Pages whose Python blocks run, one after another, beside a file ratings.csv."""
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


@pytest.fixture
def ratings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ratings = cfnade.synthetic(40, 25, 700, seed=5).ratings
    triples = zip(ratings.users, ratings.items, ratings.values, strict=True)
    rows = [f"{user + 1},{item + 1},{value:g}" for user, item, value in triples]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUN)
@pytest.mark.usefixtures("ratings_folder")
def test_python_blocks_run(page: str) -> None:
    if page == "how-to/integrate.md":
        pytest.importorskip("sklearn")
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    variables: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), variables)


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
