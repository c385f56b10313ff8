"""A refresh: the model goes on from its weights on all that counts in the store.

The model as it is and the one that went on are asked of the newest tenth of ratings, which neither
has learnt (newest_held.py); which one is published is decided here. Before it is, what can be made
from ratings in seconds is made of all of them, the newest too.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfnade import checkpoint
from cfnade.components.widening import places_of, recounted, widened
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.readers.tables import read_frame
from cfnade.data.splits import Split
from cfnade.data.validate import build
from cfnade.evaluation.evaluate import evaluate
from cfnade.exceptions import CfnadeError, TrainingError
from cfnade.fitted_model import FittedModel, trained_on
from cfnade.online.bulk import last_event, ratings_frame
from cfnade.online.engine import Store, open_store
from cfnade.online.erasure import count_forgotten
from cfnade.online.holdout import LEAST, common_targets, holdout_split
from cfnade.online.publish import earlier, fingerprint, publish
from cfnade.training.callbacks import MessageCallback
from cfnade.training.implicit import implicit_plan
from cfnade.training.member import continued_member, finish_member
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan, plan_continuation
from cfnade.training.train import train
from cfnade.utils.files import LockedError, exclusive, write_text
from cfnade.utils.text import count_of

LOCK = "training.lock"
"""The same as that of `cfnade train`: one of them writes into a folder at a time."""
REJECTED = "refresh.json"
"""In the model's folder: the last refresh that was worse, so that it is not repeated."""
CALIBRATES = 1_000
"""Ratings asked for; by fewer a calibration is not made anew."""
EPOCHS = 1
Say = Callable[[str], None]


class FolderBusyError(TrainingError):
    """Another process trains or refreshes the model; the same may work later."""


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh came to."""

    published: bool
    why: str
    before: float | None = None
    """RMSE of the newest tenth by the model as it was, and by the one that went on."""
    after: float | None = None
    ratings: int = 0
    new_people: int = 0
    new_items: int = 0
    seconds: float = 0.0


def refresh(
    folder: Path,
    address: str,
    *,
    bar: float = 0.0,
    epochs: int = EPOCHS,
    threads: int | None = None,
    say: Say = lambda _: None,
) -> RefreshResult:
    """Train the folder's model on, and publish the result if its error is at most `bar` above."""
    with alone(folder), closing(open_store(address)) as store:
        return _refresh(folder, store, bar, epochs, threads, say)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Inside, nobody else trains into the folder; however this process ends, others may then."""
    if not folder.is_dir():
        raise TrainingError(f"{folder}: there is no such folder; give that of a saved model")
    try:
        with exclusive(folder / LOCK):
            yield
    except LockedError as holder:
        raise FolderBusyError(
            f"{folder}: {holder} is training or refreshing it; wait until that has ended"
        ) from None


def _refresh(
    folder: Path, store: Store, bar: float, epochs: int, threads: int | None, say: Say
) -> RefreshResult:
    began, now = time.monotonic(), int(time.time())
    fitted = checkpoint.load(folder)
    _check(fitted, folder)
    with store.reading() as connection:
        last = last_event(connection)
    seen = fitted.facts.get("store", {})
    _drop_earlier_of_forgotten(folder, store, say)
    gone = _count_forgotten(store, fitted)
    if seen.get("event") == last and not gone:
        return RefreshResult(False, "nothing has come since the last refresh")
    attempt = {"model": fingerprint(folder), "event": last, "bar": bar, "epochs": epochs}
    if not gone and _rejected(folder) == attempt:
        return RefreshResult(False, "nothing has come since the last refresh, which was worse")
    ratings = ratings_for(fitted, store)
    if len(ratings) < LEAST or 2 * len(ratings) < len(fitted.context):
        raise TrainingError(
            f"{store.shown}: {len(ratings):,} ratings count there, and {folder} was trained on "
            f"{len(fitted.context):,}; bring those into the store first: cfnade store import "
            f"{store.shown} RATINGS"
        )
    split = holdout_split(ratings, fitted)
    old = extend_model(fitted, split.train)
    context = split.train.concat(split.fold_in)
    asked = common_targets(split, fitted)
    before = evaluate(replace(old, context=context), asked).rmse
    say(f"{count_of(len(ratings), 'rating')}; the model as it is: RMSE {before:.4f} of the newest")
    candidate = _trained_on(fitted, split, epochs, threads, say)
    after = evaluate(replace(candidate, context=context), asked).rmse
    new = RefreshResult(
        published=True,
        why=f"RMSE {after:.4f} of the newest, {before:.4f} before",
        before=before,
        after=after,
        ratings=len(ratings),
        new_people=_new(ratings, fitted, "user"),
        new_items=_new(ratings, fitted, "item"),
    )
    note = {"store": {"event": last, "at": now, "address": store.shown}}
    chosen = candidate
    if after > before + bar:
        if not gone:
            seconds = time.monotonic() - began
            why = f"{new.why}: worse, so the model stays"
            write_text(folder / REJECTED, json.dumps(attempt) + "\n")
            return replace(new, published=False, why=why, seconds=seconds)
        # Who was forgotten must go all the same: the old weights, without them, if that can be.
        why = f"{new.why}: worse; published all the same, as {gone} people were forgotten"
        new = replace(new, why=why)
        if fitted.interaction_model is None:
            new = replace(new, why=f"{new.why}, with the weights as they were")
            chosen = replace(old, context=ratings, calibration=fitted.calibration)
    if chosen is candidate:
        chosen = refit_closed_form(candidate, ratings)
    publish(replace(chosen, facts=chosen.facts | note), folder)
    _drop_earlier_of_forgotten(folder, store, say)
    say(f"published {fingerprint(folder)}")
    return replace(new, seconds=time.monotonic() - began)


def _rejected(folder: Path) -> Any:
    """What was tried when a refresh was last not published; None if it cannot be read."""
    try:
        return json.loads((folder / REJECTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _count_forgotten(store: Store, fitted: FittedModel) -> int:
    """How many people whose ratings the model holds were forgotten since it was trained."""
    since = int(fitted.facts.get("store", {}).get("at", 0))
    return count_forgotten(store, fitted.context.user_ids.tolist(), since)


def _drop_earlier_of_forgotten(folder: Path, store: Store, say: Say) -> None:
    """Remove the earlier models that hold people who were forgotten since."""
    dropped = 0
    for one in earlier(folder):
        try:
            holds = _count_forgotten(store, checkpoint.load(one))
        except CfnadeError as error:
            say(
                f"{one}: cannot be read, so it stays; remove it if it may hold forgotten people: "
                f"{error}"
            )
            continue
        if holds:
            shutil.rmtree(one)
            dropped += 1
    if dropped:
        say(f"{dropped} earlier models went: they held people who were forgotten")


def _check(fitted: FittedModel, folder: Path) -> None:
    if not fitted.rates:
        raise TrainingError(
            f"{folder}: knows no ratings, only what people pick; train it anew: cfnade train "
            f"store:ADDRESS --implicit --out {folder} --overwrite"
        )
    if not fitted.has_context or fitted.needs_times:
        what = "knows time" if fitted.needs_times else "was saved without its ratings"
        raise TrainingError(
            f"{folder}: {what}, so it cannot be refreshed; train it anew: cfnade train "
            f"store:ADDRESS --out {folder} --overwrite"
        )


# -- data ----------------------------------------------------------------------------------------


def ratings_for(fitted: FittedModel, store: Store) -> Dataset:
    """All ratings that count, on the model's scale, with its titles where the store has none."""
    columns = read_frame(ratings_frame(store), LoadOptions())
    ratings = build(columns, LoadOptions(scale=fitted.context.scale))
    context = fitted.context
    places = places_of(ratings.item_ids, context.item_ids)
    told: dict[str, Any] = {}
    for name in ("titles", "genres"):
        have, had = getattr(ratings, name), getattr(context, name)
        if had is not None:
            mine = np.full(len(places), "", object) if have is None else np.array(have, object)
            lacking = (mine == "") & (places >= 0)
            mine[lacking] = np.asarray(had, object)[places[lacking]]
            told[name] = mine
    return ratings.replace(**told)


def _new(ratings: Dataset, fitted: FittedModel, axis: Any) -> int:
    """How many people or items the model has never met."""
    return int((places_of(ratings.ids(axis), fitted.context.ids(axis)) < 0).sum())


# -- models --------------------------------------------------------------------------------------


def extend_model(fitted: FittedModel, ratings: Dataset) -> FittedModel:
    """The same weights with the ids and ratings of others: what is new is folded in."""
    members = tuple(
        widened(member, fitted.context, ratings, dict(fitted.trained_on))
        for member in fitted.members
    )
    counts = {
        axis: recounted(levels, places_of(ratings.ids(axis), fitted.context.ids(axis)))
        for axis, levels in fitted.trained_on.items()
    }
    return replace(
        fitted, answering=members, context=ratings, trained_on=counts, interaction_model=None
    )


def _trained_on(
    fitted: FittedModel, split: Split, epochs: int, threads: int | None, say: Say
) -> FittedModel:
    plan = replace(
        continuation(fitted, epochs),
        implicit=None if fitted.interaction_model is None else implicit_plan(split.train),
    )
    options = RunOptions(n_threads=threads, init_model=fitted, callbacks=[MessageCallback(say)])
    trained = train(split, plan, options)
    if trained.diverged is not None:
        raise CfnadeError(f"{trained.diverged}; the model stays as it is")
    made = trained.model
    if len(split.valid) < CALIBRATES:
        as_before = fitted.calibration, fitted.calibration_of_new
        made = replace(made, calibration=as_before[0], calibration_of_new=as_before[1])
    kept = {
        name: fitted.facts[name]
        for name in ("run_config", "auto", "arguments")
        if name in fitted.facts
    }
    run = made.facts["run"] | {"settings": fitted.facts["run"]["settings"]}
    return replace(made, side=fitted.side, facts=made.facts | kept | {"run": run})


def refit_closed_form(fitted: FittedModel, ratings: Dataset) -> FittedModel:
    """With what is made from ratings, and not trained, made of all of them; what training added
    stays. A model that has members without such a part stays as it is."""
    if not all(any(s.starts_well for s in m.components.values()) for m in fitted.members):
        return fitted
    members = []
    for number, plan in enumerate(continuation(fitted, 0).members):
        members.append(continued_member(fitted, number, ratings, plan.training))
        finish_member(members[-1], ratings)
    return replace(fitted, answering=tuple(members), trained_on=trained_on(fitted.axes, ratings))


def continuation(fitted: FittedModel, epochs: int) -> TrainingPlan:
    """Return how each member continues: as it was trained, for at most so many epochs."""
    plan = plan_continuation(fitted)
    return replace(
        plan,
        members=tuple(
            replace(one, training=replace(one.training, epochs=min(epochs, one.training.epochs)))
            for one in plan.members
        ),
    )
