"""Data flows one way and so do imports; heavy libraries are imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cfnade
import cfnade_baselines

ROOT = Path(cfnade.__file__).parent
SOURCES = sorted([*ROOT.rglob("*.py"), *Path(cfnade_baselines.__file__).parent.rglob("*.py")])
# Each part may import from itself and from those before it.
FLOW = [
    *(
        "exceptions",
        "_typing",
        "utils",
        "config",
        *("online.engine", "online.event_store", "online.batch_writer", "online.bulk"),
        "distributed.process_group",
        "models",
        "kernels",
        "data",
        "distributed.partition",
        "distributed.engine",
        "evaluation.rating_metrics",
        "evaluation.ranking_metrics",
    ),
    *(
        "calibration.calibration",
        "components",
        "training.callbacks",
        "training.state",
        "training.loop",
        "implicit",
        "fitted_model",
        "inference.query",
        "inference.baseline",
        "inference.column_basis",
        "inference.fold_in",
        "inference.scorer",
        "calibration.per_user",
    ),
    "recipes",
    "training",
    *(
        "checkpoint",
        "inference",
        "evaluation.evaluate",
        "distributed",
        "frames",
        "estimator",
        "online",
        "server",
        "integrations",
        "cli",
    ),
    "__main__",
]
HEAVY = {
    "torch",
    "numba",
    "polars",
    "pandas",
    "pyarrow",
    "narwhals",
    "pooch",
    "rich",
    "fastapi",
    "sqlalchemy",
}


def part_of(module: str) -> str:
    """Return the entry of FLOW for a module: its own, or that of its package."""
    names = module.split(".")[1:]
    own = ".".join(names[:2])
    return own if own in FLOW else names[0] if names else "__init__"


def imports_of(path: Path, package: str = "cfnade") -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == package}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_imports_from_a_later_part(path: Path) -> None:
    part = part_of(".".join(["cfnade", *path.relative_to(ROOT).with_suffix("").parts]))
    if part == "__init__" or part not in FLOW:  # a package's __init__.py may have no entry
        assert path.name == "__init__.py", f"{path} has no place in FLOW"
        return
    allowed = FLOW[: FLOW.index(part) + 1]
    known = {part_of(name) for name in imports_of(path)} & set(FLOW)
    assert known <= set(allowed), f"{path.name} of {part!r} imports {known - set(allowed)}"


def test_only_the_command_line_imports_the_baselines() -> None:
    importing = [path for path in ROOT.rglob("*.py") if imports_of(path, "cfnade_baselines")]
    assert {path.parent for path in importing} == {ROOT / "cli"}


def modules_after(code: str) -> set[str]:
    command = f"{code}; import sys; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("code", ["import cfnade", "import cfnade.cli", "import cfnade.data"])
def test_heavy_libraries_are_imported_late(code: str) -> None:
    assert not modules_after(code) & HEAVY


def test_looking_at_ratings_needs_neither_torch_nor_numba() -> None:
    code = "from cfnade import load; import cfnade.data.readers.tables, polars"
    code += "; load(polars.DataFrame({'user': [1, 2], 'item': [1, 1], 'rating': [1, 5]}))"
    assert not modules_after(code) & {"torch", "numba"}


def test_no_file_is_longer_than_a_person_reads() -> None:
    """Without docstrings: a public class documents every parameter."""
    lengths = {str(path): code_lines(path) for path in SOURCES}
    assert {name: n for name, n in lengths.items() if n > 500} == {}


def code_lines(path: Path) -> int:
    text = path.read_text()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    return len(text.splitlines()) - sum(len(one.splitlines()) for one in docstrings)


def test_no_function_is_longer_than_a_screen() -> None:
    """From its docstring to its last line. Commands have a parameter for each option."""
    lengths = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.body[0].lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > 60} == {}
