"""Models × splits in one comparison.

Each fit runs in a process of its own, so that its time and peak memory are its own and a failure
does not end the others. Recorded results are reused: a comparison that was interrupted continues,
and one with a model more fits only that model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from cfnade import load_split
from cfnade.exceptions import DataError, ModelError
from cfnade.utils.files import write_text
from cfnade_baselines.registry import Preset, Task, library_version, load_preset, preset_names

Record = dict[str, Any]

LEAD: Mapping[Task, str] = {"rating": "rmse", "ranking": "ndcg@100"}
"""Main metric of each task."""

JOB_FIELDS = (
    *("name", "task", "model", "options", "with_validation", "search", "library"),
    *("data", "load_options", "split", "fingerprint", "seed"),
)
"""Fields that identify a result. The number of threads is recorded but changes no score."""


@dataclass(frozen=True)
class FitResult:
    """Scores of one model on one split, or the reason why there are none."""

    model: str
    title: str
    split: str
    scores: dict[str, Any] | None
    """rmse, mae_of_means, nll, fit_seconds, predict_seconds, peak_mb …"""
    reason: str | None = None
    missing: bool = False
    """Whether the reason is a library that is not installed."""


@dataclass(frozen=True)
class Comparison:
    """Data, task and seed of a comparison."""

    data: str
    load_options: dict[str, Any]
    seed: int
    n_threads: int | None
    task: Task = "rating"


def compare(
    comparison: Comparison,
    models: Sequence[str] | None,
    splits: Sequence[str],
    *,
    results: Path | None = None,
    rerun: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> list[FitResult]:
    """Fit every model on every split.

    Args:
        comparison: What is compared.
        models: Names of presets; None means all that suit the size of the data.
        splits: Names of splits with a test part.
        results: JSON Lines file of results to reuse and to add to; without it nothing is kept.
        rerun: Replace recorded results instead of reusing them.
        report: Called with a line for each fit.
    """
    if not splits or len(set(splits)) < len(splits):
        raise DataError(f"splits {list(splits)}: give at least one, and each once")
    if models is not None:
        select_presets(models, 0, comparison.task)  # refuses wrong names before data is loaded
    fingerprints, n_ratings = {}, 0
    for name in splits:
        split = load_split(comparison.data, name, **comparison.load_options)
        if len(split.test) == 0:
            raise DataError(f"split {name} has no test part to compare on; use another")
        fingerprints[name] = split.fingerprint
        n_ratings = n_ratings or sum(len(part) for part in split.parts().values())
        del split  # the fits load their own
    presets, notes = select_presets(models, n_ratings, comparison.task)
    for note in notes:
        report(note)
    file = None if results is None else ResultsFile(results, JOB_FIELDS)
    fits: list[FitResult] = []
    for preset in presets:
        for split_name, fingerprint in fingerprints.items():
            job = _job(comparison, preset, split_name, fingerprint)
            record = None if file is None or rerun else file.find(job)
            if record is not None:
                scores = record["scores"]
                fits.append(FitResult(preset.name, preset.title, split_name, scores))
                continue
            fits.append(_fit(preset, job, file, report))
            if fits[-1].missing:  # as it would be on the other splits
                break
    return fits


def select_presets(
    models: Sequence[str] | None, n_ratings: int, task: Task = "rating"
) -> tuple[list[Preset], list[str]]:
    """Return the presets of these names, or all that suit the size of the data, and notes."""
    if models is not None:
        if repeated := sorted({name for name in models if list(models).count(name) > 1}):
            raise ModelError(f"model {repeated[0]!r} is given twice; give each once")
        return [load_preset(name, task) for name in models], []
    presets = [load_preset(name, task) for name in preset_names(task)]
    slow = [p for p in presets if p.max_ratings is not None and n_ratings > p.max_ratings]
    notes = [
        f"{preset.name}: skipped, since it is slow with more than {preset.max_ratings:,} ratings; "
        "name it to fit it"
        for preset in slow
    ]
    return [preset for preset in presets if preset not in slow], notes


def _job(comparison: Comparison, preset: Preset, split: str, fingerprint: str) -> Record:
    return {
        "name": preset.name,
        "task": comparison.task,
        "model": preset.model,
        "options": preset.options_for(comparison.data),
        "with_validation": preset.with_validation,
        "search": preset.search,
        "library": library_version(preset.model, comparison.task),
        "data": comparison.data,
        "load_options": comparison.load_options,
        "split": split,
        "fingerprint": fingerprint,
        "seed": comparison.seed,
        "n_threads": comparison.n_threads,
    }


def _fit(
    preset: Preset, job: Record, file: ResultsFile | None, report: Callable[[str], None]
) -> FitResult:
    split = job["split"]
    result = fit_in_process(job)
    scores = result["scores"]
    if scores is None:
        report(f"{preset.name} on {split}: {result['reason']}")
        missing = result.get("missing", False)
        return FitResult(preset.name, preset.title, split, None, result["reason"], missing)
    if file is not None:
        file.add(job | {"scores": scores})
    lead = scores[LEAD[job["task"]]]
    report(f"{preset.name} on {split}: {lead:.4f}, {scores['fit_seconds']:.1f} s")
    return FitResult(preset.name, preset.title, split, scores)


def fit_in_process(job: Record) -> dict[str, Any]:
    """Fit and score in a new process. Returns scores, or None and a reason."""
    command = [sys.executable, "-m", "cfnade_baselines.run_fit"]
    process = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    lines = process.stdout.strip().splitlines()
    if process.returncode == 0 and lines:
        result: dict[str, Any] = json.loads(lines[-1])
        return result
    if process.returncode < 0:
        reason = f"its process was ended by signal {-process.returncode}; was memory short?"
    else:
        reason = (process.stderr.strip().splitlines() or ["its process printed no result"])[-1]
    return {"scores": None, "reason": reason}


# -- records of results ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultsFile:
    """A JSON Lines file with one record per key, for all runs of a table.

    Records are identified by `key_fields` and sorted by name, split and seed.
    """

    path: Path
    key_fields: tuple[str, ...] = ("name", "split", "seed")

    def records(self) -> list[Record]:
        """Return all records; none if there is no file."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [self._parse(line, number) for number, line in enumerate(lines, 1)]

    def find(self, record: Record) -> Record | None:
        """Return the record with the same key, or None."""
        key = self.key(record)
        return next((old for old in self.records() if self.key(old) == key), None)

    def add(self, record: Record) -> None:
        """Write a record, in place of one with the same key; other processes may write, too."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"):
            key = self.key(record)
            unchanged = [old for old in self.records() if self.key(old) != key]
            self.write([*unchanged, record])

    def write(self, records: Iterable[Record]) -> None:
        """Replace the file by these records."""
        lines = [
            json.dumps(record, ensure_ascii=False) for record in sorted(records, key=self._order)
        ]
        write_text(self.path, "".join(f"{line}\n" for line in lines))

    def key(self, record: Record) -> str:
        """Return what identifies a record, as text."""
        return json.dumps([record.get(name) for name in self.key_fields], sort_keys=True)

    def _order(self, record: Record) -> tuple[str, str, int, str]:
        name, split = str(record.get("name", "")), str(record.get("split", ""))
        return name, split, int(record.get("seed", 0)), self.key(record)

    def _parse(self, line: str, number: int) -> Record:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise DataError(f"{self.path}, line {number}: this is not a record; delete the line")
        return record
