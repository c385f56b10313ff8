"""Run the comparison of docs/results/comparison.md: python -m experiments.comparison

Every preset on u1…u5 of MovieLens 100K and the authors' five splits of MovieLens 1M; slow ones on
fewer. Netflix is fitted only if named, with the models that can be fitted there in an hour. Results
in results/comparison.jsonl are not fitted again.

    python -m experiments.comparison ml-1m --models i-autorec --splits authors:1234
"""

from __future__ import annotations

import argparse

from cfnade_baselines.compare import Comparison, compare, select_presets
from experiments import comparison_report
from experiments.runner import RESULTS

SPLITS = {
    "ml-100k": ["u1", "u2", "u3", "u4", "u5"],
    "ml-1m": [f"authors:{seed}" for seed in (1234, 2341, 3412, 4123, 1324)],
    "netflix": ["paper:1"],
}
DEFAULT_DATA = ["ml-100k", "ml-1m"]
RATINGS = {"ml-100k": 100_000, "ml-1m": 1_000_209, "netflix": 100_480_507}
ON_NETFLIX = ["biasmf", "i-autorec"]
"""Models that are fitted on Netflix, with the options of MovieLens 1M."""
SLOW = {"bfm": 2, "bfm-ordinal": 1}
"""Number of splits of MovieLens 1M for slow models."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="*", default=DEFAULT_DATA, help=", ".join(SPLITS))
    parser.add_argument("--models", help="names with commas between; all by default")
    parser.add_argument("--splits", nargs="+", help="all of the data set by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rerun", action="store_true", help="fit recorded models again")
    arguments = parser.parse_args()
    names = None if arguments.models is None else arguments.models.split(",")
    for data in arguments.data:
        models = ON_NETFLIX if names is None and data == "netflix" else names
        for preset in select_presets(models, RATINGS[data])[0]:
            n_splits = SLOW.get(preset.name, 5) if data == "ml-1m" else 5
            compare(
                Comparison(data, {}, seed=0, n_threads=arguments.threads),
                [preset.name],
                arguments.splits or SPLITS[data][:n_splits],
                results=RESULTS / "comparison.jsonl",
                rerun=arguments.rerun,
                report=print,
            )
    comparison_report.main()


if __name__ == "__main__":
    main()
