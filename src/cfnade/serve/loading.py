"""The model that is served, and how another takes its place while requests go on.

A request takes the current model once and keeps it to its end. A new one is loaded and warmed up
beside the old one and then put in its place in one assignment; one that cannot be loaded is
logged, and the old one goes on.
"""

from __future__ import annotations

import gc
import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.checkpoint.folders import current, snapshot
from cfnade.checkpoint.manifest import NAME, read_manifest
from cfnade.errors import CfnadeError
from cfnade.predictor import Predictor
from cfnade.serve.problems import Problem
from cfnade.serve.samples import samples_of

_log = logging.getLogger("cfnade.serve")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model ready to answer."""

    predictor: Predictor
    name: str
    fingerprint: str
    loaded_at: str
    counts: npt.NDArray[np.int64]  # (items,) training ratings
    popular: npt.NDArray[np.int64]  # (items,) indices, the most rated first
    samples: list[dict[str, Any]]


class Models:
    """The folder that is served and the model last loaded from it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._loaded: Loaded | None = None
        self._seen: tuple[object, ...] | None = None
        self._complaint: str | None = None
        self._loading = threading.Lock()

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    def current(self) -> Loaded:
        """The model to answer with."""
        if self._loaded is None:
            raise Problem(503, "the model is being loaded; try again", headers={"Retry-After": "1"})
        return self._loaded

    def load(self) -> None:
        """Put the folder's model in place of the one before; on an error that one stays."""
        with self._loading:
            seen = snapshot(self.folder, NAME)
            self._loaded = _load(self.folder)
            # Only now: a copy that was half there is tried again until it is whole.
            self._seen, self._complaint = seen, None
            _settle()

    def reload(self) -> bool:
        """Load again, or say in the log why the old model stays. Returns whether it was loaded."""
        try:
            self.load()
        except (CfnadeError, OSError, MemoryError, RuntimeError) as error:
            if str(error) != self._complaint:
                _log.error("%s: not loaded, the old model goes on: %s", self.folder, error)
            self._complaint = str(error)
            return False
        _log.info("%s: loaded, %s", self.folder, self.current().fingerprint)
        return True

    def changed(self) -> bool:
        """Whether the folder holds another model than the one loaded."""
        return snapshot(self.folder, NAME) != self._seen


def _load(folder: Path) -> Loaded:
    predictor = Predictor.load(folder)
    counts = item_counts(predictor)
    _warm_up(predictor)
    return Loaded(
        predictor=predictor,
        name=folder.resolve().name,
        fingerprint=read_manifest(current(folder, NAME))["check"],
        loaded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        counts=counts,
        popular=np.argsort(-counts, kind="stable"),
        samples=samples_of(predictor, counts),
    )


def item_counts(predictor: Predictor) -> npt.NDArray[np.int64]:
    """How many ratings each item has: of training for columns, of the context for rows."""
    bundle = predictor.bundle
    if bundle.side == "user":
        return np.asarray(bundle.column_counts.sum(1), np.int64)
    return np.bincount(bundle.context.items, minlength=bundle.context.n_items).astype(np.int64)


def _warm_up(predictor: Predictor) -> None:
    """Compile kernels and fill what is computed once, so that no request waits for it."""
    item = predictor.items.table[:1].tolist()[0]
    if predictor.bundle.context.titles is not None:
        predictor.search("a", limit=1)
    if predictor.bundle.side == "user":
        predictor.recommend(history={}, n=1)
        predictor.predict_frame("", item, histories={"": {}})
        predictor.explain(item=item, history={})
    if predictor.bundle.has_context:
        user = predictor.users.table[:1].tolist()[0]
        predictor.recommend([user], n=1)
        predictor.predict_frame(user, item)
        predictor.explain(item=item, user=user)


def _settle() -> None:
    """Keep what lasts out of the collector's sight: its rounds would halt requests for long."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
