"""Refresh a model: continue its training on the current ratings of a store, and publish it.

The newest tenth of the ratings is held out. The old model and the new one are compared on it; the
new one is published if it is not worse, after its closed-form components were fitted to all
ratings.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade import checkpoint
from cfnade.data.dataset import Dataset, match_ids, match_tables, pair_keys
from cfnade.data.load import LoadOptions
from cfnade.data.readers.tables import read_frame
from cfnade.data.split_protocols import FOLD_IN, TRAIN, VALID, newest
from cfnade.data.splits import Split, apply_labels
from cfnade.data.validate import build
from cfnade.evaluation.evaluate import evaluate
from cfnade.exceptions import CfnadeError, TrainingError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.online.bulk import ratings_frame
from cfnade.online.event_store import EventStore
from cfnade.online.publish import earlier_versions, fingerprint, publish
from cfnade.training.callbacks import MessageCallback
from cfnade.training.implicit import implicit_plan
from cfnade.training.member import continued_member, finish_member
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan, plan_continuation
from cfnade.training.train import train
from cfnade.utils.files import LockedError, exclusive, write_text
from cfnade.utils.text import count_of

LOCK = "training.lock"
"""The lock of `cfnade train`, too: one process at a time writes a model folder."""
_REJECTED = "refresh.json"
"""The last refresh that was not published, so that it is not repeated."""
_HOLDOUT = 0.1
_MIN_RATINGS = 50
"""Of a comparison, and of a store."""
_MIN_CALIBRATION_RATINGS = 1_000
_UNCHANGED = "the store has no new events since the last refresh"
Log = Callable[[str], None]


class FolderBusyError(TrainingError):
    """Another process trains or refreshes the model."""


@dataclass(frozen=True)
class RefreshResult:
    """The outcome of a refresh."""

    published: bool
    reason: str
    rmse_before: float | None = None
    """RMSE of the old model on the newest ratings."""
    rmse_after: float | None = None
    n_ratings: int = 0
    n_new_users: int = 0
    n_new_items: int = 0
    seconds: float = 0.0


def refresh(
    model_dir: Path,
    store_url: str,
    *,
    tolerance: float = 0.0,
    epochs: int = 1,
    n_threads: int | None = None,
    log: Log = lambda _: None,
) -> RefreshResult:
    """Continue the training of a model on the ratings of a store, and publish the result.

    Args:
        model_dir: Folder of the model.
        store_url: The store.
        tolerance: Accepted increase of the RMSE on the newest ratings.
        epochs: Epochs of continued training.
        n_threads: Threads of training.
        log: Called with lines about the progress.
    """
    with locked_model(model_dir), closing(EventStore.open(store_url)) as store:
        return _refresh(model_dir, store, tolerance, epochs, n_threads, log)


@contextmanager
def locked_model(model_dir: Path) -> Iterator[None]:
    """Hold the lock of a model folder, which ends with the process."""
    if not model_dir.is_dir():
        raise TrainingError(f"{model_dir}: there is no such folder; give that of a saved model")
    try:
        with exclusive(model_dir / LOCK):
            yield
    except LockedError as holder:
        raise FolderBusyError(
            f"{model_dir}: {holder} is training or refreshing it; wait until it ends"
        ) from None


def _refresh(
    model_dir: Path,
    store: EventStore,
    tolerance: float,
    epochs: int,
    n_threads: int | None,
    log: Log,
) -> RefreshResult:
    start, now = time.monotonic(), int(time.time())
    fitted = checkpoint.load(model_dir)
    _require_refreshable(fitted, model_dir)
    last_event = store.last_event_id()
    _delete_versions_of_erased_users(model_dir, store, log)
    n_erased = _count_erased(store, fitted)
    attempt = {
        "model": fingerprint(model_dir),
        "event_id": last_event,
        "tolerance": tolerance,
        "epochs": epochs,
    }
    if not n_erased:
        if fitted.metadata.get("store", {}).get("event_id") == last_event:
            return RefreshResult(False, _UNCHANGED)
        if _read_rejected(model_dir) == attempt:
            return RefreshResult(False, f"{_UNCHANGED}, which was worse")
    ratings = current_ratings(fitted, store)
    if len(ratings) < _MIN_RATINGS or 2 * len(ratings) < len(fitted.context):
        raise TrainingError(
            f"{store.name}: has {len(ratings):,} ratings, and {model_dir} was trained on "
            f"{len(fitted.context):,}; import those first: cfnade store import {store.name} RATINGS"
        )
    split = holdout_split(ratings, fitted)
    extended = fitted.extend(split.train)
    context = split.train.concat(split.fold_in)
    targets = common_targets(split, fitted)
    before = evaluate(replace(extended, context=context), targets).rmse
    log(f"{count_of(len(ratings), 'rating')}; current model: RMSE {before:.4f} on the newest")
    candidate = _continue_training(fitted, split, epochs, n_threads, log)
    after = evaluate(replace(candidate, context=context), targets).rmse
    reason = f"RMSE {after:.4f} on the newest ratings, {before:.4f} before"
    is_worse = after > before + tolerance
    is_published = not is_worse or n_erased > 0
    if not is_published:
        reason += ": worse, so the model stays"
        write_text(model_dir / _REJECTED, json.dumps(attempt) + "\n")
    else:
        if is_worse:  # a model without the erased users is published in any case
            reason += f": worse, published to erase {count_of(n_erased, 'user')}"
        if is_worse and fitted.interaction_model is None:
            reason += ", with the old weights"
            model = replace(extended, context=ratings, calibration=fitted.calibration)
        else:
            model = refit_closed_form(candidate, ratings)
        note = {"store": {"event_id": last_event, "timestamp": now, "url": store.name}}
        publish(replace(model, metadata=model.metadata | note), model_dir)
        _delete_versions_of_erased_users(model_dir, store, log)
        log(f"published {fingerprint(model_dir)}")
    old = fitted.context
    return RefreshResult(
        published=is_published,
        reason=reason,
        rmse_before=before,
        rmse_after=after,
        n_ratings=len(ratings),
        n_new_users=int((match_tables(ratings.user_ids, old.user_ids) < 0).sum()),
        n_new_items=int((match_tables(ratings.item_ids, old.item_ids) < 0).sum()),
        seconds=time.monotonic() - start,
    )


def _read_rejected(model_dir: Path) -> Any:
    try:
        return json.loads((model_dir / _REJECTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _require_refreshable(fitted: FittedModel, model_dir: Path) -> None:
    if fitted.predicts_ratings and fitted.has_context and not fitted.needs_times:
        return
    option = ""
    if not fitted.predicts_ratings:
        reason, option = "is a model of interactions", " --implicit"
    else:
        reason = "depends on timestamps" if fitted.needs_times else "was saved without its ratings"
    raise TrainingError(
        f"{model_dir}: {reason}, so it cannot be refreshed; train it again: cfnade train "
        f"store:STORE{option} --out {model_dir} --overwrite"
    )


# -- erased users ---------------------------------------------------------------------------------


def _count_erased(store: EventStore, fitted: FittedModel) -> int:
    """Return how many users of a model were erased since its training."""
    since = int(fitted.metadata.get("store", {}).get("timestamp", 0))
    return store.count_erased(fitted.context.user_ids.tolist(), since)


def _delete_versions_of_erased_users(model_dir: Path, store: EventStore, log: Log) -> None:
    """Delete earlier versions that contain users who were erased since."""
    n_deleted = 0
    for version in earlier_versions(model_dir):
        try:
            n_erased = _count_erased(store, checkpoint.load(version))
        except CfnadeError as error:
            log(
                f"{version}: cannot be read and is kept; delete it if it may contain erased "
                f"users: {error}"
            )
            continue
        if n_erased:
            shutil.rmtree(version)
            n_deleted += 1
    if n_deleted:
        log(f"deleted {count_of(n_deleted, 'earlier version')} with erased users")


# -- ratings and holdout --------------------------------------------------------------------------


def current_ratings(fitted: FittedModel, store: EventStore) -> Dataset:
    """Return the current ratings on the model's scale, with its titles where the store has none."""
    columns = read_frame(ratings_frame(store), LoadOptions())
    context = fitted.context
    ratings = build(columns, LoadOptions(scale=context.scale))
    places = match_tables(ratings.item_ids, context.item_ids)
    merged: dict[str, Any] = {}
    for name in ("titles", "genres"):
        stored, earlier = getattr(ratings, name), getattr(context, name)
        if earlier is not None:
            texts = np.full(len(places), "", object) if stored is None else np.array(stored, object)
            is_missing = (texts == "") & (places >= 0)
            texts[is_missing] = np.asarray(earlier, object)[places[is_missing]]
            merged[name] = texts
    return ratings.replace(**merged)


def holdout_split(ratings: Dataset, fitted: FittedModel) -> Split:
    """Hold out the newest ratings that the model was not trained on, or one of two would know more.

    If these are too few, the newest are held out whether known or not.
    """
    split = newest_split(ratings, ~_in_context(ratings, fitted.context))
    return split if len(split.valid) >= _MIN_RATINGS else newest_split(ratings)


def newest_split(ratings: Dataset, allowed: npt.NDArray[np.bool_] | None = None) -> Split:
    """Split off the newest tenth, as far as it is allowed.

    Of each user's ratings there, the earlier half is given (fold-in) and the later half predicted:
    the model meets new users as the service does.
    """
    assert ratings.times is not None  # a store has them
    parts = np.full(len(ratings), TRAIN, np.uint8)
    is_newest = newest(ratings.times, ceil(_HOLDOUT * len(ratings)))
    held = np.flatnonzero(is_newest if allowed is None else is_newest & allowed)
    order = held[np.lexsort((ratings.times[held], ratings.users[held]))]
    _, counts = np.unique(ratings.users[order], return_counts=True)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_later_half = rank >= np.repeat(counts // 2, counts)
    parts[order] = np.where(is_later_half, np.uint8(VALID), np.uint8(FOLD_IN))
    return apply_labels(ratings, parts, "the newest tenth")


def _in_context(ratings: Dataset, context: Dataset) -> npt.NDArray[np.bool_]:
    """Return which ratings are of (user, item) pairs of the context."""
    users = match_tables(context.user_ids, ratings.user_ids)[context.users]
    items = match_tables(context.item_ids, ratings.item_ids)[context.items]
    shared = (users >= 0) & (items >= 0)
    pairs = np.sort(users[shared] * ratings.n_items + items[shared])
    return match_ids(pairs, pair_keys(ratings.users, ratings.items, ratings.n_items)) >= 0


def common_targets(split: Split, fitted: FittedModel) -> Dataset:
    """Return the validation ratings of users and items that both models were trained on.

    If these are too few, all validation ratings are returned.
    """
    valid, in_both = split.valid, np.ones(len(split.valid), bool)
    for axis, counts in fitted.counts_for(valid).items():
        trained = (counts.sum(1) > 0) & (split.train.level_counts(axis).sum(1) > 0)
        in_both &= trained[valid.users if axis == "user" else valid.items]
    return valid.select(in_both) if in_both.sum() >= _MIN_RATINGS else valid


# -- training -------------------------------------------------------------------------------------


def _continue_training(
    fitted: FittedModel, split: Split, epochs: int, n_threads: int | None, log: Log
) -> FittedModel:
    plan = _continuation(fitted, epochs)
    if fitted.interaction_model is not None:
        plan = replace(plan, implicit=implicit_plan(split.train))
        tuning = fitted.metadata.get("lists", {}).get("plan", {})
        plan = plan.with_metric(**tuning.get("metric", {}))
    options = RunOptions(n_threads=n_threads, init_model=fitted, callbacks=[MessageCallback(log)])
    result = train(split, plan, options)
    if result.diverged is not None:
        raise CfnadeError(f"{result.diverged}; the model stays as it is")
    model = result.model
    if len(split.valid) < _MIN_CALIBRATION_RATINGS:
        model = replace(
            model,
            calibration=fitted.calibration,
            calibration_of_new=fitted.calibration_of_new,
        )
    names = ("run_config", "auto", "arguments")
    metadata = {name: fitted.metadata[name] for name in names if name in fitted.metadata}
    run = model.metadata["run"] | {"settings": fitted.metadata["run"]["settings"]}
    return replace(model, side=fitted.side, metadata=model.metadata | metadata | {"run": run})


def refit_closed_form(fitted: FittedModel, ratings: Dataset) -> FittedModel:
    """Fit the closed-form components to all ratings, and keep what training added to them.

    A model with a member without such a component stays as it is.
    """
    members = fitted.members
    if not all(any(part.starts_well for part in m.components.values()) for m in members):
        return fitted
    refitted = []
    for number, plan in enumerate(_continuation(fitted, 0).members):
        refitted.append(continued_member(fitted, number, ratings, plan.training))
        finish_member(refitted[-1], ratings)
    return replace(
        fitted,
        members=tuple(refitted),
        training_counts=count_training_ratings(fitted.axes, ratings),
    )


def _continuation(fitted: FittedModel, epochs: int) -> TrainingPlan:
    """Return a plan that continues each member as it was trained, for at most so many epochs."""
    plan = plan_continuation(fitted)
    members = [
        replace(m, training=replace(m.training, epochs=min(epochs, m.training.epochs)))
        for m in plan.members
    ]
    return replace(plan, members=tuple(members))
