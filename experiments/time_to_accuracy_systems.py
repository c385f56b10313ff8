"""Train one system for time_to_accuracy.py and print a JSON line at every score.

    python experiments/time_to_accuracy_systems.py SYSTEM FOLDER

FOLDER has SYSTEM.json and, for other libraries, ratings.npz, as time_to_accuracy.py writes them.
The clock starts when the data is in memory and everything is compiled, and stops during scoring.
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

UNLIMITED = 100_000  # passes or samples: the stopwatch ends the training
PATIENCE = 40  # scores without improvement
BURN_IN = 5  # samples that do not count


class EndError(Exception):
    """Ends a training from a callback."""


class Stopwatch:
    """Training time of a system; it is stopped before every score."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job, self._spent, self._since = job, 0.0, 0.0
        self._best, self._stale = np.inf, 0
        self._began = job["started"]

    def loaded(self, version: str) -> None:
        """Print the seconds of imports and reading."""
        self._began, before = time.time(), self._began
        _print({"version": version, "load_s": self._began - before})

    def prepared(self) -> None:
        """Print the seconds of compilation, and start."""
        _print({"prepare_s": time.time() - self._began})
        self.start()

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self._spent += time.perf_counter() - self._since

    def score(self, rmse: float) -> bool:
        """Print a score; return whether the training should end."""
        _print({"seconds": self._spent, "rmse": rmse})
        self._stale = 0 if rmse < self._best else self._stale + 1
        self._best = min(rmse, self._best)
        reached = rmse <= min(self._job["targets"])
        return reached or self._stale >= PATIENCE or self._spent > self._job["limit"]


def cfnade(job: dict[str, Any], watch: Stopwatch) -> None:
    """Train the joint model by its recipe, scored after every pass over the users."""
    from dataclasses import replace

    from cfnade.recipes import load_recipe
    from cfnade.training.train import train

    # The validation part of train() is only scored here: the model is not used.
    split, small = _load(job, watch)
    changes = dict(job["settings"])
    recipe = load_recipe(changes.pop("recipe"))
    model = recipe.model | {"hidden": changes.pop("hidden", recipe.model["hidden"])}
    settings = replace(recipe.training, **changes, passes=1, epochs=UNLIMITED, seed=job["seed"])
    train(small, plan_side(recipe.side, model, replace(settings, epochs=1)))
    watch.prepared()

    class Scoring(Callback):
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
        plan_side(recipe.side, model, settings),
        RunOptions(n_threads=job["threads"], callbacks=[Scoring()]),
    )


def closed_form(job: dict[str, Any], watch: Stopwatch) -> None:
    """Fit a model in closed form; it is scored once."""
    from dataclasses import replace

    from cfnade.evaluation.evaluate import evaluate
    from cfnade.training.train import train

    split, small = _load(job, watch)
    fields = dict(job["settings"])
    plan, options = plan_side(fields.pop("side"), fields), RunOptions(n_threads=job["threads"])
    scored = split.valid
    if job["part"] == "test":
        empty = scored.select(np.empty(0, np.int64))
        split, small = (replace(parts, valid=empty) for parts in (split, small))
    train(small, plan, options)
    watch.prepared()
    trained = train(split, plan, options)
    watch.stop()
    watch.score(evaluate(trained.model, scored).rmse)


def _load(job: dict[str, Any], watch: Stopwatch) -> tuple[Any, Any]:
    """Return a split whose validation part is scored, and a hundredth of it for compilation."""
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


def cornac(job: dict[str, Any], watch: Stopwatch) -> None:
    """Train Cornac's MF with biases, one pass per fit, each from the parameters of the last.

    Its passes have one rate and one order, so the result is that of one long fit.
    """
    mf = import_module("cornac.models").MF
    data = _Ratings(job)
    rng = np.random.default_rng(job["seed"])
    order = rng.permutation(len(data.values))  # Cornac visits ratings in this order
    pairs = [part[order].astype(np.int64) for part in (data.users, data.items)]
    ids = [{i: i for i in range(size)} for size in data.sizes]
    train = import_module("cornac.data").Dataset(
        *data.sizes, *ids, (*pairs, data.values[order]), seed=job["seed"]
    )
    factors = [rng.normal(0, 0.01, (size, job["settings"]["k"])) for size in data.sizes]
    biases = [np.zeros(size, np.float32) for size in data.sizes]
    U, V = (part.astype(np.float32) for part in factors)
    watch.loaded(metadata.version("cornac"))
    watch.prepared()
    while True:
        start = {"U": U, "V": V, "Bu": biases[0], "Bi": biases[1]}
        model = mf(**job["settings"], max_iter=1, num_threads=job["threads"], init_params=start)
        model.fit(train)
        watch.stop()
        U, V, biases = model.u_factors, model.i_factors, [model.u_biases, model.i_biases]
        users, items = data.scored
        product = np.einsum("nk,nk->n", U[users], V[items])
        if watch.score(
            data.rmse(model.global_mean + biases[0][users] + biases[1][items] + product)
        ):
            return
        watch.start()


def myfm(job: dict[str, Any], watch: Stopwatch) -> None:
    """Sample myFM's regression on ids; the mean of the samples after burn-in is scored."""
    _substitute_pkg_resources()
    package, sparse = import_module("myfm"), import_module("scipy.sparse")
    data = _Ratings(job)

    def features(users: Any, items: Any) -> Any:
        columns = np.stack([users, items + data.sizes[0]], 1).ravel()
        offsets = np.arange(0, len(columns) + 1, 2)
        return sparse.csr_matrix(
            (np.ones(len(columns)), columns, offsets), (len(users), sum(data.sizes))
        )

    train, scored = features(data.users, data.items), features(*data.scored)
    model = package.MyFMRegressor(random_seed=job["seed"], **job["settings"])
    total = np.zeros(len(data.scored_values))

    def after(sample: int, fm: Any, *_: Any) -> tuple[bool, None]:
        watch.stop()
        predictions = fm.predict_score(scored, [])
        if sample >= BURN_IN:
            np.add(total, predictions, out=total)
            predictions = total / (sample - BURN_IN + 1)
        end = watch.score(data.rmse(predictions))
        watch.start()
        return end, None

    watch.loaded(metadata.version("myfm"))
    watch.prepared()
    model.fit(
        train,
        data.values,
        n_iter=UNLIMITED,
        n_kept_samples=1,
        group_shapes=list(data.sizes),
        callback=after,
    )


class _Ratings:
    """The ratings that time_to_accuracy.py writes for other libraries."""

    def __init__(self, job: dict[str, Any]) -> None:
        arrays = np.load(Path(job["folder"]) / "ratings.npz")
        self.users, self.items, self.values = (arrays[n] for n in ("users", "items", "values"))
        self.scored = arrays["scored_users"], arrays["scored_items"]
        self.scored_values = arrays["scored_values"]
        self.sizes = int(arrays["sizes"][0]), int(arrays["sizes"][1])
        self._scale = arrays["scale"]

    def rmse(self, predictions: Any) -> float:
        """Return the RMSE of predictions that are clipped to the scale."""
        clipped = np.clip(predictions, self._scale[0], self._scale[-1])
        return float(np.sqrt(np.mean(np.square(clipped - self.scored_values))))


def _substitute_pkg_resources() -> None:
    """Provide two names that myFM imports but does not use, and new setuptools lack."""
    try:
        import_module("pkg_resources")
    except ImportError:
        substitute = ModuleType("pkg_resources")
        substitute.__dict__["get_distribution"] = metadata.distribution
        substitute.__dict__["DistributionNotFound"] = metadata.PackageNotFoundError
        sys.modules["pkg_resources"] = substitute


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


SYSTEMS: dict[str, Callable[[dict[str, Any], Stopwatch], None]] = {
    "ours": cfnade,
    "start": closed_form,
    "near": closed_form,
    "cornac": cornac,
    "myfm": myfm,
}


def main() -> None:
    name, folder = sys.argv[1:]
    job = json.loads((Path(folder) / f"{name}.json").read_text())
    with contextlib.suppress(EndError):
        SYSTEMS[name](job, Stopwatch(job))


if __name__ == "__main__":
    main()
