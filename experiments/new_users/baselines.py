"""Baselines for new users: the global mean, shrunken means, LensKit's ALS with fold-in.

Options are chosen on the panel `valid`, users held out of the training users, and never on the
test. They are chosen for each history size separately, which favors the baselines: CF-NADE is one
model for all.
"""

from __future__ import annotations

import itertools
import os
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from cfnade.calibration.calibration import fit_calibration
from cfnade.data.dataset import Dataset
from experiments.new_users.panel import (
    HISTORY_SIZES,
    FloatArray,
    Panel,
    Predictions,
    Queries,
    Seconds,
)

MEANS, ALS = "shrunken means", "LensKit ALS, fold-in"
ITEM_SHRINKAGE = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
USER_SHRINKAGE = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
ALS_SIZES = (20, 50, 100)
ALS_REGULARIZATION: tuple[Any, ...] = (0.05, 0.1, 0.2, {"user": 0.3, "item": 0.1})

# Threads of torch, its matrix library, and LensKit's compiled code.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "LK_NUM_THREADS")


def global_mean(test: Panel) -> Predictions:
    """Predict the mean and the level frequencies of the training ratings."""
    start = Seconds.now()
    train = test.train
    frequencies = np.bincount(train.levels, minlength=len(train.scale)) / len(train)
    mean = train.values.mean()
    fit = Seconds.now().since(start)
    means = [np.full(len(q.targets), mean) for q in test.queries]
    probabilities = [np.tile(frequencies, (len(q.targets), 1)) for q in test.queries]
    return Predictions("global mean", means, probabilities, fit, Seconds(0.0, 0.0), {})


class ItemMeans:
    """The mean rating and the offset of each item: Σ(r - mean) / (count + shrinkage)."""

    def __init__(self, train: Dataset, shrinkage: float) -> None:
        self.mean = float(train.values.mean())
        counts = np.bincount(train.items, minlength=train.n_items)
        sums = np.bincount(train.items, train.values - self.mean, minlength=train.n_items)
        self.offsets = sums / (counts + shrinkage)  # (M,)

    def predict(self, queries: Queries, shrinkage: float) -> FloatArray:
        """Return mean + item offset + the user's offset by the history, (n,)."""
        residuals = queries.history_values() - self.mean - self.offsets[queries.items]
        sums = np.bincount(queries.history_rows(), residuals, minlength=queries.n_users)
        users = sums / (np.diff(queries.offsets) + shrinkage)  # (U,)
        items = self.offsets[queries.targets.items]
        return queries.clip(self.mean + items + users[queries.rows])


def shrunken_means(valid: Panel, test: Panel) -> Predictions:
    """Predict by offsets of items and users, with both shrinkages chosen on `valid`."""
    models = {item: ItemMeans(valid.train, item) for item in ITEM_SHRINKAGE}
    pairs = list(itertools.product(ITEM_SHRINKAGE, USER_SHRINKAGE))
    choices, valid_means = [], []
    for queries in valid.queries:
        candidates = [models[item].predict(queries, user) for item, user in pairs]
        best = _best(queries, candidates)
        choices.append(pairs[best])
        valid_means.append(candidates[best])
    start = Seconds.now()
    finals = [ItemMeans(test.train, item) for item, _ in choices]
    fit = Seconds.now().since(start, len(HISTORY_SIZES))
    start = Seconds.now()
    means = [
        model.predict(queries, user)
        for model, queries, (_, user) in zip(finals, test.queries, choices, strict=True)
    ]
    per_user = Seconds.now().since(start, len(HISTORY_SIZES) * test.n_users)
    probabilities = _distributions(valid, valid_means, means)
    return Predictions(MEANS, means, probabilities, fit, per_user, {"chosen": choices})


def has_lenskit() -> bool:
    """Return whether LensKit is installed; print a message if not."""
    if find_spec("lenskit") is not None:
        return True
    print("LensKit is skipped: install it with pip install 'cfnade[lenskit]'")
    return False


def lenskit_als(valid: Panel, test: Panel, seed: int, threads: int) -> Predictions:
    """Predict by LensKit's biased ALS with fold-in, with options chosen on `valid`."""
    grid = itertools.product(ALS_SIZES, ALS_REGULARIZATION)
    settings = [{"embedding_size": size, "regularization": reg} for size, reg in grid]
    candidates, _ = _lenskit_predictions(valid, settings, seed, threads)  # [setting][size] (n,)
    best = [
        _best(queries, [by_size[size] for by_size in candidates])
        for size, queries in enumerate(valid.queries)
    ]
    valid_means = [candidates[choice][size] for size, choice in enumerate(best)]
    used = sorted(set(best))
    final, seconds = _lenskit_predictions(test, [settings[n] for n in used], seed, threads)
    means = [final[used.index(choice)][size] for size, choice in enumerate(best)]
    fits, predictions = zip(*seconds, strict=True)
    fit = np.mean([fits[used.index(choice)] for choice in best], 0)  # wall, CPU
    per_user = np.mean(predictions, 0) / len(HISTORY_SIZES) / test.n_users
    times = Seconds(*fit.tolist()), Seconds(*per_user.tolist())
    notes = {"chosen": [settings[choice] for choice in best]}
    return Predictions(ALS, means, _distributions(valid, valid_means, means), *times, notes)


def _lenskit_predictions(
    panel: Panel, settings: list[dict[str, Any]], seed: int, threads: int
) -> tuple[list[list[FloatArray]], list[tuple[Seconds, Seconds]]]:
    """Return predictions by setting and history size, and seconds to fit and to predict."""
    import pandas as pd  # type: ignore[import-untyped]
    from lenskit.als import BiasedMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.training import TrainingOptions

    train = panel.train
    columns = {"user_id": train.users, "item_id": train.items, "rating": train.values}
    data = from_interactions_df(pd.DataFrame(columns))
    predictions, seconds = [], []
    with patch.dict(os.environ, dict.fromkeys(_THREADS, str(threads))):
        for setting in settings:
            scorer = BiasedMFScorer(**setting)
            start = Seconds.now()
            scorer.train(data, TrainingOptions(rng=seed))
            fit = Seconds.now().since(start)
            start = Seconds.now()
            predictions.append([q.clip(_fold_in(scorer, q)) for q in panel.queries])
            seconds.append((fit, Seconds.now().since(start)))
    return predictions, seconds


def _fold_in(scorer: Any, queries: Queries) -> FloatArray:
    """Return predictions of one call per user, with a history and without an id. (n,)."""
    from lenskit.data import ItemList, RecQuery

    out, ratings = [], queries.history_values()
    for places, target_places in queries.by_user():
        history = ItemList(item_ids=queries.items[places], rating=ratings[places])
        targets = ItemList(item_ids=queries.targets.items[target_places])
        scores = scorer(RecQuery(history_items=history), targets).scores()
        # Items without training ratings have no embedding; LensKit's own fallback is the biases.
        biases, _ = scorer.bias.compute_for_items(targets, None, history)
        out.append(np.where(np.isnan(scores), biases, scores))
    return np.concatenate(out)


def _best(queries: Queries, candidates: list[FloatArray]) -> int:
    return int(np.argmin([queries.rmse(predictions) for predictions in candidates]))


# -- distributions around predicted means ----------------------------------------------------------


def discretize(means: FloatArray, width: float, values: FloatArray) -> FloatArray:
    """Return Gaussians cut half-way between neighboring values, with open ends. (n, K)."""
    edges = (values[1:] + values[:-1]) / 2
    below = torch.special.ndtr(torch.from_numpy((edges - means[:, None]) / width)).numpy()
    zeros, ones = np.zeros((len(means), 1)), np.ones((len(means), 1))
    return np.diff(np.hstack([zeros, below, ones]), axis=1)


def _distributions(
    valid: Panel, valid_means: list[FloatArray], means: list[FloatArray]
) -> list[FloatArray]:
    """Return a distribution for each mean; width and calibration are fitted on `valid`."""
    values = valid.scale.array()
    out = []
    for queries, fitted, mean in zip(valid.queries, valid_means, means, strict=True):
        width, levels = queries.rmse(fitted), queries.targets.levels
        calibration = fit_calibration(discretize(fitted, width, values), levels, values)
        out.append(calibration.apply(discretize(mean, width, values), values))
    return out
