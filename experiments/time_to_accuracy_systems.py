"""One entrant of the race: trains, is scored again and again, and prints a JSON line each time.

    python experiments/time_to_accuracy_systems.py ENTRANT FOLDER

FOLDER holds ENTRANT.json and, for systems of others, ratings.npz, as time_to_accuracy.py writes
them. The clock starts when the
data is in memory and everything is compiled, and stands still while predictions are scored.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from cfnade.training.callbacks import Callback
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side

ENOUGH = 100_000  # passes or samples: the watch ends the race
PATIENCE = 40  # scores without a better one
BURN_IN = 5  # samples that myFM itself would not keep


class EndError(Exception):
    """Nothing more is to be measured."""


class Watch:
    """The clock of one entrant, who stops it before every score."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job, self._spent, self._since = job, 0.0, 0.0
        self._best, self._stale = np.inf, 0
        self._began = job["started"]

    def loaded(self, version: str) -> None:
        """The data is in memory: imports and reading took this long."""
        self._began, before = time.time(), self._began
        _print({"version": version, "load_s": self._began - before})

    def prepared(self) -> None:
        """Everything is compiled: go."""
        _print({"prepare_s": time.time() - self._began})
        self.start()

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self._spent += time.perf_counter() - self._since

    def score(self, rmse: float) -> bool:
        """Note a score of what was reached when the clock stopped. Returns whether to end."""
        _print({"seconds": self._spent, "rmse": rmse})
        self._stale = 0 if rmse < self._best else self._stale + 1
        self._best = min(rmse, self._best)
        reached = rmse <= min(self._job["targets"])
        return reached or self._stale >= PATIENCE or self._spent > self._job["limit"]


def ours(job: dict[str, Any], watch: Watch) -> None:
    """The joint model by its recipe, scored after every pass over the users."""
    from dataclasses import replace

    from cfnade.recipes import load_recipe
    from cfnade.training.train import train

    # What train() takes for validation is only scored here: the run is thrown away.
    split, few = _loaded(job, watch)
    own = dict(job["settings"])  # a recipe, and what differs from it
    found = load_recipe(own.pop("recipe"))
    model = found.model | {"hidden": own.pop("hidden", found.model["hidden"])}
    settings = replace(found.training, **own, passes=1, epochs=ENOUGH, seed=job["seed"])
    train(few, plan_side(found.side, model, replace(settings, epochs=1)))
    watch.prepared()

    class Scored(Callback):
        def on_step_end(self, stage: Any, progress: float, cost: float | None) -> None:
            del stage, cost
            if progress == int(progress):
                watch.stop()

        def on_epoch_end(self, record: Mapping[str, Any]) -> None:
            if watch.score(record["valid_rmse"]):
                raise EndError
            watch.start()

    train(
        split,
        plan_side(found.side, model, settings),
        RunOptions(n_threads=job["threads"], callbacks=[Scored()]),
    )


def made(job: dict[str, Any], watch: Watch) -> None:
    """What is made from ratings, and not trained: one score, when all of it is there."""
    from dataclasses import replace

    from cfnade.evaluation.evaluate import evaluate
    from cfnade.training.train import train

    split, few = _loaded(job, watch)
    fields = dict(job["settings"])
    plan, options = plan_side(fields.pop("side"), fields), RunOptions(n_threads=job["threads"])
    asked = split.valid
    if job["part"] == "test":
        nothing = asked.select(np.empty(0, np.int64))
        split, few = (replace(one, valid=nothing) for one in (split, few))
    train(few, plan, options)
    watch.prepared()
    trained = train(split, plan, options)
    watch.stop()
    watch.score(evaluate(trained.model, asked).rmse)


def _loaded(job: dict[str, Any], watch: Watch) -> tuple[Any, Any]:
    """The ratings to train on and, in place of validation, those to score; and a hundredth."""
    from dataclasses import replace

    import torch

    from cfnade import __version__
    from cfnade.data.load import load_split

    torch.set_num_threads(job["threads"])
    split = load_split(job["data"], job["split"])
    if job["part"] == "test":
        split = replace(split, train=split.train.concat(split.valid), valid=split.test)
    watch.loaded(__version__)
    train, valid = (p.select(np.arange(0, len(p), 100)) for p in (split.train, split.valid))
    return split, replace(split, train=train, valid=valid)


def cornac(job: dict[str, Any], watch: Watch) -> None:
    """Cornac's MF with biases on all threads, a pass at a time, each from where the last ended.

    Its passes are all alike (one rate, one order), so this is what one long fit does.
    """
    mf = import_module("cornac.models").MF
    data = _Ratings(job)
    rng = np.random.default_rng(job["seed"])
    order = rng.permutation(len(data.values))  # Cornac takes ratings in the order they come in
    cells = [part[order].astype(np.int64) for part in (data.users, data.items)]
    ids = [{i: i for i in range(size)} for size in data.sizes]
    known = import_module("cornac.data").Dataset(
        *data.sizes, *ids, (*cells, data.values[order]), seed=job["seed"]
    )
    factors = [rng.normal(0, 0.01, (size, job["settings"]["k"])) for size in data.sizes]
    biases = [np.zeros(size, np.float32) for size in data.sizes]
    U, V = (part.astype(np.float32) for part in factors)
    watch.loaded(metadata.version("cornac"))
    watch.prepared()
    while True:
        start = {"U": U, "V": V, "Bu": biases[0], "Bi": biases[1]}
        model = mf(**job["settings"], max_iter=1, num_threads=job["threads"], init_params=start)
        model.fit(known)
        watch.stop()
        U, V, biases = model.u_factors, model.i_factors, [model.u_biases, model.i_biases]
        users, items = data.asked
        product = np.einsum("nk,nk->n", U[users], V[items])
        if watch.score(
            data.rmse(model.global_mean + biases[0][users] + biases[1][items] + product)
        ):
            return
        watch.start()


def myfm(job: dict[str, Any], watch: Watch) -> None:
    """myFM's regression on ids; scored is the mean of its samples so far, but the first five."""
    _stand_in_for_pkg_resources()
    package, sparse = import_module("myfm"), import_module("scipy.sparse")
    data = _Ratings(job)

    def features(users: Any, items: Any) -> Any:
        columns = np.stack([users, items + data.sizes[0]], 1).ravel()
        offsets = np.arange(0, len(columns) + 1, 2)
        return sparse.csr_matrix(
            (np.ones(len(columns)), columns, offsets), (len(users), sum(data.sizes))
        )

    known, asked = features(data.users, data.items), features(*data.asked)
    model = package.MyFMRegressor(random_seed=job["seed"], **job["settings"])
    total = np.zeros(len(data.truth))

    def after(sample: int, fm: Any, *_: Any) -> tuple[bool, None]:
        watch.stop()
        found = fm.predict_score(asked, [])
        if sample >= BURN_IN:
            np.add(total, found, out=total)
            found = total / (sample - BURN_IN + 1)
        end = watch.score(data.rmse(found))
        watch.start()
        return end, None

    watch.loaded(metadata.version("myfm"))
    watch.prepared()
    model.fit(
        known,
        data.values,
        n_iter=ENOUGH,
        n_kept_samples=1,
        group_shapes=list(data.sizes),
        callback=after,
    )


class _Ratings:
    """The ratings that time_to_accuracy.py writes for other systems."""

    def __init__(self, job: dict[str, Any]) -> None:
        found = np.load(Path(job["folder"]) / "ratings.npz")
        self.users, self.items, self.values = (found[n] for n in ("users", "items", "values"))
        self.asked, self.truth = (found["asked_users"], found["asked_items"]), found["truth"]
        self.sizes = int(found["sizes"][0]), int(found["sizes"][1])
        self._scale = found["scale"]

    def rmse(self, predictions: Any) -> float:
        """Of predictions that are first put inside the scale."""
        inside = np.clip(predictions, self._scale[0], self._scale[-1])
        return float(np.sqrt(np.mean(np.square(inside - self.truth))))


def _stand_in_for_pkg_resources() -> None:
    """myFM imports two names that new versions of setuptools no longer have, and uses neither."""
    try:
        import_module("pkg_resources")
    except ImportError:
        stand_in = ModuleType("pkg_resources")
        stand_in.__dict__["get_distribution"] = metadata.distribution
        stand_in.__dict__["DistributionNotFound"] = metadata.PackageNotFoundError
        sys.modules["pkg_resources"] = stand_in


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


ENTRANTS: dict[str, Callable[[dict[str, Any], Watch], None]] = {
    "ours": ours,
    "start": made,
    "near": made,
    "cornac": cornac,
    "myfm": myfm,
}


def main() -> None:
    name, folder = sys.argv[1:]
    job = json.loads((Path(folder) / f"{name}.json").read_text())
    with contextlib.suppress(EndError):
        ENTRANTS[name](job, Watch(job))


if __name__ == "__main__":
    main()
