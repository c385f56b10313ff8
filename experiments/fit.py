"""One training run, in a process of its own, so that its peak memory is its own.

`validate` drops the test part before training, so that no choice can depend on a test rating.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.components import Member
from cfnade.components.optimizers import member_network
from cfnade.config import TrainingConfig
from cfnade.data.load import load_split
from cfnade.data.splits import Split
from cfnade.evaluation.evaluate import evaluate
from cfnade.recipes import default_recipe
from cfnade.training.options import RunOptions
from cfnade.training.plan import MemberPlan, TrainingPlan, plan_side
from cfnade.training.state import NAME, StateStore
from cfnade.training.train import TrainingResult, train
from experiments.plan import Configuration
from experiments.variants import variant

ROOT = Path(__file__).resolve().parent.parent


def validate(
    data: str, split: str, seed: int, configuration: Configuration, threads: int, state: Path
) -> Any:
    """Train and score on validation alone, to choose a configuration. Returns a record.

    `state` is a folder for this run, from which it resumes if it was interrupted.
    """
    parts = load_split(data, split)
    without_test = replace(parts, test=parts.test.select(np.empty(0, np.int64)))
    trained, record = _train(without_test, seed, configuration, threads, state)
    return record | _outcome(trained)


def score(
    data: str, split: str, seed: int, configuration: Configuration, threads: int, state: Path
) -> Any:
    """Train a fixed configuration and score it on test, once. Returns a record."""
    parts = load_split(data, split)
    if configuration.whole:
        empty = parts.valid.select(np.empty(0, np.int64))
        parts = replace(parts, train=parts.train.concat(parts.valid), valid=empty)
    trained, record = _train(parts, seed, configuration, threads, state)
    began = time.perf_counter()
    rating = 3.0 if configuration.unseen == "paper" else None
    test = evaluate(trained.model, parts.test, cold_start_rating=rating).as_dict()
    record |= _outcome(trained) | {"test": test, "test_seconds": _seconds_since(began)}
    if configuration.members > 1 or configuration.beside:
        members = trained.model.members[: configuration.members]  # of the first kind
        single = [replace(trained.model, members=(m,), member_weights=()) for m in members]
        record["members"] = [evaluate(fitted, parts.test).rmse for fitted in single]
    return record


def _train(
    parts: Split, seed: int, configuration: Configuration, threads: int, state: Path
) -> tuple[TrainingResult, dict[str, Any]]:
    settings = TrainingConfig.from_dict(configuration.training | {"seed": seed})
    record = {
        "side": configuration.side,
        "hidden": list(configuration.model.get("hidden", [500])),
        "configuration": asdict(configuration),
        "seed": seed,
        "source": parts.train.source,
        "ratings": sum(map(len, parts.parts().values())),
        "split": parts.name,
        "split_fingerprint": parts.fingerprint,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": platform.processor() or platform.machine(),
        "threads": threads,
        "load_before": round(os.getloadavg()[0], 2),
    }
    resumed = (state / NAME).exists()
    began = time.perf_counter()
    with variant(configuration.variant):
        plan = plan_side(
            configuration.side, configuration.model, settings, n_seeds=configuration.members
        )
        if configuration.beside:
            extra = [_default_member(fields, seed) for fields in configuration.beside]
            plan = TrainingPlan((*plan.members, *extra), "fit")
        store = StateStore(state, resume=resumed)
        trained = train(parts, plan, RunOptions(n_threads=threads, store=store))
    if configuration.whole and configuration.shares:
        weights = tuple((weight, weight) for weight in configuration.shares)
        trained = replace(trained, model=replace(trained.model, member_weights=weights))
    # The latter is larger if the run was resumed.
    seconds = max(_seconds_since(began), trained.model.metadata["seconds"])
    return trained, record | {"seconds": seconds, "resumed": resumed}


def _default_member(fields: dict[str, Any], seed: int) -> MemberPlan:
    """Return a member by the default recipe of its side, with changed fields of the model."""
    recipe = default_recipe(fields["side"])
    settings = replace(recipe.training, seed=seed)
    return MemberPlan(fields["side"], recipe.model | fields.get("model", {}), settings)


def _outcome(trained: TrainingResult) -> dict[str, Any]:
    metadata, members = trained.model.metadata, trained.model.members
    return {
        "load_after": round(os.getloadavg()[0], 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "parameters": sum(p.numel() for m in members for p in member_network(m).parameters()),
        "epochs": metadata["epochs"],
        "best_epoch": metadata["best_epoch"],
        "diverged": trained.diverged,
        "valid": metadata["valid"],
        "curve": [round(line["valid_rmse"], 5) for line in trained.history if line["valid_rmse"]],
        "gains": [_gains(member) for member in members],
        "shares": [weight for weight, _ in trained.model.member_weights],
    }


def _gains(member: Member) -> list[float]:
    """Return the gains and the shift of neighborhoods that were fitted on validation."""
    tuned = [component.arrays for component in member.components.values() if component.tunes]
    values = [float(arrays["gain"]) for arrays in tuned]
    values += [float(arrays["shift"]) for arrays in tuned[:1]]
    return [round(value, 4) for value in values]


def _seconds_since(began: float) -> float:
    return round(time.perf_counter() - began, 2)


def commit() -> str:
    """Return the commit of the running code, with a plus if the tree has changes."""

    def git(*arguments: str) -> str:
        process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return process.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "experiments/*.py")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
