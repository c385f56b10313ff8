"""The whole comparison of docs/comparison.md, resumable: python experiments/compare_all.py

Every model with a recipe on u1…u5 of MovieLens 100K and the authors' five splits of MovieLens 1M;
the slow ones on fewer. Netflix is asked for by name, and has only those that can be fitted there in
an hour. What lies in results/comparison/ already is not fitted again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cfnade_baselines.compare import Task, chosen, compare

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments import compare_report

SPLITS = {
    "ml-100k": ["u1", "u2", "u3", "u4", "u5"],
    "ml-1m": [f"authors:{seed}" for seed in (1234, 2341, 3412, 4123, 1324)],
    "netflix": ["paper:1"],
}
USUAL = ["ml-100k", "ml-1m"]
RATINGS = {"ml-100k": 100_000, "ml-1m": 1_000_209, "netflix": 100_480_507}
LARGE = ["biasmf", "i-autorec"]
"""Who is fitted on Netflix, with the options of MovieLens 1M."""
SLOW = {"bfm": 2, "bfm-ordinal": 1}
"""How many splits of MovieLens 1M are enough for these."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="*", default=USUAL, help="any of ml-100k, ml-1m, netflix")
    parser.add_argument("--models", help="names with commas between; all if not given")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    asked = None if arguments.models is None else arguments.models.split(",")
    for data in arguments.data:
        models = LARGE if asked is None and data == "netflix" else asked
        for each in chosen(models, RATINGS[data])[0]:
            count = SLOW.get(each.name, 5) if data == "ml-1m" else 5
            task = Task(data, {}, seed=0, threads=arguments.threads)
            out = compare_report.FOLDER / data
            compare(task, [each.name], SPLITS[data][:count], out=out, say=print)
    compare_report.main()


if __name__ == "__main__":
    main()
