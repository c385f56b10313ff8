"""`cfnade train` on interactions: what people pick is all that is learnt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfnade.cli.doctor import compile_kernels
from cfnade.cli.folder import begin_run, end_run, nothing_lost
from cfnade.cli.job import Job
from cfnade.errors import TrainingError

if TYPE_CHECKING:
    from cfnade.data.splits import Split
    from cfnade.training.loop import Saving


def refuse_ratings(job: Job) -> None:
    """What is said of a model of ratings makes no sense here."""
    if job["side"] != "auto" or job["from"] or job["lists"] is False or job["minutes"] is not None:
        raise TrainingError(
            f"{job['data']}: these are interactions without ratings; leave out the options of a "
            "model of ratings (--side, --recipe, --from, --no-lists, --minutes and the like)"
        )


def train_interactions(job: Job, parts: Split, saving: Saving, stop: Callable[[], bool]) -> None:
    """Train, save, and say how it ended."""
    from cfnade import checkpoint
    from cfnade.choice.planning import choice_plan
    from cfnade.training import run, state

    refuse_ratings(job)
    compile_kernels("picks", "requests")
    out = saving.folder
    if not (state.lists_folder(out) / state.NAME).exists():  # killed before its first state
        saving = replace(saving, resume=False)
    if not saving.resume:
        begin_run(out, job)
    plan = choice_plan(parts.train, seed=job["training"]["seed"])
    with nothing_lost(out):
        trained = run.train_picks(
            parts, plan, threads=job["threads"], saving=saving, say=say, stop=stop
        )
        model = replace(trained.fitted, facts=trained.fitted.facts | {"job": job})
        checkpoint.save(model, out, with_context=not job["without_context"])
        if not trained.stopped:
            end_run(out, job)
    show_choice(trained.fitted.facts)
    if trained.stopped:
        print(f"stopped; go on with: cfnade train --resume --out {out}")
        return
    seconds = trained.fitted.facts["lists"]["total_seconds"]
    print(f"{out}: model of what people pick, {seconds:.1f} s of training")
    print(f"next: cfnade evaluate {out}")
    state.forget(out)


def say(line: str) -> None:
    """How training goes, for whoever watches."""
    print(line, file=sys.stderr, flush=True)


def show_choice(facts: dict[str, Any]) -> None:
    """What the sides of a choice gave on validation, and together."""
    lists = facts.get("lists", {})
    if "alone" not in lists:
        return
    alone = ", ".join(f"{name} {value:.4f}" for name, value in lists["alone"].items())
    print(f"lists: validation NDCG@100 {lists['ndcg']:.4f} (alone: {alone})")
