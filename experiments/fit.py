"""One training run, called in a process of its own, so that its peak memory is its own.

`validate` never holds a test rating: what it is given to choose by cannot depend on one.
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

    `state` is a folder of the run's own, from which it goes on if it was interrupted.
    """
    parts = load_split(data, split)
    blind = replace(parts, test=parts.test.select(np.empty(0, np.int64)))
    trained, record = _trained(blind, seed, configuration, threads, state)
    return record | _outcome(trained)


def score(
    data: str, split: str, seed: int, configuration: Configuration, threads: int, state: Path
) -> Any:
    """Train a configuration that is fixed, and score it on test, once. Returns a record."""
    parts = load_split(data, split)
    if configuration.whole:
        nothing = parts.valid.select(np.empty(0, np.int64))
        parts = replace(parts, train=parts.train.concat(parts.valid), valid=nothing)
    trained, record = _trained(parts, seed, configuration, threads, state)
    began = time.perf_counter()
    rating = 3.0 if configuration.unseen == "paper" else None
    test = evaluate(trained.model, parts.test, cold_start_rating=rating).as_dict()
    record |= _outcome(trained) | {"test": test, "test_seconds": _since(began)}
    if configuration.members > 1 or configuration.beside:
        first = trained.model.members[: configuration.members]  # those of the first kind
        alone = [replace(trained.model, members=(one,), member_weights=()) for one in first]
        record["members"] = [evaluate(fitted, parts.test).rmse for fitted in alone]
    return record


def _trained(
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
            further = [_beside(one, seed) for one in configuration.beside]
            plan = TrainingPlan((*plan.members, *further), "fit")
        store = StateStore(state, resume=resumed)
        trained = train(parts, plan, RunOptions(n_threads=threads, store=store))
    if configuration.whole and configuration.shares:
        shares = tuple((share, share) for share in configuration.shares)
        trained = replace(trained, model=replace(trained.model, member_weights=shares))
    seconds = max(_since(began), trained.model.metadata["seconds"])  # the latter if it was resumed
    return trained, record | {"seconds": seconds, "resumed": resumed}


def _beside(given: dict[str, Any], seed: int) -> MemberPlan:
    """A member of another kind, by its default recipe."""
    usual = default_recipe(given["side"])
    settings = replace(usual.training, seed=seed)
    return MemberPlan(given["side"], usual.model | given.get("model", {}), settings)


def _outcome(trained: TrainingResult) -> dict[str, Any]:
    facts, members = trained.model.metadata, trained.model.members
    return {
        "load_after": round(os.getloadavg()[0], 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "parameters": sum(p.numel() for one in members for p in member_network(one).parameters()),
        "epochs": facts["epochs"],
        "best_epoch": facts["best_epoch"],
        "diverged": trained.diverged,
        "valid": facts["valid"],
        "curve": [round(line["valid_rmse"], 5) for line in trained.history if line["valid_rmse"]],
        "gains": [_gains(one) for one in members],
        "shares": [share for share, _ in trained.model.member_weights],
    }


def _gains(member: Member) -> list[float]:
    """What validation found for its neighbourhoods: their gains and the shift, as in a plan."""
    near = [one.arrays for one in member.components.values() if one.tunes]
    found = [float(one["gain"]) for one in near] + [float(one["shift"]) for one in near[:1]]
    return [round(value, 4) for value in found]


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 2)


def commit() -> str:
    """The commit of the code that ran; a plus says that the tree had changes."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "experiments/*.py")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
