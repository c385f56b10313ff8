"""`cfnade train` in one process, once the data are read: ratings, or interactions without any, of
which what people pick is all that is learnt. It imports what is heavy; import it late.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cfnade import checkpoint
from cfnade.cli.at_work import compile_kernels, interruptible, next_command, say
from cfnade.cli.folder import begin_run, end_run, nothing_lost
from cfnade.cli.job import Job, plan_of, with_plans
from cfnade.cli.progress import TrainingView
from cfnade.cli.show import show_tried
from cfnade.components import component_names, kernel_groups
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.training import state
from cfnade.training.callbacks import Callback, MessageCallback
from cfnade.training.implicit import implicit_plan
from cfnade.training.loop import DivergedError
from cfnade.training.options import RunOptions
from cfnade.training.plan import DataSize, TrainingPlan, estimate_seconds, plan_implicit
from cfnade.training.state import StateStore
from cfnade.training.train import TrainingResult, train
from cfnade.training.validation import warn_below_baseline


def train_ratings(job: Job, parts: Split, store: StateStore, callbacks: Sequence[Callback]) -> None:
    """Train, save, and print how it ended."""
    out, job = store.folder, with_plans(job, parts)
    plan, automatic = plan_of(job), job["side"] == "auto"
    if not store.exists():  # killed before its first state: start again
        store = replace(store, resume=False)
    implicit = plan_implicit(
        parts.train,
        job["lists"],
        plan.members,
        automatic=automatic,
        seed=job["training"]["seed"],
    )
    plan = replace(plan, implicit=implicit)
    display = _display(job, plan, store)
    options = RunOptions(
        n_threads=job["threads"],
        device=job["device"],
        init_model=checkpoint.load(job["from"]) if job["from"] else None,
        store=store,
    )
    _compile(job, plan)
    if automatic:
        print(_announced(parts, plan), file=sys.stderr)
    try:
        with nothing_lost(out), display, interruptible() as stop:
            shown = replace(options, callbacks=[display, *callbacks], should_stop=stop)
            trained = train(parts, plan, shown)
    except DivergedError:
        state.delete_states(out)  # it would diverge again
        raise
    _save(trained, job, out)
    _say_how_it_ended(trained, parts, out, job["without_context"])


def _display(job: Job, plan: TrainingPlan, store: StateStore) -> TrainingView:
    """Return the progress display, which also begins the run in the folder."""
    earlier = state.state_times(store.folder)

    def begin() -> None:
        """The first step is done: the arguments are valid, and the earlier run may be removed."""
        if not store.resume:
            begin_run(store.folder, job, earlier)

    epochs = [member.training.epochs for member in plan.members]
    done = state.read_histories(store.folder, len(epochs)) if store.resume else []
    return TrainingView([member.side for member in plan.members], epochs, store.folder, done, begin)


def _compile(job: Job, plan: TrainingPlan) -> None:
    """Whatever kernels it will need, at once: those of lists while another process is at work."""
    groups: dict[str, None] = {}
    if job["device"] == "cpu":
        ridges = [(one.side, one.model.get("ridge", 0)) for one in plan.members]
        named = [component_names(side, ridge=ridge) for side, ridge in ridges]
        groups = {group: None for sides in named for group in kernel_groups(sides)}
        groups["inference"] = None
        if any(one.model.get("factors") for one in plan.members):
            groups["factored"] = None
    if plan.implicit is not None:
        groups |= {"inference": None, "implicit": None}
    if groups:
        compile_kernels(*groups)


def _save(trained: TrainingResult, job: Job, out: Path) -> None:
    facts = trained.model.facts | {"job": job}
    if job["side"] == "auto":
        auto = {"minutes": job["minutes"], "lists": job["lists"]}
        facts |= {"auto": auto | {"refit": job["training"]["refit"]}}
    model = replace(trained.model, facts=facts)
    with nothing_lost(out):
        checkpoint.save(model, out, with_context=not job["without_context"])
        if trained.diverged:
            state.delete_states(out)
        elif not trained.stopped:
            end_run(out, job)


def _announced(parts: Split, plan: TrainingPlan) -> str:
    seconds = estimate_seconds(DataSize.of(parts.train), plan.members)
    seconds += 0.0 if plan.implicit is None else plan.implicit.seconds
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    parts_named = [member.side for member in plan.members] + (["lists"] if plan.implicit else [])
    names = ", ".join(parts_named)
    return f"to be tried: {names}; about {took} on two cores (--minutes 10 to search longer)"


_WITHOUT_CONTEXT = {
    True: "saved without the ratings: only histories given in the call will work, no known user",
    False: "saved without the ratings: an item-based model can answer no question without them, "
    "only its embeddings can be exported; train with --side user to answer for histories",
}


def _say_how_it_ended(
    trained: TrainingResult, parts: Split, out: Path, without_context: bool
) -> None:
    facts = trained.model.facts
    best = f"epoch {facts['best_epoch']}"
    if "members" in facts:
        best = f"{len(facts['members'])} members"
    if facts["valid"]:
        best += f", validation RMSE {facts['valid']['rmse']:.4f}"
        best += f" (plain means {facts['valid']['means_rmse']:.4f})"
    show_tried(facts.get("tried", []))
    _show_choice(facts)
    print(f"{out}: model of {best}, {facts['seconds']:.1f} s of training")
    if (warning := warn_below_baseline(facts)) is not None:
        print(f"warning: {warning}", file=sys.stderr)
    if trained.diverged:
        raise TrainingError(
            f"{trained.diverged}. The best model before that is kept in {out}; --force replaces it"
        )
    if trained.stopped:
        print(f"stopped; go on with: cfnade train --resume --out {out}")
    elif without_context:
        print(_WITHOUT_CONTEXT[trained.model.takes_histories])
    else:
        print("next:", next_command(out, len(parts.test), parts.train.user_ids[0]))


def _show_choice(facts: dict[str, Any]) -> None:
    """What the sides of a choice gave on validation, and together."""
    lists = facts.get("lists", {})
    if "alone" not in lists:
        return
    alone = ", ".join(f"{name} {value:.4f}" for name, value in lists["alone"].items())
    print(f"interactions: validation NDCG@{lists['k']} {lists['ndcg']:.4f} (alone: {alone})")


# -- interactions --------------------------------------------------------------------------------


def train_interactions(job: Job, parts: Split, store: StateStore) -> None:
    """Train, save, and print how it ended."""
    _refuse_ratings(job)
    compile_kernels("implicit", "inference")
    out = store.folder
    if not store.resume:
        begin_run(out, job)
    seed, minutes = job["training"]["seed"], job["minutes"]
    plan = TrainingPlan(implicit=implicit_plan(parts.train, seed=seed, time_budget=minutes))
    options = RunOptions(n_threads=job["threads"], callbacks=[MessageCallback(say)])
    with nothing_lost(out), interruptible() as stop:
        trained = train(parts, plan, replace(options, should_stop=stop))
        model = replace(trained.model, facts=trained.model.facts | {"job": job})
        checkpoint.save(model, out, with_context=not job["without_context"])
        if not trained.stopped:
            end_run(out, job)
    _show_choice(trained.model.facts)
    if trained.stopped:
        print(f"stopped early; train again with: cfnade train --resume --out {out}")
        return
    seconds = trained.model.facts["lists"]["total_seconds"]
    print(f"{out}: model of interactions, {seconds:.1f} s of training")
    print("next:", next_command(out, len(parts.test), parts.train.user_ids[0]))
    state.delete_states(out)


def _refuse_ratings(job: Job) -> None:
    """What is said of a model of ratings makes no sense here."""
    if job["side"] != "auto" or job["from"] or job["lists"] is False:
        raise TrainingError(
            f"{job['data']}: these are interactions without ratings; leave out the options of a "
            "model of ratings (--side, --recipe, --from, --no-lists and the like)"
        )
