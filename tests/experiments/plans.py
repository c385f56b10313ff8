"""Experiment files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.plan import read_plan
from experiments.runner import Experiment, Runner

HEAD = (
    'title = "A table"\ndata = "DATA"\n[common]\nsplits = ["paper:1", "paper:2"]\nside = "user"\n'
)
HEAD += "model = { hidden = [4] }\ntraining = { epochs = 2 }\n"
CHOICE = (
    '[[runs]]\nname = "a"\nchoose = { learning_rate = [1e-6, 1e-2] }\nfacts = { paper = 0.9 }\n'
)


def plan_file(tmp_path: Path, data: Path, runs: str) -> Path:
    path = tmp_path / "table.toml"
    path.write_text(HEAD.replace("DATA", str(data)) + runs)
    return path


def run(plan: Path, results: Path, **options: Any) -> dict[str, str]:
    """Run a plan on one thread; return what went wrong."""
    experiment = Experiment(read_plan(plan), results, 1, **options)
    return Runner([experiment], results / ".state", 1, lambda _: None).run()
