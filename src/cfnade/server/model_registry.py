"""The model that is served, and how another one takes its place while requests go on.

A request takes the current model once and keeps it to its end. A new one is loaded and warmed up
beside the old one and then swapped in by one assignment; if it cannot be loaded, the reason is
logged and the old one stays.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
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

from cfnade._typing import IntArray
from cfnade.checkpoint.folder import folder_version, resolve_file
from cfnade.checkpoint.manifest import MANIFEST, read_manifest
from cfnade.exceptions import CfnadeError, PredictionError
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankingOptions
from cfnade.server.errors import ApiError
from cfnade.server.item_map import FloatArray, item_map
from cfnade.server.sample_profiles import sample_profiles
from cfnade.server.settings import MAX_MAP_ITEMS
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import ComputationCancelledError, cancelled_by

_log = logging.getLogger("cfnade.server")
_LOAD_ERRORS = (CfnadeError, OSError, MemoryError, RuntimeError)
_WARM_UP_DELAY = 1.0
"""Seconds after the start in which the first requests have the processor to themselves."""
_MIN_DATED = 0.8
"""The share of titles with a year from which items are called films."""
_YEAR = re.compile(r"\((\d{4})\)\s*$")


@dataclass(frozen=True, eq=False)
class ItemMetadata:
    """Genres and years, by item."""

    genres: list[list[str]]
    years: IntArray
    """0 where the title has none."""
    decades: list[dict[str, int]]
    """Those with items, the latest first."""
    item_name: str
    """Film where titles have years, else item."""

    @classmethod
    def from_predictor(cls, predictor: Predictor) -> ItemMetadata:
        n, titles = len(predictor.items.table), predictor.catalog.titles
        genres: list[list[str]] = [[] for _ in range(n)]
        for name, mask in predictor.genres.items():
            for item in np.flatnonzero(mask).tolist():
                genres[item].append(name)
        matches = [None] * n if titles is None else [_YEAR.search(str(title)) for title in titles]
        years = np.array([int(match[1]) if match else 0 for match in matches], np.int64)
        counts = Counter((years[years > 0] // 10 * 10).tolist())
        decades = [
            {"decade": decade, "n_items": counts[decade]} for decade in sorted(counts, reverse=True)
        ]
        is_dated = np.count_nonzero(years) >= _MIN_DATED * n
        return cls(genres, years, decades, "film" if is_dated else "item")

    def in_decades(self, decades: list[int]) -> IntArray:
        """Return the indices of the items of any of these."""
        return np.flatnonzero(np.isin(self.years // 10 * 10, decades) & (self.years > 0))


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model and what is computed from it once."""

    predictor: Predictor
    name: str
    fingerprint: str
    saved_at: float
    loaded_at: datetime
    counts: IntArray  # (items,) training ratings
    popular: IntArray  # (items,) indices, the most rated first
    metadata: ItemMetadata

    @classmethod
    def load(cls, folder: Path) -> LoadedModel:
        predictor = Predictor.load(folder)
        counts = predictor.item_counts
        return cls(
            predictor=predictor,
            name=folder.resolve().name,
            fingerprint=read_manifest(resolve_file(folder, MANIFEST))["check"],
            saved_at=resolve_file(folder, MANIFEST).stat().st_mtime,
            loaded_at=datetime.now(UTC),
            counts=counts,
            popular=np.argsort(-counts, kind="stable"),
            metadata=ItemMetadata.from_predictor(predictor),
        )

    @locked_cached_property
    def sample_profiles(self) -> list[dict[str, Any]]:
        """Example users, whose items are found by title."""
        return sample_profiles(self.predictor, self.counts)

    @locked_cached_property
    def item_map(self) -> tuple[IntArray, FloatArray]:
        """Items (n,) and their positions (n, 2); it takes a second, once."""
        try:
            return item_map(self.predictor, MAX_MAP_ITEMS)
        except PredictionError:  # no component has vectors of items
            return np.zeros(0, np.int64), np.zeros((0, 2))

    def warm_up(self) -> None:
        """Compute and compile everything that is needed once, so that no request waits for it."""
        predictor, fitted = self.predictor, self.predictor.fitted
        predictor.genres  # noqa: B018  # cached when first read
        item, first = predictor.items.raw(0), np.zeros(1, np.int64)
        users = []
        if fitted.has_context:
            users.append(predictor.resolve_user(predictor.users.raw(0)))
        if fitted.needs_times:
            for user in users:
                predictor.predict_items(user, first, timestamp=0)
        else:
            if fitted.takes_histories:
                history = {item: predictor.scale.values[0]}
                users.append(predictor.resolve_user(history=history))
            with suppress(PredictionError):  # a model without vectors of items
                predictor.similar_items(0, n=1)
            for user in users:
                predictor.recommend(user, RankingOptions(n=1))
                if fitted.predicts_ratings:
                    predictor.predict_items(user, first)
                predictor.explain(user, 0)
        # Last, the indices of titles, which take longer than the rest.
        if predictor.catalog.titles is not None:
            predictor.catalog.certain("a")
            predictor.catalog.search("a", 1)
        self.sample_profiles  # noqa: B018  # cached when first read


class ModelRegistry:
    """The model directory being served and the model loaded from it."""

    def __init__(self, model_dir: str | Path) -> None:
        self.model_dir = Path(model_dir)
        self.loads: Counter[str] = Counter(loaded=0, failed=0)
        self._model: LoadedModel | None = None
        self._version: tuple[object, ...] | None = None
        self._last_error: str | None = None
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        return self._model is not None

    def current(self) -> LoadedModel:
        """Return the model to answer with."""
        if self._model is None:
            raise ApiError(
                503, "the model is being loaded; try again", headers={"Retry-After": "1"}
            )
        return self._model

    def load(self) -> None:
        """Load the model beside the old one, then swap; on an error the old one stays.

        The first model is not warmed up here: each request computes what it needs, and the rest
        does not delay the first answer.
        """
        with self._lock:
            version = folder_version(self.model_dir, MANIFEST)
            model = LoadedModel.load(self.model_dir)
            if self.ready:
                model.warm_up()
            is_first, self._model = not self.ready, model
            # Only now: a copy that was incomplete is tried again until it is complete.
            self._version, self._last_error = version, None
            self.loads["loaded"] += 1
        if not is_first:
            gc.unfreeze()  # releases the old model
            _freeze_garbage_collector()

    def reload(self) -> bool:
        """Load again; on failure log the reason and keep the old model."""
        try:
            self.load()
        except _LOAD_ERRORS as error:
            if str(error) != self._last_error:
                _log.error("%s: not loaded, the old model stays: %s", self.model_dir, error)
            self._last_error = str(error)
            self.loads["failed"] += 1
            return False
        _log.info("%s: loaded, %s", self.model_dir, self.current().fingerprint)
        return True

    def changed(self) -> bool:
        """Whether the directory holds another model than the one loaded."""
        return folder_version(self.model_dir, MANIFEST) != self._version

    @asynccontextmanager
    async def watch(self, interval: float | None) -> AsyncIterator[None]:
        """Load and warm up the model; inside, reload it on SIGHUP and when it changes."""
        if not self.ready:
            await asyncio.to_thread(self.load)
        loop, requested = asyncio.get_running_loop(), asyncio.Event()
        signal_number = getattr(signal, "SIGHUP", None)  # there is none on Windows
        if threading.current_thread() is not threading.main_thread():
            signal_number = None
        if signal_number is not None:
            loop.add_signal_handler(signal_number, requested.set)
        tasks = [
            asyncio.create_task(self._warm_up_later()),
            asyncio.create_task(self._reload_when_due(requested, interval)),
        ]
        try:
            yield
        finally:
            if signal_number is not None:
                loop.remove_signal_handler(signal_number)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _warm_up_later(self) -> None:
        await asyncio.sleep(_WARM_UP_DELAY)
        cancelled = threading.Event()
        try:
            await asyncio.to_thread(self._warm_up, cancelled)
        finally:  # whoever stops the service does not wait for it
            cancelled.set()

    def _warm_up(self, cancelled: threading.Event) -> None:
        try:
            with cancelled_by(cancelled):
                self.current().warm_up()
        except ComputationCancelledError:
            return
        except _LOAD_ERRORS as error:
            _log.error(
                "%s: not warmed up, so that first answers take longer: %s", self.model_dir, error
            )
        _freeze_garbage_collector()

    async def _reload_when_due(self, requested: asyncio.Event, interval: float | None) -> None:
        while True:
            try:
                async with asyncio.timeout(interval):
                    await requested.wait()
                due = True
            except TimeoutError:
                due = await asyncio.to_thread(self.changed)
            requested.clear()
            if due:
                await asyncio.to_thread(self.reload)


def _freeze_garbage_collector() -> None:
    """Exclude the model from garbage collection, whose rounds would halt requests."""
    gc.collect()
    gc.freeze()
