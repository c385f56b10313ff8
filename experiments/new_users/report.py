"""Write the section of docs/results/new-users.md about accuracy from results/new_users.jsonl.

python -m experiments.new_users.report
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from cfnade_baselines.results_file import ResultsFile
from experiments.new_users.goals import GOALS, Must, averaged, goals, musts
from experiments.new_users.panel import FEWEST, FEWEST_OF_MANY, GIVEN, MANY, MOST
from experiments.runner import RESULTS
from experiments.tables import markdown_table

BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "new-users.md"
RECORDS = ResultsFile(RESULTS / "new_users.jsonl", ("name",))


def save(record: dict[str, Any]) -> None:
    """Keep what was found on a data set, in place of what was found before."""
    RECORDS.add({"name": record["data"]} | record)


def records() -> list[dict[str, Any]]:
    """All that is kept, the data set with most ratings first."""
    return sorted(RECORDS.records(), key=lambda record: -record["runs"][0]["asked"][0])


def recorded_runs() -> list[dict[str, Any]]:
    """What was found on each split."""
    return [run for record in records() for run in record["runs"]]


def write_docs() -> None:
    """Renew the section from all records."""
    write_section(PAGE, section(records()))


def write_section(page: Path, text: str) -> None:
    """Replace what stands between the marks, or put it at the page's end."""
    old = page.read_text()
    before, found, rest = old.partition(BEGIN)
    after = rest.partition(END)[2] if found else "\n"
    page.write_text(f"{before if found else old + chr(10)}{BEGIN}\n{text}{END}{after}")


def section(records: list[dict[str, Any]]) -> str:
    """How good the answers are, and how that was measured."""
    parts = ["## How good the answers are", *map(_filled, _HOW)]
    for record in records:
        parts += [f"### {record['data']}", _filled(_people(record)), tables(record)]
        parts.append(_filled(_origin(record)))
    parts += ["To measure all of it again:", _COMMAND]
    return "\n\n".join(parts) + "\n"


_HOW = (
    f"A tenth of the users with more than {MOST} ratings are held out whole. {MOST} ratings of "
    f"each are given in a fixed random order and all others are asked: the same ones for 0 to "
    f"{MOST} given. For {MANY} given {MANY - MOST} of these are given too, and the rest is asked. "
    "For all given, one rating in ten is asked and all others are given. So columns up to "
    f"{MOST} compare with each other; {MANY} and all ask other things, {MANY} of other people. "
    f"Only people with {FEWEST} ratings or more are scored ({FEWEST_OF_MANY} for {MANY}). The "
    "model is trained once, on the other users (5 % of their ratings for validation), and "
    "answers each person in one pass; nothing of the people held out is in it.",
    "The rivals' settings are chosen on a tenth of the training users, held out in the same way, "
    "for each number given separately; ours is one model. Shrunken means are the mean, the item's "
    "offset and the person's offset, both shrunken by imagined ratings (49 pairs of settings). "
    "LensKit 2025.8.1 is `BiasedMFScorer` (12 settings of size and regularisation), asked with "
    "`history_items` and no user id; its seconds are those of one fit. Rivals' predictions are "
    "clipped to the scale. They are numbers, not distributions: their NLL is that of a Gaussian "
    "around the number, cut into levels, with width and our calibration fitted on the same "
    "training users, for each number given. The global mean's NLL is that of the training "
    "ratings' frequencies. Our calibration is fitted as always, on validation ratings of the "
    "training users, asked from few and from all of their ratings. `experiments/results/` has the "
    "settings chosen, and our RMSE less each rival's with standard errors.",
)
_COMMAND = (
    "    python -m experiments.new_users ml-1m ml-100k ml-latest-small --seeds 3 5 7 --threads 1 "
    "--save"
)


def _people(record: dict[str, Any]) -> str:
    runs, many = record["runs"], GIVEN.index(str(MANY))
    said = [
        f"seed {run['seed']}: {run['people'][0]:,} of {run['held_out']:,} people held out are "
        f"scored, on {run['asked'][0]:,} ratings ({run['people'][many]:,} people and "
        f"{run['asked'][many]:,} ratings at {MANY}, {run['asked'][-1]:,} ratings at all); "
        f"{run['tried']:,} others for the rivals' settings"
        for run in runs
    ]
    names = ", ".join(f"`{run['split']}`" for run in runs)
    return f"Splits {names}. " + ". ".join(line[0].upper() + line[1:] for line in said) + "."


def tables(record: dict[str, Any]) -> str:
    """Figures, musts, goals, seconds."""
    runs = record["runs"]
    parts = []
    if len(runs) > 1:
        parts += [f"Means over {len(runs)} seeds ± their standard deviation:"]
        parts += [_means(runs, metric) for metric in ("rmse", "nll")]
        parts += ["By seed:"]
    parts += [_by_seed(runs, metric) for metric in ("rmse", "nll")]
    recipes = [one["method"] for one in runs[0]["methods"] if "recipe" in one]
    parts += [part for name in recipes for part in _judgement(_alone(record, name))]
    return "\n\n".join([*parts, _seconds(runs)])


def _alone(record: dict[str, Any], name: str) -> dict[str, Any]:
    """The record without our other recipes."""
    runs = [
        run | {"methods": [m for m in run["methods"] if "recipe" not in m or m["method"] == name]}
        for run in record["runs"]
    ]
    return record | {"runs": runs}


def _judgement(record: dict[str, Any]) -> list[str]:
    """Whether the one recipe of a record reaches what it must."""
    runs = record["runs"]
    parts = [_filled(_verdict(record)), _must_table(runs, "rmse"), _must_table(runs, "nll")]
    if reached := goals(record):
        parts += [f"Goals for RMSE on seed {GOALS[record['data']][0]}:", _goal_table(reached)]
    return parts


def _means(runs: list[dict[str, Any]], metric: str) -> str:
    methods = averaged(runs)
    best = np.min([one[metric] for one in methods], 0)
    lines = []
    for at, one in enumerate(methods):
        spread = np.std([run["methods"][at][metric] for run in runs], 0, ddof=1)
        cells = [
            f"{_marked(value, low)} ± {error:.4f}"
            for value, low, error in zip(one[metric], best, spread, strict=True)
        ]
        lines.append([one["method"], *cells])
    return _table([f"{metric.upper()}, ratings given", *GIVEN], lines)


def _by_seed(runs: list[dict[str, Any]], metric: str) -> str:
    lines = []
    for run in runs:
        best = np.min([one[metric] for one in run["methods"]], 0)
        for one in run["methods"]:
            cells = [_marked(value, low) for value, low in zip(one[metric], best, strict=True)]
            lines.append([str(run["seed"]), one["method"], *cells])
    return _table(["seed", f"{metric.upper()}, ratings given", *GIVEN], lines)


def _marked(value: float, best: float) -> str:
    """Bold if no one has less, as far as it is shown."""
    text = f"{value:.4f}"
    return f"**{text}**" if text == f"{best:.4f}" else text


# -- musts and goals ------------------------------------------------------------------------------


def _verdict(record: dict[str, Any]) -> str:
    """How many musts are met, and which are not."""
    runs, demands = record["runs"], musts()
    mine = next(one["method"] for one in runs[0]["methods"] if "recipe" in one)
    looks = [(f"seed {run['seed']}", run["methods"]) for run in runs]
    if len(runs) > 1:
        looks.append(("the mean of seeds", averaged(runs)))
    said = []
    for where, methods in looks:
        missed = [must for must in demands if not must.met(must.gap(methods))]
        names = ", ".join(f"{must.metric.upper()} at {must.given}" for must in missed)
        met = f"{len(demands) - len(missed)} of {len(demands)} met"
        said.append(f"{where}: {met}" + (f" (missed: {names})" if missed else ""))
    return (
        f"What {mine} must reach. {'; '.join(said)}. Differences are ours less the rival's, on "
        "seeds with the standard error over people for RMSE, if the rival's answers were at hand. "
        "The rival is the best of the seed, for the mean that of the best mean."
    )


def _must_table(runs: list[dict[str, Any]], metric: str) -> str:
    several = len(runs) > 1
    head = ["given", f"{metric.upper()} must be", *(f"seed {run['seed']}" for run in runs)]
    lines = []
    for must in musts():
        if must.metric == metric:
            cells = [_judged(must, run) for run in runs]
            if several:
                gap = must.gap(averaged(runs))
                cells.append(f"{gap:+.4f} {_met(must.met(gap))}")
            lines.append([must.given, must.words, *cells])
    return _table(head + ["mean"] * several, lines)


def _judged(must: Must, run: dict[str, Any]) -> str:
    gap, error = must.gap(run["methods"]), ""
    if must.metric == "rmse":
        mine = next(one["method"] for one in run["methods"] if "recipe" in one)
        other = must.rival(run["methods"])["method"]
        if other in run["gaps"][mine]:
            error = f" ± {run['gaps'][mine][other][must.place]['error']:.4f}"
    return f"{gap:+.4f}{error} {_met(must.met(gap))}"


def _goal_table(reached: list[tuple[str, float, float]]) -> str:
    lines = [[n, f"{goal:.3f}", f"{got:.4f}", _met(got <= goal)] for n, goal, got in reached]
    return _table(["given", "no more than", "reached", ""], lines)


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


# -- where and how long ---------------------------------------------------------------------------


def _seconds(runs: list[dict[str, Any]]) -> str:
    head = ["", "fit, s", "processor's s", "ms a person", "processor's ms"]
    lines = [
        [
            one["method"],
            *(f"{one[name]:.2g}" for name in ("fit_s", "fit_cpu_s", "user_ms", "user_cpu_ms")),
        ]
        for one in averaged(runs)
    ]
    return _table(head, lines)


def _origin(record: dict[str, Any]) -> str:
    ats = [run["machine"] for run in record["runs"]]
    at, loads = ats[0], ", ".join(str(one["load"]) for one in ats)
    changes = " with uncommitted changes" if any(one["uncommitted"] for one in ats) else ""
    commits = ", ".join(dict.fromkeys(str(one["commit"]) for one in ats))
    runs = record["runs"]
    kept = _kept("The rivals' answers", [run["rivals_machine"] for run in runs], ats)
    for versions in zip(*(run["methods"] for run in runs), strict=True):
        made = [one.get("machine", now) for one, now in zip(versions, ats, strict=True)]
        kept += _kept(f"The figures of {versions[0]['method']}", made, ats)
    without = "" if _has_als(record) else "LensKit's ALS was not run. "
    return (
        f"{without}One training a seed. {at['cpu']}, threads: {at['threads']} of {at['cores']} "
        f"cores, load at the start: {loads}; {at['date'][:10]}, commit {commits}{changes}.{kept}"
    )


def _kept(what: str, made: list[dict[str, Any]], now: list[dict[str, Any]]) -> str:
    """Which runs something was made in, if not in those of the record."""
    earlier = [then for then, at in zip(made, now, strict=True) if then["date"] != at["date"]]
    named = dict.fromkeys(f"{then['date'][:10]}, commit {then['commit']}" for then in earlier)
    return f" {what} are kept from an earlier run ({', '.join(named)})." if named else ""


def _has_als(record: dict[str, Any]) -> bool:
    return any("LensKit" in one["method"] for one in record["runs"][0]["methods"])


def _table(head: list[str], lines: list[list[str]]) -> str:
    return markdown_table(head, lines).rstrip("\n")


def _filled(text: str) -> str:
    return fill(text, 100, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    write_docs()
