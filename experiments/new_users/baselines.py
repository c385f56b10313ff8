"""What else can be said to new people: the mean, shrunken means, LensKit's ALS with fold-in.

Settings are chosen on people `tried`, held out of the training users, and never on the test. They
are chosen for each of GIVEN separately, which helps the rivals: ours is one model for all.
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
from experiments.new_users.panel import GIVEN, Answers, FloatArray, Panel, Questions, Seconds

MEANS, ALS = "shrunken means", "LensKit ALS, fold-in"
ITEM_SHRINKAGE = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
USER_SHRINKAGE = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
ALS_SIZES = (20, 50, 100)
ALS_REGULARIZATION: tuple[Any, ...] = (0.05, 0.1, 0.2, {"user": 0.3, "item": 0.1})

# Whoever computes inside LensKit: torch, its matrix library, and the compiled part.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "LK_NUM_THREADS")


def global_mean(test: Panel) -> Answers:
    """Everyone rates everything like the training ratings: their mean, their frequencies."""
    start = Seconds.now()
    known = test.known
    frequencies = np.bincount(known.levels, minlength=len(known.scale)) / len(known)
    mean = known.values.mean()
    fit = Seconds.now().since(start)
    means = [np.full(len(q.asked), mean) for q in test.questions]
    chances = [np.tile(frequencies, (len(q.asked), 1)) for q in test.questions]
    return Answers("global mean", means, chances, fit, Seconds(0.0, 0.0), {})


class ItemMeans:
    """The mean rating, and how far each item lies above it: Σ(r - mean) / (count + shrinkage)."""

    def __init__(self, known: Dataset, shrinkage: float) -> None:
        self.mean = float(known.values.mean())
        counts = np.bincount(known.items, minlength=known.n_items)
        sums = np.bincount(known.items, known.values - self.mean, minlength=known.n_items)
        self.offsets = sums / (counts + shrinkage)  # (M,)

    def predict(self, questions: Questions, shrinkage: float) -> FloatArray:
        """Mean + the item's offset + the person's own, from what they gave. Returns (n,)."""
        above = questions.values() - self.mean - self.offsets[questions.items]
        sums = np.bincount(questions.givers(), above, minlength=questions.people)
        own = sums / (np.diff(questions.offsets) + shrinkage)  # (U,)
        items = self.offsets[questions.asked.items]
        return questions.clipped(self.mean + items + own[questions.rows])


def shrunken_means(tried: Panel, test: Panel) -> Answers:
    """Both shrinkages chosen on the people `tried`, for each of GIVEN."""
    models = {item: ItemMeans(tried.known, item) for item in ITEM_SHRINKAGE}
    pairs = list(itertools.product(ITEM_SHRINKAGE, USER_SHRINKAGE))
    choices, guesses = [], []
    for questions in tried.questions:
        found = [models[item].predict(questions, user) for item, user in pairs]
        best = _best(questions, found)
        choices.append(pairs[best])
        guesses.append(found[best])
    start = Seconds.now()
    finals = [ItemMeans(test.known, item) for item, _ in choices]
    fit = Seconds.now().since(start, len(GIVEN))
    start = Seconds.now()
    told = zip(finals, test.questions, choices, strict=True)
    means = [model.predict(questions, user) for model, questions, (_, user) in told]
    each = Seconds.now().since(start, len(GIVEN) * test.people)
    chances = _spread(tried, guesses, means)
    return Answers(MEANS, means, chances, fit, each, {"chosen": choices})


def has_lenskit() -> bool:
    """Say so if LensKit is missing: its row is then left out."""
    if find_spec("lenskit") is not None:
        return True
    print("LensKit is skipped: install it with pip install 'cfnade[lenskit]'")
    return False


def lenskit_als(tried: Panel, test: Panel, seed: int, threads: int) -> Answers:
    """LensKit's biased ALS with fold-in; options chosen on the users `tried`, for each of GIVEN."""
    grid = itertools.product(ALS_SIZES, ALS_REGULARIZATION)
    settings = [{"embedding_size": size, "regularization": reg} for size, reg in grid]
    found, _ = _lenskit_predictions(tried, settings, seed, threads)  # [setting][given] (n,)
    best = [
        _best(questions, [predictions[at] for predictions in found])
        for at, questions in enumerate(tried.questions)
    ]
    guesses = [found[choice][at] for at, choice in enumerate(best)]
    used = sorted(set(best))
    final, seconds = _lenskit_predictions(test, [settings[n] for n in used], seed, threads)
    means = [final[used.index(choice)][at] for at, choice in enumerate(best)]
    fits, answers = zip(*seconds, strict=True)
    fit = np.mean([fits[used.index(choice)] for choice in best], 0)  # wall, CPU
    each = np.mean(answers, 0) / len(GIVEN) / test.people
    times = Seconds(*fit.tolist()), Seconds(*each.tolist())
    notes = {"chosen": [settings[choice] for choice in best]}
    return Answers(ALS, means, _spread(tried, guesses, means), *times, notes)


def _lenskit_predictions(
    people: Panel, settings: list[dict[str, Any]], seed: int, threads: int
) -> tuple[list[list[FloatArray]], list[tuple[Seconds, Seconds]]]:
    """Return predictions for each setting and each of GIVEN, and seconds to fit and to predict."""
    import pandas as pd  # type: ignore[import-untyped]
    from lenskit.als import BiasedMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.training import TrainingOptions

    known = people.known
    columns = {"user_id": known.users, "item_id": known.items, "rating": known.values}
    data = from_interactions_df(pd.DataFrame(columns))
    found, seconds = [], []
    with patch.dict(os.environ, dict.fromkeys(_THREADS, str(threads))):
        for setting in settings:
            scorer = BiasedMFScorer(**setting)
            start = Seconds.now()
            scorer.train(data, TrainingOptions(rng=seed))
            fit = Seconds.now().since(start)
            start = Seconds.now()
            found.append([q.clipped(_fold_in(scorer, q)) for q in people.questions])
            seconds.append((fit, Seconds.now().since(start)))
    return found, seconds


def _fold_in(scorer: Any, questions: Questions) -> FloatArray:
    """Ask once per user, with a history and without an id. Returns (n,)."""
    from lenskit.data import ItemList, RecQuery

    out, ratings = [], questions.values()
    for given, asked in questions.by_person():
        history = ItemList(item_ids=questions.items[given], rating=ratings[given])
        wanted = ItemList(item_ids=questions.asked.items[asked])
        scores = scorer(RecQuery(history_items=history), wanted).scores()
        # Items without training ratings have no embedding; LensKit's own fallback is the biases.
        biases, _ = scorer.bias.compute_for_items(wanted, None, history)
        out.append(np.where(np.isnan(scores), biases, scores))
    return np.concatenate(out)


def _best(questions: Questions, found: list[FloatArray]) -> int:
    return int(np.argmin([questions.rmse(predictions) for predictions in found]))


# -- a distribution around a rival's number ------------------------------------------------


def discretised(means: FloatArray, width: float, values: FloatArray) -> FloatArray:
    """A Gaussian cut half-way between neighbouring values, its ends open. Returns (n, K)."""
    edges = (values[1:] + values[:-1]) / 2
    below = torch.special.ndtr(torch.from_numpy((edges - means[:, None]) / width)).numpy()
    zero, one = np.zeros((len(means), 1)), np.ones((len(means), 1))
    return np.diff(np.hstack([zero, below, one]), axis=1)


def _spread(tried: Panel, guesses: list[FloatArray], means: list[FloatArray]) -> list[FloatArray]:
    """For each of GIVEN, width and calibration fitted on the people `tried`."""
    values = tried.scale.array()
    out = []
    for questions, guess, mean in zip(tried.questions, guesses, means, strict=True):
        width, levels = questions.rmse(guess), questions.asked.levels
        calibration = fit_calibration(discretised(guess, width, values), levels, values)
        out.append(calibration.apply(discretised(mean, width, values), values))
    return out
