"""Models × splits in one fair comparison.

Each fit runs in a process of its own, so that seconds and peak memory are its own, and one that
fails does not end the others. Results of a folder are used again: a comparison that was stopped
goes on, and one to which a model is added fits only that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfnade import __version__, load_split
from cfnade.exceptions import DataError, ModelError
from cfnade.utils.files import write_text
from cfnade_baselines.presets import Contestant, contestant, names

RESULTS = "fits"
"""The subfolder of results, one file for each model and split.

Of lists, a second one (.npz) holds the figure of each person, for differences between models.
"""
LEAD = {False: "rmse", True: "ndcg@100"}
"""The figure by which ratings, and lists, are compared first."""


@dataclass(frozen=True)
class Outcome:
    """What became of one model on one split."""

    model: str
    title: str
    split: str
    scores: dict[str, Any] | None
    """rmse, mae_of_means, nll, fit_seconds, predict_seconds, peak_mb …; None if there are none."""
    reason: str | None = None
    """Why there are none."""
    missing: bool = False
    """Whether that is because a library is not installed."""


@dataclass(frozen=True)
class Task:
    """What is compared on what."""

    data: str
    reading: dict[str, Any]
    seed: int
    threads: int | None
    lists: bool = False
    """Whether lists are compared, and not ratings."""


def chosen(
    models: Sequence[str] | None, ratings: int, *, lists: bool = False
) -> tuple[list[Contestant], list[str]]:
    """Those of these names, or all that suit so many ratings; and what to say of those left out."""
    if models is not None:
        if repeated := sorted({name for name in models if list(models).count(name) > 1}):
            raise ModelError(f"model {repeated[0]!r} is given twice; give each once")
        return [contestant(name, lists=lists) for name in models], []
    everyone = [contestant(name, lists=lists) for name in names(lists=lists)]
    quick = [c for c in everyone if c.most_ratings is None or ratings <= c.most_ratings]
    notes = [
        f"{c.name}: left out, since it is slow with more than {c.most_ratings:,} ratings; name it "
        "to have it all the same"
        for c in everyone
        if c not in quick
    ]
    return quick, notes


def compare(
    task: Task,
    models: Sequence[str] | None,
    splits: Sequence[str],
    *,
    out: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Fit every model on every split; without a folder `out` nothing is kept."""
    if not splits or len(set(splits)) < len(splits):
        raise DataError(f"splits {list(splits)}: give at least one, and each once")
    parts = {name: load_split(task.data, name, **task.reading) for name in splits}
    for name, part in parts.items():
        if len(part.test) == 0:
            raise DataError(f"split {name} has no test part to compare on; take another")
    first = parts[splits[0]]
    ratings = sum(len(part) for part in first.parts().values())
    contestants, notes = chosen(models, ratings, lists=task.lists)
    for note in notes:
        say(note)
    fingerprints = {name: part.fingerprint for name, part in parts.items()}
    del parts, first  # the processes load their own
    with tempfile.TemporaryDirectory() as temporary:
        runner = _Runner(task, fingerprints, Path(out or temporary) / RESULTS, say)
        return [outcome for each in contestants for outcome in runner.all_splits(each)]


class _Runner:
    def __init__(
        self,
        task: Task,
        fingerprints: dict[str, str],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._task, self._fingerprints, self._folder, self._say = task, fingerprints, folder, say

    def all_splits(self, each: Contestant) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for split in self._fingerprints:
            outcome = self._one(each, split)
            outcomes.append(outcome)
            if outcome.missing:  # it will be missing for the other splits, too
                break
        return outcomes

    def _one(self, each: Contestant, split: str) -> Outcome:
        job = {
            "model": each.model,
            "options": each.options_for(self._task.data),
            "data": self._task.data,
            "reading": self._task.reading,
            "split": split,
            "fingerprint": self._fingerprints[split],
            "seed": self._task.seed,
            "threads": self._task.threads,
            "version": __version__,
        }
        if each.with_validation:
            job |= {"with_validation": True}
        if self._task.lists:
            job |= {"lists": True, "search": each.search}
        path = self._folder / f"{each.name}-{split.replace(':', '-').replace('/', '-')}.json"
        result = read_result(path)
        if result.get("job") == job:
            return Outcome(each.name, each.title, split, result["scores"])
        answer = fit_apart(job)
        if answer["scores"] is None:
            self._say(f"{each.name} on {split}: {answer['reason']}")
            missing = answer.get("missing", False)
            return Outcome(each.name, each.title, split, None, answer["reason"], missing)
        scores = answer["scores"]
        result = {"recipe": each.name, "job": job, "scores": scores}
        write_text(path, json.dumps(result, indent=1) + "\n")
        if "people" in answer:  # too many numbers for a file that is read by eye
            arrays = {name: np.array(each) for name, each in answer["people"].items()}
            np.savez(path.with_suffix(".npz"), allow_pickle=False, **arrays)
        figure = scores[LEAD[self._task.lists]]
        self._say(f"{each.name} on {split}: {figure:.4f}, {scores['fit_seconds']:.1f} s")
        return Outcome(each.name, each.title, split, scores)


def read_result(path: Path) -> dict[str, Any]:
    """A result written before: recipe, job and scores; nothing if it cannot be read."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(result, dict) or not isinstance(result.get("scores"), dict):
        return {}
    # Scores of early results call it mae, which elsewhere is the error of medians.
    renamed = {"mae_of_means" if key == "mae" else key: v for key, v in result["scores"].items()}
    return result | {"scores": renamed}


def fit_apart(job: dict[str, Any]) -> dict[str, Any]:
    """Fit and score in a fresh process. Returns scores, or None and a reason."""
    command = [sys.executable, "-m", "cfnade_baselines.one_fit"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    if done.returncode < 0:
        reason = f"its process was ended by signal {-done.returncode}; was memory short?"
    else:
        reason = (done.stderr.strip().splitlines() or ["its process said nothing"])[-1]
    return {"scores": None, "reason": reason}
