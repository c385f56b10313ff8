"""Imports go one way, heavy libraries are imported late, files and functions stay short."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import cfnade
import cfnade_baselines

ROOT = Path(cfnade.__file__).parent
SOURCES = sorted([*ROOT.rglob("*.py"), *Path(cfnade_baselines.__file__).parent.rglob("*.py")])
# Each layer may import from itself and from those before it.
LAYERS = [
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


def layer_of(module: str) -> str:
    """Return the entry of LAYERS for a module: its own, or that of its package."""
    names = module.split(".")[1:]
    nested = ".".join(names[:2])
    return nested if nested in LAYERS else names[0] if names else "__init__"


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path, package: str = "cfnade") -> set[str]:
    names = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == package}


def test_no_module_imports_from_a_later_layer() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        layer = layer_of(".".join(["cfnade", *path.relative_to(ROOT).with_suffix("").parts]))
        if layer in LAYERS:
            later = set(LAYERS[LAYERS.index(layer) + 1 :])
            imported = {layer_of(name) for name in imports_of(path)} & later
            wrong += [f"{path} of layer {layer} imports {name}" for name in sorted(imported)]
        elif path.name != "__init__.py":
            wrong.append(f"{path} is in no layer")
    assert wrong == []


def test_only_the_command_line_imports_the_baselines() -> None:
    importing = [path for path in ROOT.rglob("*.py") if imports_of(path, "cfnade_baselines")]
    assert {path.parent for path in importing} == {ROOT / "cli"}


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that a new process has imported after some code."""
    command = f"{code}; import sys; print(*{{m.split('.')[0] for m in sys.modules}})"
    process = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


@pytest.mark.parametrize("code", ["import cfnade", "import cfnade.cli", "import cfnade.data"])
def test_heavy_libraries_are_imported_late(code: str) -> None:
    assert not modules_after(code) & HEAVY


def test_loading_ratings_imports_neither_torch_nor_numba_nor_scipy() -> None:
    code = "from cfnade import load; import cfnade.data.readers.tables, polars"
    code += "; load(polars.DataFrame({'user': [1, 2], 'item': [1, 1], 'rating': [1, 5]}))"
    code += "; load([(1, 2, 3), (1, 3, 4)])"
    assert not modules_after(code) & {"torch", "numba", "scipy"}


def test_no_file_has_more_than_500_lines() -> None:
    """Docstrings do not count: a public class documents every parameter."""
    lengths = {str(path): code_lines(path) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def code_lines(path: Path) -> int:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(parse(path)) if isinstance(node, documented)]
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    return len(path.read_text().splitlines()) - sum(len(text.splitlines()) for text in docstrings)


def test_no_function_has_more_than_60_lines() -> None:
    """The signature does not count: commands have a parameter for each option."""
    lengths = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.body[0].lineno + 1
        for path in SOURCES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > 60} == {}
