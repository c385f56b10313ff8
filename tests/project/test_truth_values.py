"""No truth tests of values for which zero or an empty text is valid.

`if user`, `rating or default` and `getattr(request, name, None)` as a condition skip user 0,
rating 0.0 and index 0. Compare with None instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
NUMBERS = {"int", "float", "Id", "Whole", "Number", "Share"}
NAME = re.compile(
    r"^(?!(.*_)?by_|one_|recalculate_)(.*_)?(user|item|person|id|index|level|rating|stars|weight|row|column|raw|threshold|timestamp)$"
)
"""Names of single values that may be zero or empty; plurals and …_by_… are collections."""
ALLOWED = {
    "getattr(summary, name)": "flags of a data set",
    "self.batch_columns": "at least 1",
    "self.batch_rows": "at least 1",
    "workers": "at least 1",
    "ridge": "0 stands for no ridge part",
    "min_columns": "at least 1",
    "first_row": "0 begins the epoch",
    "n_workers": "at least 1",
    "n_threads": "at least 1",
    "rmse.std": "no error bar for one split",
    "self.parsed[item].year": "no title is of the year 0",
    "stage.epochs": "0 epochs have no total",
    "weight": "a member of weight 0 is left out",
}
"""Correct conditions, by their text, because files move."""


def annotated_alternatives(annotation: ast.expr) -> Iterator[ast.expr]:
    """Return the members of a union such as `int | None`, looking into Annotated."""
    if isinstance(annotation, ast.BinOp):
        yield from annotated_alternatives(annotation.left)
        yield from annotated_alternatives(annotation.right)
    elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        yield from annotated_alternatives(annotation.slice.elts[0])
    else:
        yield annotation


def is_optional_number(annotation: ast.expr | None) -> bool:
    if annotation is None:
        return False
    names = {ast.unparse(one) for one in annotated_alternatives(annotation)}
    return "None" in names and bool(names & NUMBERS)


def optional_numbers(tree: ast.Module) -> set[str]:
    """Return the names of arguments, variables and fields annotated as `int | None` or alike."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and is_optional_number(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and is_optional_number(node.annotation):
            names.add(ast.unparse(node.target).rpartition(".")[2])
    return names


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Return every expression whose truth value is taken."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            # The last operand of `a or b` is a value, not a condition.
            yield from node.values[:-1]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "bool":
            yield from node.args


def name_tested(condition: ast.expr) -> str | None:
    """Return the name of the value that a condition tests; "*" if the code computes the name."""
    if isinstance(condition, ast.BoolOp):
        return name_tested(condition.values[-1])
    if isinstance(condition, ast.NamedExpr):
        return condition.target.id
    if isinstance(condition, ast.Name):
        return condition.id
    if isinstance(condition, ast.Attribute):
        return condition.attr
    if isinstance(condition, ast.Subscript):
        return constant(condition.slice)
    if isinstance(condition, ast.Call) and ast.unparse(condition.func) == "getattr":
        return constant(condition.args[1]) or "*"
    if isinstance(condition, ast.Call) and isinstance(condition.func, ast.Attribute):
        is_get = condition.func.attr == "get" and condition.args
        return constant(condition.args[0]) if is_get else None
    return None


def constant(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def truth_tests(source: str) -> Iterator[tuple[int, str]]:
    """Return line and text of each truth test of a value that may be zero or empty."""
    tree = ast.parse(source)
    numbers = optional_numbers(tree)
    for condition in conditions(tree):
        name = name_tested(condition)
        if name is not None and (name == "*" or name in numbers or NAME.search(name)):
            yield condition.lineno, ast.unparse(condition)


def test_source_has_no_truth_tests_of_ids_indices_ratings_and_weights() -> None:
    sources = {path.relative_to(SOURCE): path.read_text() for path in SOURCE.rglob("*.py")}
    tests = [(path, *test) for path, text in sources.items() for test in truth_tests(text)]
    wrong = [f"{path}:{line}: {text}" for path, line, text in tests if text not in ALLOWED]
    assert wrong == [], "compare with None, or add the condition to ALLOWED with a reason"


@pytest.mark.parametrize(
    "source",
    [
        "if user: pass",
        "x = request.rating or 3",
        "[n for n in names if getattr(request, n, None)]",
        "while not row['item_id']: pass",
        "def f(count: int | None): return count or 5",
        "class A:\n    share: float | None = None\n    def f(self): return 1 if self.share else 2",
        "if (index := find()): pass",
        "bool(options.get('threshold'))",
        "if a or user: pass",
    ],
)
def test_check_finds_truth_tests(source: str) -> None:
    assert len(list(truth_tests(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["if user is None: pass", "if users: pass", "x = level > 0 or 1", "x = is_known and level"],
)
def test_check_accepts_comparisons_and_collections(source: str) -> None:
    assert list(truth_tests(source)) == []
