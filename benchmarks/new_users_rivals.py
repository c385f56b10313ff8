"""What else can be said to new people: the mean, shrunken means, LensKit's ALS with fold-in.

Settings are chosen on people `tried`, held out of the training users, and never on the test. They
are chosen for each of GIVEN separately, which helps the rivals: ours is one model for all.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.new_users_panel import GIVEN, Answers, FloatArray, Panel
from cfnade.calibration import fit as fit_calibration
from cfnade.data.ratings import Ratings

ITEM_SHRINKAGE = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
USER_SHRINKAGE = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
ALS_SIZES = (20, 50, 100)
ALS_REGULARISATION: tuple[Any, ...] = (0.05, 0.1, 0.2, {"user": 0.3, "item": 0.1})


def global_mean(test: Panel) -> Answers:
    """Everyone rates everything like the training ratings: their mean, their frequencies."""
    start = time.perf_counter()
    n, known = len(test.asked), test.known
    frequencies = np.bincount(known.levels, minlength=len(known.scale)) / len(known)
    fit = time.perf_counter() - start
    means = np.full(n, known.values.mean())
    chances = np.tile(frequencies, (n, 1))
    return Answers("global mean", [means] * len(GIVEN), [chances] * len(GIVEN), fit, 0.0, {})


class ItemMeans:
    """The mean rating, and how far each item lies above it: Σ(r - mean) / (count + shrinkage)."""

    def __init__(self, known: Ratings, shrinkage: float) -> None:
        self.mean = float(known.values.mean())
        counts = np.bincount(known.items, minlength=known.n_items)
        sums = np.bincount(known.items, known.values - self.mean, minlength=known.n_items)
        self.offsets = sums / (counts + shrinkage)  # (M,)

    def predict(self, people: Panel, given: int, shrinkage: float) -> FloatArray:
        """Mean + the item's offset + the person's own, from what they gave. Returns (n,)."""
        above = people.values()[:, :given] - self.mean - self.offsets[people.items[:, :given]]
        own = above.sum(1) / (given + shrinkage)  # (U,)
        return people.clipped(self.mean + self.offsets[people.asked.items] + own[people.rows])


def shrunken_means(tried: Panel, test: Panel) -> Answers:
    """Both shrinkages chosen on the people `tried`, for each of GIVEN."""
    models = {item: ItemMeans(tried.known, item) for item in ITEM_SHRINKAGE}
    pairs = list(itertools.product(ITEM_SHRINKAGE, USER_SHRINKAGE))
    choices, guesses = [], []
    for given in GIVEN:
        found = [models[item].predict(tried, given, user) for item, user in pairs]
        best = _best(tried, found)
        choices.append(pairs[best])
        guesses.append(found[best])
    start = time.perf_counter()
    finals = [ItemMeans(test.known, item) for item, _ in choices]
    fit = (time.perf_counter() - start) / len(GIVEN)
    start = time.perf_counter()
    told = zip(finals, GIVEN, choices, strict=True)
    means = [model.predict(test, given, user) for model, given, (_, user) in told]
    each = (time.perf_counter() - start) / len(GIVEN) / len(test.items)
    chances = _spread(tried, guesses, means)
    return Answers("shrunken means", means, chances, fit, each, {"chosen": choices})


def lenskit_als(python: str, tried: Panel, test: Panel, seed: int) -> Answers:
    """LensKit's biased ALS: setting chosen on the people `tried`, for each of GIVEN."""
    grid = itertools.product(ALS_SIZES, ALS_REGULARISATION)
    settings = [{"embedding_size": size, "regularization": reg} for size, reg in grid]
    found, _ = _ask_lenskit(python, tried, settings, seed)  # (settings, GIVEN, n)
    best = [_best(tried, list(found[:, i])) for i in range(len(GIVEN))]
    guesses = [found[choice, i] for i, choice in enumerate(best)]
    used = sorted(set(best))
    said, seconds = _ask_lenskit(python, test, [settings[choice] for choice in used], seed)
    means = [said[used.index(choice), i] for i, choice in enumerate(best)]
    fit = float(np.mean([seconds["fit"][used.index(choice)] for choice in best]))
    each = float(np.mean(seconds["predict"])) / len(GIVEN) / len(test.items)
    chances = _spread(tried, guesses, means)
    notes = {"chosen": [settings[choice] for choice in best]}
    return Answers("LensKit ALS, fold-in", means, chances, fit, each, notes)


def _ask_lenskit(
    python: str, people: Panel, settings: list[dict[str, Any]], seed: int
) -> tuple[FloatArray, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(
            folder / "ask.npz",
            fit_user_id=people.known.users,
            fit_item_id=people.known.items,
            fit_rating=people.known.values,
            given_item=people.items,
            given_rating=people.values(),
            asked_row=people.rows,
            asked_item=people.asked.items,
        )
        job = {"settings": settings, "given": GIVEN, "seed": seed}
        (folder / "settings.json").write_text(json.dumps(job))
        script = Path(__file__).with_name("lenskit_als.py")
        subprocess.run([python, str(script), str(folder)], check=True)
        found = np.load(folder / "answer.npz")["predictions"].astype(np.float64)
        return people.clipped(found), json.loads((folder / "seconds.json").read_text())


def _best(people: Panel, found: list[FloatArray]) -> int:
    return int(np.argmin([people.rmse(predictions) for predictions in found]))


# -- a distribution around a rival's number ------------------------------------------------


def discretised(means: FloatArray, width: float, values: FloatArray) -> FloatArray:
    """A Gaussian cut half-way between neighbouring values, its ends open. Returns (n, K)."""
    edges = (values[1:] + values[:-1]) / 2
    below = torch.special.ndtr(torch.from_numpy((edges - means[:, None]) / width)).numpy()
    zero, one = np.zeros((len(means), 1)), np.ones((len(means), 1))
    return np.diff(np.hstack([zero, below, one]), axis=1)


def _spread(tried: Panel, guesses: list[FloatArray], means: list[FloatArray]) -> list[FloatArray]:
    """For each of GIVEN, width and calibration fitted on the people `tried`."""
    values, levels = tried.asked.scale.array(), tried.asked.levels
    out = []
    for guess, mean in zip(guesses, means, strict=True):
        width = tried.rmse(guess)
        calibration = fit_calibration(discretised(guess, width, values), levels, values)
        out.append(calibration.apply(discretised(mean, width, values), values))
    return out
