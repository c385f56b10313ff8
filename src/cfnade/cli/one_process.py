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
from cfnade.cli.job import Job, plans_of, settings_of_members, with_plans
from cfnade.cli.show import TrainingView, show_tried
from cfnade.components import component_names, kernel_tasks
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.fitting import lists_plan
from cfnade.journals import Several
from cfnade.training import state
from cfnade.training.floor import behind_means
from cfnade.training.implicit import ImplicitPlan, implicit_plan
from cfnade.training.loop import DivergedError, Reporter, Saving
from cfnade.training.plan import DataSize, estimate_seconds
from cfnade.training.run import Plan, Trained, train, train_picks


def train_ratings(job: Job, parts: Split, saving: Saving, reporter: Reporter) -> None:
    """Train, save, and say how it ended."""
    out, job = saving.folder, with_plans(job, parts)
    plans, chosen = plans_of(job), job["side"] == "auto"
    earlier = checkpoint.load(job["from"]) if job["from"] else None
    if not saving.there():  # killed before its first state: from anew
        saving = replace(saving, resume=False)
    view = _view(job, plans, saving)
    choice = lists_plan(parts, job["lists"], plans, auto=chosen, seed=job["training"]["seed"])
    _compile(job, plans, choice)
    if chosen:
        print(_announced(parts, plans, choice), file=sys.stderr)
    first, *beside = plans
    try:
        with nothing_lost(out), view, interruptible() as stop:
            trained = train(
                parts,
                side=first.side,
                architecture=first.architecture,
                settings=first.settings,
                seeds=job["seeds"],
                beside=beside,
                choose=chosen,
                lists=choice,
                start=earlier,
                device=job["device"],
                threads=job["threads"],
                saving=saving,
                reporter=Several(view, reporter),
                say=say,
                stop=stop,
            )
    except DivergedError:
        state.forget(out)  # going on would only diverge again
        raise
    _save(trained, job, out)
    _say_how_it_ended(trained, parts, out, job["without_context"])


def _view(job: Job, plans: Sequence[Plan], saving: Saving) -> TrainingView:
    """What is shown while it trains."""
    earlier = state.stamps_of_states(saving.folder)

    def begin() -> None:
        """The first step is done: nothing is wrong with the arguments, the earlier run may go."""
        if not saving.resume:
            begin_run(saving.folder, job, earlier)

    epochs = [settings.epochs for settings in settings_of_members(job)]
    done = state.read_histories(saving.folder, len(epochs)) if saving.resume else []
    names = [plans[0].side] * job["seeds"] + [plan.side for plan in plans[1:]]
    return TrainingView(names, epochs, saving.folder, done, begin)


def _compile(job: Job, plans: Sequence[Plan], choice: ImplicitPlan | None) -> None:
    """Whatever kernels it will need, at once: those of lists while another process is at work."""
    tasks: dict[str, None] = {}
    if job["device"] == "cpu":
        ridges = [(plan.side, plan.architecture.get("ridge", 0)) for plan in plans]
        named = [component_names(side, ridge=ridge) for side, ridge in ridges]
        tasks = {task: None for sides in named for task in kernel_tasks(sides)}
        tasks["newcomers"] = None
        if any(plan.architecture.get("factors") for plan in plans):
            tasks["factors"] = None
    if choice is not None:
        tasks["picks"] = None
    if tasks:
        compile_kernels(*tasks)


def _save(trained: Trained, job: Job, out: Path) -> None:
    facts = trained.fitted.facts | {"job": job}
    if job["side"] == "auto":
        auto = {"minutes": job["minutes"], "lists": job["lists"]}
        facts |= {"auto": auto | {"refit": job["training"]["refit"]}}
    model = replace(trained.fitted, facts=facts)
    with nothing_lost(out):
        checkpoint.save(model, out, with_context=not job["without_context"])
        if trained.diverged:
            state.forget(out)
        elif not trained.stopped:
            end_run(out, job)


def _announced(parts: Split, plans: list[Plan], choice: ImplicitPlan | None) -> str:
    seconds = estimate_seconds(DataSize.of(parts.train), plans)
    seconds += 0.0 if choice is None else choice.seconds
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    names = ", ".join([*(plan.side for plan in plans), *(["lists"] if choice else [])])
    return f"to be tried: {names}; about {took} on two cores (--minutes 10 to search longer)"


_WITHOUT_CONTEXT = {
    True: "saved without the ratings: only histories given in the call will work, no known user",
    False: "saved without the ratings: an item-based model can answer no question without them, "
    "only its embeddings can be exported; train with --side user to answer for histories",
}


def _say_how_it_ended(trained: Trained, parts: Split, out: Path, without_context: bool) -> None:
    facts = trained.fitted.facts
    best = f"epoch {facts['best_epoch']}"
    if "members" in facts:
        best = f"{len(facts['members'])} members"
    if facts["valid"]:
        best += f", validation RMSE {facts['valid']['rmse']:.4f}"
        best += f" (plain means {facts['valid']['means_rmse']:.4f})"
    show_tried(facts.get("tried", []))
    _show_choice(facts)
    print(f"{out}: model of {best}, {facts['seconds']:.1f} s of training")
    if (warning := behind_means(facts)) is not None:
        print(f"warning: {warning}", file=sys.stderr)
    if trained.diverged:
        raise TrainingError(
            f"{trained.diverged}. The best model before that is kept in {out}; --force replaces it"
        )
    if trained.stopped:
        print(f"stopped; go on with: cfnade train --resume --out {out}")
    elif without_context:
        print(_WITHOUT_CONTEXT[trained.fitted.takes_histories])
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


def train_interactions(job: Job, parts: Split, saving: Saving) -> None:
    """Train, save, and say how it ended."""
    _refuse_ratings(job)
    compile_kernels("picks", "requests")
    out = saving.folder
    if not saving.resume:
        begin_run(out, job)
    seed, minutes = job["training"]["seed"], job["minutes"]
    plan = implicit_plan(parts.train, seed=seed, time_budget=minutes)
    with nothing_lost(out), interruptible() as stop:
        trained = train_picks(parts, plan, threads=job["threads"], say=say, stop=stop)
        model = replace(trained.fitted, facts=trained.fitted.facts | {"job": job})
        checkpoint.save(model, out, with_context=not job["without_context"])
        if not trained.stopped:
            end_run(out, job)
    _show_choice(trained.fitted.facts)
    if trained.stopped:
        print(f"stopped early; train again with: cfnade train --resume --out {out}")
        return
    seconds = trained.fitted.facts["lists"]["total_seconds"]
    print(f"{out}: model of interactions, {seconds:.1f} s of training")
    print("next:", next_command(out, len(parts.test), parts.train.user_ids[0]))
    state.forget(out)


def _refuse_ratings(job: Job) -> None:
    """What is said of a model of ratings makes no sense here."""
    if job["side"] != "auto" or job["from"] or job["lists"] is False:
        raise TrainingError(
            f"{job['data']}: these are interactions without ratings; leave out the options of a "
            "model of ratings (--side, --recipe, --from, --no-lists and the like)"
        )
