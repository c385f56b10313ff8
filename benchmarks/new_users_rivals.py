"""What else can be said to new people: the mean, shrunken means, LensKit's ALS with fold-in.

Settings are chosen on people `tried`, held out of the training users, and never on the test. They
are chosen for each of GIVEN separately, which helps the rivals: ours is one model for all.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.new_users_panel import GIVEN, Answers, FloatArray, Panel, Questions, Seconds
from cfnade.calibration.calibration import fit_calibration
from cfnade.data.dataset import Dataset

MEANS, ALS = "shrunken means", "LensKit ALS, fold-in"
ITEM_SHRINKAGE = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
USER_SHRINKAGE = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
ALS_SIZES = (20, 50, 100)
ALS_REGULARISATION: tuple[Any, ...] = (0.05, 0.1, 0.2, {"user": 0.3, "item": 0.1})

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


def lenskit_als(python: str, tried: Panel, test: Panel, seed: int, threads: int) -> Answers:
    """LensKit's biased ALS: setting chosen on the people `tried`, for each of GIVEN."""
    grid = itertools.product(ALS_SIZES, ALS_REGULARISATION)
    settings = [{"embedding_size": size, "regularization": reg} for size, reg in grid]
    found, _ = _ask_lenskit(python, tried, settings, seed, threads)  # [given][setting] (n,)
    told = list(zip(tried.questions, found, strict=True))
    best = [_best(questions, of_settings) for questions, of_settings in told]
    guesses = [of_settings[choice] for of_settings, choice in zip(found, best, strict=True)]
    used = sorted(set(best))
    final = [settings[choice] for choice in used]
    said, seconds = _ask_lenskit(python, test, final, seed, threads)
    means = [said[i][used.index(choice)] for i, choice in enumerate(best)]
    fit = np.mean([seconds["fit"][used.index(choice)] for choice in best], 0)  # wall, cpu
    each = np.mean(seconds["predict"], 0) / len(GIVEN) / test.people
    took = Seconds(*fit.tolist()), Seconds(*each.tolist())
    chances = _spread(tried, guesses, means)
    notes = {"chosen": [settings[choice] for choice in best]}
    return Answers(ALS, means, chances, *took, notes)


def _ask_lenskit(
    python: str, people: Panel, settings: list[dict[str, Any]], seed: int, threads: int
) -> tuple[list[list[FloatArray]], dict[str, Any]]:
    """Predictions for each of GIVEN with each setting, and seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder, known = Path(name), people.known
        arrays = {"user_id": known.users, "item_id": known.items, "rating": known.values}
        ask: dict[str, Any] = {f"fit_{field}": array for field, array in arrays.items()}
        for q in people.questions:
            given = {"offsets": q.offsets, "item": q.items, "rating": q.values()}
            asked = {"asked_row": q.rows, "asked_item": q.asked.items}
            ask |= {f"{q.given}_{field}": array for field, array in (given | asked).items()}
        np.savez(folder / "ask.npz", **ask)
        job = {"settings": settings, "given": GIVEN, "seed": seed}
        (folder / "settings.json").write_text(json.dumps(job))
        script = Path(__file__).with_name("lenskit_als.py")
        own = os.environ | dict.fromkeys(_THREADS, str(threads))
        subprocess.run([python, str(script), str(folder)], check=True, env=own)
        answer = np.load(folder / "answer.npz")
        found = [[q.clipped(line) for line in answer[q.given]] for q in people.questions]
        return found, json.loads((folder / "seconds.json").read_text())


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
