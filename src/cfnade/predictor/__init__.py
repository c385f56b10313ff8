"""Predictor: raw ids and histories in, distributions and lists out.

Probabilities are calibrated, which keeps their mean. A rating that is known is predicted from the
other ratings of its row, never from itself. What the model has never met follows the rule "mean" of
models/unseen.py; the columns known_of_user and known_of_item, 0 there, tell.
A Predictor does not change, apart from what it computes once and keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from cfnade.bundle import Bundle
from cfnade.checkpoint import load
from cfnade.checkpoint.faults import fault_of
from cfnade.errors import PredictionError
from cfnade.predictor import frames
from cfnade.predictor.explain import by_item, by_level
from cfnade.predictor.histories import History, Person, read_history
from cfnade.predictor.ids import Ids, listed, paired
from cfnade.predictor.known import Known
from cfnade.predictor.recommend import best
from cfnade.predictor.scoring import FEW, NOTHING, Row, one_thread_if, row_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FEW_CELLS = 256


class _Answers(NamedTuple):
    """What is said of the cells asked for."""

    users: Any  # raw ids
    items: Any
    item_indices: IntArray
    probabilities: FloatArray  # (n, K), before calibration
    known_of_user: IntArray
    known_of_item: IntArray


class Predictor:
    """Answers questions from a bundle; nothing else is needed."""

    def __init__(self, bundle: Bundle) -> None:
        if reason := fault_of(bundle):
            raise PredictionError(f"the model cannot be used: {reason}")
        self.bundle = bundle
        self.scale = bundle.context.scale
        self.users = Ids("user", bundle.context.user_ids)
        self.items = Ids("item", bundle.context.item_ids)
        self._known = Known(bundle)
        self._values = self.scale.array()

    @classmethod
    def load(cls, folder: str | Path) -> Predictor:
        """From a checkpoint folder."""
        return cls(load(folder))

    def person(self, history: History) -> Person:
        """Read a history once, to use it often and to see which of its items are `unknown`."""
        self._require_user_based()
        return read_history(history, self.items, self.scale)

    # -- given cells --------------------------------------------------------------------------

    def predict_proba(
        self, users: Any, items: Any, *, histories: Mapping[Any, History] | None = None
    ) -> FloatArray:
        """The distribution of each (user, item), over the scale's values. Returns (n, K).

        A single user goes with all items, and the other way round. histories gives people by
        any name; where users contains that name, their history counts and nothing else.
        """
        return self._calibrated(self._answers(users, items, histories).probabilities)

    def predict(
        self, users: Any, items: Any, *, histories: Mapping[Any, History] | None = None
    ) -> FloatArray:
        """The expected rating of each (user, item), in stars. Returns (n,)."""
        found: FloatArray = self._answers(users, items, histories).probabilities @ self._values
        return found

    def predict_frame(
        self, users: Any, items: Any, *, histories: Mapping[Any, History] | None = None
    ) -> pl.DataFrame:
        """user, item, title, prediction, std, p_…, known_of_user, known_of_item of each cell."""
        said = self._answers(users, items, histories)
        return pl.DataFrame(
            {
                "user": frames.id_series(said.users, texts=self.users.are_texts),
                "item": frames.id_series(said.items, texts=self.items.are_texts),
                "title": frames.title_series(self.bundle.context, said.item_indices),
                **self._distribution(said.probabilities),
                "known_of_user": said.known_of_user,
                "known_of_item": said.known_of_item,
            }
        )

    # -- all items ----------------------------------------------------------------------------

    @torch.no_grad()
    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        n: int = 10,
        exclude_seen: bool = True,
    ) -> pl.DataFrame:
        """The n items of highest expected rating, for known users or for one person's history.

        Columns user (not for a history), rank, item, title, prediction, std, p_…, known_of_user,
        known_of_item. Of equal predictions the item of the lower id comes first.
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise PredictionError(f"n (={n!r}) must be a whole number of at least 1")
        raws, indices, rows = self._people(users, history)
        lines = self._known.scores(rows, indices, leave_out=not exclude_seen)
        chosen, chances = [], []
        with one_thread_if(self.bundle.side == "item" or len(rows) <= FEW):
            for row, scores in zip(rows, lines, strict=True):
                probabilities = scores.double().softmax(1).numpy()  # (items, K)
                seen = row.columns if exclude_seen else NOTHING.columns
                chosen.append(best(probabilities @ self._values, int(n), seen))
                chances.append(probabilities[chosen[-1]])
        return self._list(raws, indices, rows, chosen, chances)

    def _list(
        self,
        raws: Any,
        indices: IntArray,
        rows: list[Row],
        chosen: list[IntArray],
        chances: list[FloatArray],
    ) -> pl.DataFrame:
        lengths = [len(items) for items in chosen]
        items = np.concatenate([np.empty(0, np.int64), *chosen])
        of_user = [len(row.columns) for row in rows]
        if self.bundle.side == "item":
            of_user = self._known.of_columns(indices).tolist()
        columns: dict[str, Any] = {}
        if raws is not None:
            ids = frames.id_series(raws, texts=self.users.are_texts)
            columns["user"] = ids.gather(np.repeat(np.arange(len(ids)), lengths))
        columns["rank"] = np.concatenate([np.empty(0, np.int64), *map(_ranks, lengths)])
        columns["item"] = frames.id_series(self.items.table[items], texts=self.items.are_texts)
        columns["title"] = frames.title_series(self.bundle.context, items)
        columns |= self._distribution(np.concatenate([np.empty((0, len(self.scale))), *chances]))
        columns["known_of_user"] = np.repeat(np.array(of_user, np.int64), lengths)
        columns["known_of_item"] = self._known_of_items(items)
        return pl.DataFrame(columns)

    # -- why ----------------------------------------------------------------------------------

    @torch.no_grad()
    def explain(
        self, *, item: Any, user: Any = None, history: History | None = None
    ) -> pl.DataFrame:
        """How each known rating moved the prediction of one item, the strongest first.

        User-based: a line for each rating of the person: item, title, rating, prediction, what it
        would be `without` that rating, and the difference `change`.
        Item-based: a line for each level at which others rated the item: rating, count,
        prediction, `without` all of these, `change`, and `mean_change` of leaving out just one.
        """
        _, indices, rows = self._people(None if user is None else [user], history)
        at = self.items.index(item)
        if at < 0:
            raise PredictionError(f"item {item!r} is unknown to the model; nothing moves it")
        if history is None and indices[0] < 0:
            raise PredictionError(
                f"user {user!r} is unknown to the model, so no rating moved the prediction; "
                "give history= to explain it for a new person"
            )
        with one_thread_if(True):
            if self.bundle.side == "user":
                return by_item(self._known, rows[0], at)
            return by_level(self._known, int(indices[0]), at)

    # -- shared -------------------------------------------------------------------------------

    def _answers(self, users: Any, items: Any, histories: Mapping[Any, History] | None) -> _Answers:
        people = {name: self.person(history) for name, history in (histories or {}).items()}
        users, items = paired(users, items)
        item_indices = self.items.indices(items)
        places = {name: place for place, name in enumerate(people)}
        given = np.full(len(users), -1)  # place among the people with a history
        if places:
            given[:] = [places.get(_plain(user), -1) for user in users]
        out = np.empty((len(items), len(self.scale)))
        of_user = np.empty(len(items), np.int64)
        new = given >= 0
        if new.any():
            cells = self._known.cells_of(list(people.values()))
            with one_thread_if(len(items) <= _FEW_CELLS):
                out[new] = cells.probabilities(given[new], item_indices[new])
            of_user[new] = np.array([len(one) for one in people.values()])[given[new]]
        if not new.all():
            self._require_context()
            old = np.flatnonzero(~new)
            known = users[old] if isinstance(users, np.ndarray) else [users[i] for i in old]
            user_indices = self.users.indices(known)
            with one_thread_if(len(items) <= _FEW_CELLS):
                out[old] = self._known.cells.probabilities(user_indices, item_indices[old])
            of_user[old] = self._known_of_users(user_indices)
        return _Answers(
            users, items, item_indices, out, of_user, self._known_of_items(item_indices)
        )

    def _people(self, users: Any, history: History | None) -> tuple[Any, IntArray, list[Row]]:
        """Raw ids (None for a history), indices, and the items that each rated."""
        if (users is None) == (history is None):
            raise PredictionError("give either users or a history, and not both")
        if history is not None:
            person = self.person(history)
            return None, np.array([-1]), [Row(person.items, person.levels)]
        self._require_context()
        raws, _ = listed(users)
        indices = self.users.indices(raws)
        rows = [row_of(self._known.by_user, user) for user in indices.tolist()]
        return raws, indices, rows

    def _require_user_based(self) -> None:
        if self.bundle.side == "item":
            raise PredictionError(
                "this model is item-based: it knows the users of its training data only and takes "
                'no history of another person; train one with side="user" (on the command line: '
                "--side user) for that"
            )

    def _require_context(self) -> None:
        if not self.bundle.has_context:
            instead = "give a history, or use" if self.bundle.side == "user" else "use"
            raise PredictionError(
                "this model was saved without the ratings that it conditions on, so it knows no "
                f"user and nothing about anyone; {instead} a copy saved with its context"
            )

    def _known_of_users(self, users: IntArray) -> IntArray:
        known = self._known
        return known.of_rows(users) if self.bundle.side == "user" else known.of_columns(users)

    def _known_of_items(self, items: IntArray) -> IntArray:
        known = self._known
        return known.of_columns(items) if self.bundle.side == "user" else known.of_rows(items)

    def _calibrated(self, probabilities: FloatArray) -> FloatArray:
        calibration = self.bundle.calibration
        if calibration is None:
            return probabilities
        return calibration.apply(probabilities, self._values)

    def _distribution(self, probabilities: FloatArray) -> dict[str, pl.Series]:
        means = probabilities @ self._values  # calibration keeps it: no rounding moves a rank
        return frames.distribution_columns(self._calibrated(probabilities), means, self.scale)


def _ranks(length: int) -> IntArray:
    return np.arange(1, length + 1)


def _plain(raw: Any) -> Any:
    """A key as a dictionary knows it."""
    return raw.item() if isinstance(raw, np.generic) else raw
