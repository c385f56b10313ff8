"""Regenerate a table or figure: python -m experiments table1_ml1m

Fits what has no record yet and writes the pages. Validation chooses options before anything is
scored on test.

    python -m experiments table1_ml1m --only i1 --splits authors:1234 --rerun
    python -m experiments all          # every table with an experiment file
    python -m experiments report       # only writes the pages
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from cfnade.exceptions import CfnadeError
from experiments import report
from experiments.plan import read_plan
from experiments.runner import FOLDER, RESULTS, Experiment, Runner


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description="Regenerate a table or figure."
    )
    parser.add_argument("table", help=f"{', '.join(report.SECTIONS)}, all, or report")
    parser.add_argument("--only", nargs="+", default=[], help="names of entries; all by default")
    parser.add_argument("--splits", nargs="+", default=[], help="splits; all by default")
    parser.add_argument("--rerun", action="store_true", help="fit recorded entries again")
    parser.add_argument("--data", help="other ratings than the plan's, with separate results")
    parser.add_argument("--workers", type=int, default=1, help="fits at a time")
    parser.add_argument("--threads", type=int, default=1, help="threads of a fit")
    options = parser.parse_args(arguments)
    names = {"all": list(report.SECTIONS), "report": []}.get(options.table, [options.table])
    if len(names) != 1 and (options.only or options.splits or options.data):
        parser.error("--only, --splits and --data go with one table")
    try:
        failed = Runner(
            [_experiment(name, options) for name in names], RESULTS / ".state", options.workers
        ).run()
    except CfnadeError as error:
        failed = {options.table: str(error)}
    for title, message in failed.items():
        print(f"error: {title}: {message}", file=sys.stderr)
    report.write()
    return 1 if failed else 0


def _experiment(name: str, options: argparse.Namespace) -> Experiment:
    plan = read_plan(FOLDER / f"{name}.toml")
    if options.data:
        plan = replace(plan, data=options.data, table=f"{plan.table}-other-data")
    only, splits = tuple(options.only), tuple(options.splits)
    return Experiment(plan, RESULTS, options.threads, only, splits, options.rerun)


if __name__ == "__main__":
    sys.exit(main())
