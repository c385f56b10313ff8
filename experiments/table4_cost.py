"""Table 4, the cost of an epoch and of a test pass: python -m experiments.table4_cost

MovieLens 1M is real data, MovieLens 10M synthetic data of its shape; Netflix is omitted if it is
not found. Run it on a quiet machine: the fastest of three epochs counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cfnade.components.optimizers import member_network
from cfnade.components.registry import new_member
from cfnade.config import TrainingConfig
from cfnade.data.load import load_split
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic_like
from cfnade.exceptions import CfnadeError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.inference.scorer import Scorer
from cfnade.training.steps import make_stepper
from cfnade_baselines.compare import ResultsFile
from experiments import report
from experiments.fit import commit
from experiments.runner import RESULTS

# data, side, J, the paper's parameters in millions, seconds of an epoch, of a test pass
PAPER: list[tuple[str, str, int | None, list[tuple[float, float, float]]]] = [
    ("ml-1m", "item", None, [(30.2, 3.09, 0.65), (30.48, 3.11, 0.68)]),
    ("ml-10m", "user", 50, [(10.78, 134.8, 31.7), (10.98, 135.6, 32.7)]),
    ("netflix", "user", 50, [(9.02, 1057.8, 239.8), (9.19, 1064.3, 243.8)]),
]


def parts_of(name: str) -> tuple[Split, str]:
    """Return a random 90/10 split, and whether the ratings are real."""
    if name == "ml-10m":
        return split(synthetic_like(name, 1).ratings, "paper:1"), "synthetic, of that shape"
    return load_split(name, "paper:1"), "real"


def measure(parts: Split, side: str, factors: int | None, layers: int, threads: int) -> Any:
    """Return the seconds of an epoch and a test pass, and the number of parameters."""
    fields = {"hidden": (500,) * layers, "factors": factors}
    settings = TrainingConfig(
        batch_rows=512,
        context_rate="paper",
        optimizer="adam" if factors is None else "sparse_adam",
    )
    member = new_member((side,), parts.train, fields, settings)
    stepper = make_stepper(member, parts.train, fields, settings, device="cpu", threads=threads)
    order, steps = np.random.default_rng(0).permutation(stepper.sampler.n_rows), [0]

    def epoch() -> None:
        for first in range(0, len(order), 512):
            batch = stepper.sampler.sample(order[first : first + 512], steps[0])
            stepper.step(batch, rate=1.0)
            steps[0] += 1

    counts = count_training_ratings(member.axes, parts.train)
    scorer = Scorer(FittedModel((member,), side, parts.train, counts))
    return {
        "parameters": sum(p.numel() for p in member_network(member).parameters()),
        "epoch_seconds": fastest(epoch),
        "test_seconds": fastest(lambda: scorer.probabilities(parts.test.users, parts.test.items)),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of three runs; the first also compiles."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return round(min(seconds), 3)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the cost of an epoch and a test pass.")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    file = ResultsFile(RESULTS / "table4_cost.jsonl", ("name",))
    for name, side, factors, published in PAPER:
        try:
            parts, kind = parts_of(name)
        except CfnadeError as error:
            print(f"{name} is omitted: {error}", file=sys.stderr)
            continue
        for layers, paper in enumerate(published, 1):
            figures = measure(parts, side, factors, layers, arguments.threads)
            figures |= {"data": name, "kind": kind, "side": side, "hidden": [500] * layers}
            figures |= {"factors": factors, "threads": arguments.threads, "commit": commit()}
            figures["load"] = round(os.getloadavg()[0], 2)
            figures["paper"] = dict(zip(("parameters_m", "epoch", "test"), paper, strict=True))
            file.add({"name": f"{name}-{layers}"} | figures)
            print(name, layers, figures["epoch_seconds"], figures["test_seconds"], flush=True)
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
