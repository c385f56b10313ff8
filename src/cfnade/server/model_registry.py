"""The model that is served, and how another takes its place while requests go on.

A request takes the current model once and keeps it to its end. A new one is loaded and warmed up
beside the old one and then put in its place in one assignment; one that cannot be loaded is
logged, and the old one goes on. It is looked for at the start, on SIGHUP, and now and then if asked
to watch.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.checkpoint.folder import folder_version, resolve_file
from cfnade.checkpoint.manifest import MANIFEST, read_manifest
from cfnade.exceptions import CfnadeError, PredictionError
from cfnade.inference.predictor import Predictor
from cfnade.server.errors import ApiError
from cfnade.server.item_map import item_map
from cfnade.server.item_metadata import ItemMetadata, item_metadata
from cfnade.server.sample_profiles import samples_of
from cfnade.server.settings import MAPPED
from cfnade.utils.caching import locked_cached_property

_log = logging.getLogger("cfnade.server")
_FAILURES = (CfnadeError, OSError, MemoryError, RuntimeError)
_BREATH = 1.0
"""Seconds after the first model was loaded in which questions have the processor to themselves."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to answer."""

    predictor: Predictor
    name: str
    fingerprint: str
    saved_at: float
    loaded_at: datetime
    counts: npt.NDArray[np.int64]  # (items,) training ratings
    popular: npt.NDArray[np.int64]  # (items,) indices, the most rated first
    metadata: ItemMetadata

    @locked_cached_property
    def samples(self) -> list[dict[str, Any]]:
        """Tastes to begin with, found by title."""
        return samples_of(self.predictor, self.counts)

    def warm_up(self) -> None:
        """Make what is made once, so that no request waits for it."""
        _ask_everything(self.predictor)
        self.read_titles()

    def read_titles(self) -> None:
        """Make what finds items by title, which takes longer than all else that is made once."""
        if self.predictor.catalog.titles is not None:
            self.predictor.catalog.certain("a")
            self.predictor.catalog.search("a", 1)
        self.samples  # noqa: B018  # made when first read

    @locked_cached_property
    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The map: items (n,), and where they are (n, 2). It takes a second, once."""
        try:
            return item_map(self.predictor, MAPPED)
        except PredictionError:  # no side has vectors of items
            return np.zeros(0, np.int64), np.zeros((0, 2))


class ModelRegistry:
    """The folder that is served and the model last loaded from it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.loads: Counter[str] = Counter(loaded=0, failed=0)
        self._loaded: LoadedModel | None = None
        self._seen: tuple[object, ...] | None = None
        self._complaint: str | None = None
        self._loading = threading.Lock()

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    def current(self) -> LoadedModel:
        """The model to answer with."""
        if self._loaded is None:
            raise ApiError(
                503, "the model is being loaded; try again", headers={"Retry-After": "1"}
            )
        return self._loaded

    def load(self) -> None:
        """Put the folder's model in place of the one before; on an error that one stays."""
        with self._loading:
            seen = folder_version(self.folder, MANIFEST)
            loaded, first = _load(self.folder), not self.ready
            if not first:  # the old one answers meanwhile
                loaded.warm_up()
            self._loaded = loaded
            # Only now: a copy that was half there is tried again until it is whole.
            self._seen, self._complaint = seen, None
            self.loads["loaded"] += 1
        if first:  # each question makes what it needs, and the rest does not delay the first one
            later = threading.Timer(_BREATH, _warm_and_settle, [loaded])
            later.daemon = True
            later.start()
        else:
            gc.unfreeze()  # the old one is in there
            _settle()

    def reload(self) -> bool:
        """Load again, or say in the log why the old model stays. Returns whether it was loaded."""
        try:
            self.load()
        except _FAILURES as error:
            if str(error) != self._complaint:
                _log.error("%s: not loaded, the old model goes on: %s", self.folder, error)
            self._complaint = str(error)
            self.loads["failed"] += 1
            return False
        _log.info("%s: loaded, %s", self.folder, self.current().fingerprint)
        return True

    def changed(self) -> bool:
        """Whether the folder holds another model than the one loaded."""
        return folder_version(self.folder, MANIFEST) != self._seen


def _load(folder: Path) -> LoadedModel:
    predictor = Predictor.load(folder)
    counts = predictor.item_counts
    return LoadedModel(
        predictor=predictor,
        name=folder.resolve().name,
        fingerprint=read_manifest(resolve_file(folder, MANIFEST))["check"],
        saved_at=resolve_file(folder, MANIFEST).stat().st_mtime,
        loaded_at=datetime.now(UTC),
        counts=counts,
        popular=np.argsort(-counts, kind="stable"),
        metadata=item_metadata(predictor),
    )


def _ask_everything(predictor: Predictor) -> None:
    """Read kernels, or compile them, and fill what is computed once."""
    fitted, first = predictor.fitted, np.zeros(1, np.int64)
    predictor.genres  # noqa: B018  # made when first read
    rated = {predictor.items.raw(0): predictor.scale.values[0]}
    people: list[dict[str, Any]] = [{"history": rated}] if fitted.takes_histories else []
    if fitted.has_context:
        people.append({"user": predictor.users.raw(0)})
    if fitted.needs_times:
        if fitted.has_context:
            predictor.predicted(first, **people[-1], timestamp=0)
        return
    with suppress(PredictionError):  # one without ratings may know no vectors
        predictor.similar_items(predictor.items.raw(0), n=1)
    for who in people:
        predictor.ranked(**who, n=1)
        if fitted.rates:
            predictor.ranked(**who, n=1, rank_by="threshold")
            predictor.predicted(first, **who)
        predictor.explain(item=predictor.items.raw(0), **who)


def _warm_and_settle(loaded: LoadedModel) -> None:
    try:
        loaded.warm_up()
    except _FAILURES as error:
        _log.error("%s: not warmed up, so that first answers take longer: %s", loaded.name, error)
    _settle()


def _settle() -> None:
    """Keep what lasts out of the collector's sight: its rounds would halt requests for long."""
    gc.collect()
    gc.freeze()


# -- when another is looked for -----------------------------------------------------------------

_SIGNAL = getattr(signal, "SIGHUP", None)  # there is none on Windows


@asynccontextmanager
async def keep_fresh(models: ModelRegistry, watch: float | None) -> AsyncIterator[None]:
    """Load the model if there is none yet; inside, reload it on SIGHUP and when it changes."""
    if not models.ready:
        await asyncio.to_thread(models.load)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    listens = _SIGNAL is not None and threading.current_thread() is threading.main_thread()
    if _SIGNAL is not None and listens:
        loop.add_signal_handler(_SIGNAL, asked.set)
    task = asyncio.create_task(_refresh(models, asked, watch))
    try:
        yield
    finally:
        if _SIGNAL is not None and listens:
            loop.remove_signal_handler(_SIGNAL)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _refresh(models: ModelRegistry, asked: asyncio.Event, watch: float | None) -> None:
    while True:
        try:
            async with asyncio.timeout(watch):
                await asked.wait()
            due = True
        except TimeoutError:
            due = await asyncio.to_thread(models.changed)
        asked.clear()
        if due:
            await asyncio.to_thread(models.reload)
