"""The documentation: the tutorial runs, and every link and every name leads somewhere."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = sorted(DOCS.glob("*.md"))


def run_cell(source: str, names: dict[str, Any]) -> str:
    """What a cell prints, and the value of its last line, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            if value is not None:
                print(repr(value))
    return said.getvalue()


def test_the_tutorial_runs_and_says_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures may differ in their last digits, so texts are compared without them."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    ran = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        said = run_cell("".join(cell["source"]), names)
        kept = "".join("".join(one["text"]) for one in cell["outputs"])
        assert _plain(said) == _plain(kept)
        ran += 1
    assert ran >= 8
    assert names["scores"].rmse < 0.95 * float(names["parts"].test.values.std())
    assert names["again"].predict(4, 7) == pytest.approx(names["model"].predict(4, 7))


def _plain(text: str) -> list[str]:
    """Lines without figures, bars and the spaces that they move."""
    return [re.sub(r"[-\d.%█┌┐└┘─┬┴┼╞╪╡═ ]+", " ", line).strip() for line in text.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", name):
            continue
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name}: {target}"


def test_the_site_names_pages_that_there_are() -> None:
    """Pages that it does not name are put under More when it is built (docs/outside.py)."""
    named = re.findall(r"((?:\w+/)?\w+\.(?:md|ipynb))$", SITE, re.MULTILINE)
    assert len(named) >= 20
    assert len(set(named)) == len(named)
    for name in named:
        assert (DOCS / name).exists(), name


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and mkdocs make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", re.sub(r"`|\[|\]\([^)]*\)", "", head)) for head in heads]
    return {re.sub(r"\s+", "-", head.strip().lower()) for head in plain}


def test_the_reference_names_what_there_is() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(named) >= 8
    for name in named:
        home, _, last = name.rpartition(".")
        assert getattr(importlib.import_module(home), last).__doc__, name
    import cfnade

    public = {name for name in cfnade.__all__ if not name.startswith("_")}
    assert {name.rpartition(".")[2] for name in named} >= public


def test_what_the_pages_for_newcomers_show_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of ours on docs/coming_from.md, one after another, on a small file."""
    from cfnade import synthetic

    drawn = synthetic(40, 25, 700, seed=5).ratings
    lines = zip(drawn.users, drawn.items, drawn.values, strict=True)
    rows = [f"{user + 1},{item + 1},{value:g}" for user, item, value in lines]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "coming_from.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "coming_from.md", "exec"), names)
