"""Netflix: the user-based model with and without a ridge part, for known and for held-out people.

    python -m experiments.netflix_people ridge --threads 1
    python -m experiments.netflix_people plain --threads 1

One training answers both: 2,000 people are taken out of the split "paper:1" whole. The others' test
ratings say how good a model is for people whom it knows. Of those held out the first 0, 1, 5 and 20
ratings in a random order are given, and up to 50 of the later ones asked, the same each time.
Shrunken means answer the same questions. Records are in results/netflix_people.jsonl.

--share 0.08 trains on that share of people, holds out others and looks at no test rating: settings
were chosen so (LOG.md). What it finds is printed, not kept.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.load import load_split
from cfnade.data.splits import Split
from cfnade.evaluation.evaluate import evaluate
from cfnade.evaluation.rating_metrics import nll, rmse
from cfnade.inference.predictor import Predictor
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.progress import ProgressCallback
from cfnade.training.train import train
from cfnade_baselines.compare import ResultsFile
from experiments.fit import commit
from experiments.runner import RESULTS

PLAN = Path(__file__).with_suffix(".toml")
PEOPLE, LEAST, MOST_ASKED = 2_000, 30, 50
GIVEN = (0, 1, 5, 20)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class HeldOut:
    """People who are in no part of the split: what they give, and what they are asked."""

    def __init__(self, whole: Dataset, users: IntArray, seed: int) -> None:
        random, order = np.random.default_rng((seed, 1)), np.argsort(whole.users, kind="stable")
        starts = np.searchsorted(whole.users[order], users, side="left")
        ends = np.searchsorted(whole.users[order], users, side="right")
        places = [
            order[random.permutation(np.arange(*ends_of))]
            for ends_of in zip(starts, ends, strict=True)
        ]
        self.whole, self.given = whole, [own[: max(GIVEN)] for own in places]
        asked = [own[max(GIVEN) :][:MOST_ASKED] for own in places]
        self.asked, self.whose = (
            np.concatenate(asked),
            np.repeat(np.arange(len(users)), [*map(len, asked)]),
        )

    def truth(self) -> FloatArray:
        return np.asarray(self.whole.values[self.asked])

    def scores(self, predictor: Predictor) -> dict[str, dict[str, float]]:
        """RMSE and NLL of a model by the number given."""
        found, stars = {}, self.whole.scale.array()
        for count in GIVEN:
            chances = self._answers(predictor, count)
            found[str(count)] = {
                "rmse": rmse(self.truth(), chances @ stars),
                "nll": nll(chances, self.whole.levels[self.asked]),
            }
        return found

    def _answers(self, predictor: Predictor, count: int) -> FloatArray:
        ids, values = self.whole.item_ids, self.whole.values
        histories = {
            f"new{number}": {
                int(ids[self.whole.items[place]]): float(values[place]) for place in own[:count]
            }
            for number, own in enumerate(self.given)
        }
        names = [f"new{number}" for number in self.whose]
        wanted = ids[self.whole.items[self.asked]]
        return predictor.predict(names, wanted, histories=histories).probabilities

    def means(self, known: Dataset) -> dict[str, dict[str, float]]:
        """RMSE of shrunken means: the best pair of five by five settings, for each number."""
        found = {}
        for count in GIVEN:
            tried = [self._means(known, count, a, b) for a in _PULLS for b in _PULLS]
            found[str(count)] = {"rmse": min(rmse(self.truth(), one) for one in tried)}
        return found

    def _means(self, known: Dataset, count: int, items: float, people: float) -> FloatArray:
        stars, mean = known.scale.array(), float(known.values.mean())
        counts = known.level_counts("item")
        offsets = counts @ (stars - mean) / (counts.sum(1) + items)
        whole, own = self.whole, np.zeros(len(self.given))
        for number, places in enumerate(self.given):
            left = whole.values[places[:count]] - mean - offsets[whole.items[places[:count]]]
            own[number] = left.sum() / (count + people)
        said = mean + offsets[whole.items[self.asked]] + own[self.whose]
        return np.asarray(np.clip(said, stars[0], stars[-1]))


_PULLS = (2.0, 5.0, 10.0, 20.0, 40.0)


def cut(parts: Split, share: float) -> tuple[Split, HeldOut]:
    """The split without those held out; of a share of all people others are, and test is empty."""
    seed, users = int(share < 1), parts.train.n_users
    random = np.random.default_rng((seed, 0))
    whole = parts.train.concat(parts.valid).concat(parts.test)
    counts = np.bincount(whole.users, minlength=users)
    held = np.sort(random.permutation(np.flatnonzero(counts >= LEAST))[:PEOPLE])
    kept = random.random(users) < share
    kept[held] = False
    mine: dict[str, Any] = {
        name: part.select(kept[part.users]) for name, part in parts.parts().items()
    }
    if share < 1:
        mine["test"] = mine["test"].select(np.zeros(len(mine["test"]), bool))
    of_held = whole.select(np.isin(whole.users, held))
    train, valid, test = (mine[name] for name in ("train", "valid", "test"))
    return replace(parts, train=train, valid=valid, test=test), HeldOut(of_held, held, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a table of netflix_people.toml")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], help="key=value of training or model")
    given = parser.parse_args()
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))[given.name]
    for text in given.set:
        key, value = text.split("=", 1)
        plan["model" if key in plan["model"] else "training"][key] = json.loads(value)
    parts, held = cut(load_split("netflix", "paper:1"), given.share)
    made_by, began, busy = commit(), time.perf_counter(), time.process_time()
    trained = train(
        parts,
        plan_side("user", plan["model"], TrainingConfig.from_dict(plan["training"])),
        RunOptions(n_threads=given.threads, callbacks=[ProgressCallback()]),
    )
    facts = trained.model.metadata
    record: dict[str, Any] = {
        "name": given.name,
        **plan,
        "commit": made_by,
        "seconds": round(time.perf_counter() - began),
        "cpu_seconds": round(time.process_time() - busy),
        "threads": given.threads,
        "valid": facts["valid"],
        "epochs": facts["epochs"],
        "best_epoch": facts["best_epoch"],
        "held_out": held.scores(Predictor(trained.model)),
        "means": held.means(parts.train),
        "asked": len(held.asked),
    }
    if given.share == 1:
        record["test"] = evaluate(trained.model, parts.test).as_dict()
        record["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        ResultsFile(RESULTS / "netflix_people.jsonl", ("name",)).add(record)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
