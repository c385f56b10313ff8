"""Tables of the report, each from a plan and its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.report import markdown_table
from cfnade_baselines.compare import Record, ResultsFile
from experiments.plan import Entry, Plan

Records = dict[str, list[Record]]
PAPERS_SETTINGS = "paper's settings"
CODE_SPLITS = "authors-code:"
"""Beginnings of `facts.row` with the settings of the paper, and of splits as in its code."""


def read_records(path: Path) -> Records:
    """Return the records of a table by the name of their entry, each list by split and seed."""
    found: Records = {}
    for record in ResultsFile(path).records():
        found.setdefault(record["name"], []).append(record)
    return found


@dataclass(frozen=True)
class Spread:
    """Mean of some numbers, their standard deviation, and their count."""

    mean: float
    deviation: float | None
    n: int

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"


def spread(records: list[Record], value: Callable[[Record], float]) -> Spread:
    """Return mean and deviation over records; a single one has no deviation."""
    numbers = [value(record) for record in records]
    deviation = stdev(numbers) if len(numbers) > 1 else None
    return Spread(fmean(numbers), deviation, len(numbers))


def test_rmse(record: Record) -> float:
    return float(record["test"]["rmse"])


def valid_rmse(record: Record) -> float:
    return float(record["valid"]["rmse"])


# -- tables of plans -------------------------------------------------------------------------------


def compared(plan: Plan, records: Records) -> str:
    """Return a line per entry, beside the paper's figure."""
    head = ["model", "settings", "test RMSE", "paper", "ours − paper", "validation"]
    head += ["splits", "epochs", "seconds", "threads", "peak memory", "commit"]
    return markdown_table(
        head, [_line(e, records[e.name]) for e in plan.entries if e.name in records]
    )


def _line(entry: Entry, records: list[Record]) -> list[str]:
    rmse = spread(records, test_rmse)
    paper = entry.facts.get("paper")
    gap = ["–", "–"] if paper is None else [f"{paper:.3f}", f"{rmse.mean - paper:+.4f}"]
    chosen = _chosen(entry, records[0])
    return [
        entry.label,
        ", ".join(filter(None, [entry.facts.get("row", ""), chosen])),
        f"**{rmse}**",
        *gap,
        str(spread(records, valid_rmse)),
        str(rmse.n),
        _range([r["best_epoch"] for r in records]),
        _range([round(r["seconds"]) for r in records]),
        _range([r["threads"] for r in records]),
        f"{max(r['peak_mb'] for r in records) / 1000:.1f} GB",
        ", ".join(sorted({r["commit"] for r in records})),
    ]


def glance(plans: list[tuple[Plan, Records]]) -> str:
    """Return every figure of the paper's tables beside runs with its settings and with others.

    Runs that validate as the authors' code does, and not as the paper says, have a separate column:
    the better of two protocols would be chosen by the test part.
    """
    lines = []
    for plan, records in plans:
        papers = {(e.label, e.facts["paper"]) for e in plan.entries if "paper" in e.facts}
        for label, paper in sorted(papers, key=lambda pair: str(pair)):
            entries = [e for e in plan.entries if e.label == label and e.name in records]
            replicas = [e for e in entries if e.facts.get("row", "").startswith(PAPERS_SETTINGS)]
            code = [e for e in replicas if all(name.startswith(CODE_SPLITS) for name in e.splits)]
            columns = (
                [e for e in replicas if e not in code],
                [e for e in entries if e not in replicas],
                code,
            )
            cells = [_best_cell(column, records, paper) for column in columns]
            lines.append([plan.title, label, f"{paper:.3f}", *cells])
    head = ["table", "model", "paper", "with its settings", "with ours", "its code's validation"]
    return markdown_table(head, lines)


def _best_cell(entries: list[Entry], records: Records, paper: float) -> str:
    """Return the best score, whether it meets the paper's, and the number of splits if not all.

    Entries that ran on all their splits have priority: some splits are easier than others.
    """
    if not entries:
        return "–"
    n_splits = {e.name: len({run["split"] for run in records[e.name]}) for e in entries}
    rmse = {e.name: spread(records[e.name], test_rmse).mean for e in entries}
    best = min(entries, key=lambda e: (n_splits[e.name] < len(e.splits), rmse[e.name]))
    cell = f"{rmse[best.name]:.4f}, {'met' if rmse[best.name] <= paper else 'missed'}"
    splits = f" ({n_splits[best.name]} of {len(best.splits)} splits)"
    return cell if n_splits[best.name] == len(best.splits) else cell + splits


def short(plan: Plan, records: Records) -> str:
    """Return the scores of `compared` alone."""
    lines = []
    for entry in plan.entries:
        if entry.name in records:
            line = _line(entry, records[entry.name])
            lines.append([line[0], entry.facts.get("row", ""), *line[2:5], line[6]])
    return markdown_table(
        ["model", "settings", "test RMSE", "paper", "ours − paper", "splits"], lines
    )


def ensembles(plan: Plan, records: Records) -> str:
    """Return the RMSE of one model (the mean over members), and of the ensemble."""
    lines = []
    for entry in plan.entries:
        for runs in filter(None, [records.get(entry.name)]):
            single = spread(runs, lambda run: fmean(run.get("members") or [test_rmse(run)]))
            count = entry.configuration.members
            is_ensemble = count > 1 or entry.configuration.beside
            averaged = f"**{spread(runs, test_rmse)}**" if is_ensemble else "–"
            scores = [f"**{single}**", str(count), averaged]
            # Without a validation part there is no calibration.
            calibrated = "–" if entry.configuration.whole else _mean(runs, "nll")
            likelihood = [_mean(runs, "nll_raw"), calibrated]
            seconds = _range([round(run["seconds"] / count) for run in runs])
            lines.append([entry.label, *scores, str(len(runs)), *likelihood, seconds])
    head = ["model", "test RMSE of one", "seeds", "test RMSE averaged", "splits"]
    return markdown_table([*head, "NLL before", "and after calibration", "seconds a model"], lines)


def _mean(runs: list[Record], name: str) -> str:
    return f"{fmean(run['test'][name] for run in runs):.3f}"


def _chosen(entry: Entry, record: Record) -> str:
    """Return the options that validation chose for this entry."""
    configuration = record["configuration"]
    options = configuration["model"] | configuration["training"]
    return ", ".join(f"{name} {options[name]:g}" for name in entry.choose)


def _range(numbers: list[int]) -> str:
    return f"{min(numbers)}–{max(numbers)}" if min(numbers) < max(numbers) else str(numbers[0])


def differences(plan: Plan, records: Records) -> str:
    """Return each entry's difference to the first, on the test parts of both."""
    base = {_test_part(record): record for record in records.get(plan.entries[0].name, [])}
    lines = []
    for entry in plan.entries:
        runs = [run for run in records.get(entry.name, []) if _test_part(run) in base]
        if not runs:
            continue
        base_runs = [base[_test_part(run)] for run in runs]
        comparable = all(a["split"] == b["split"] for a, b in zip(runs, base_runs, strict=True))
        valid = _gain(runs, base_runs, valid_rmse) if comparable else "other ratings"
        line = [entry.label, f"{spread(runs, valid_rmse).mean:.4f}", valid]
        line += [f"{spread(runs, test_rmse).mean:.4f}", _gain(runs, base_runs, test_rmse)]
        epochs = _range([run["best_epoch"] for run in runs])
        lines.append([*line, _mean(runs, "nll_raw"), epochs, str(len(runs))])
    head = ["change", "validation", "against the first", "test", "against the first"]
    return markdown_table([*head, "NLL before calibration", "best epoch", "splits"], lines)


def _gain(runs: list[Record], base_runs: list[Record], value: Callable[[Record], float]) -> str:
    """Return the mean difference to other runs, and its deviation over splits."""
    gaps = [value(a) - value(b) for a, b in zip(runs, base_runs, strict=True)]
    deviation = f" ± {stdev(gaps):.4f}" if len(gaps) > 1 and runs != base_runs else ""
    return f"{fmean(gaps):+.4f}{deviation}"


def _test_part(record: Record) -> str:
    """Return the seed of a split: splits with the same seed have the same test part."""
    return str(record["split"]).partition(":")[2]


def costs_only(plan: Plan, records: Records) -> str:
    """Return the costs of runs on synthetic ratings, without their scores."""
    lines = []
    for entry in plan.entries:
        for record in records.get(entry.name, []):
            line = [entry.label, "", f"{entry.facts['paper']:.3f}", record["source"] or "synthetic"]
            line += [f"{record['ratings']:,}", str(record["epochs"]), f"{record['seconds']:.0f}"]
            lines.append([*line, str(record["threads"]), f"{record['peak_mb'] / 1000:.1f} GB"])
    head = ["model", "test RMSE", "paper", "run on", "ratings", "epochs", "seconds", "threads"]
    return (
        f"The file of {plan.data} was not available, so the column of its RMSE is empty; the "
        "command above fills it wherever the file is found (docs/how-to/own-data.md). The recipe "
        "was run from file to score on synthetic ratings in the same format and of the same size "
        "(`python -m experiments.shape_ml10m FOLDER`, then the command with `--data FOLDER`); "
        "their RMSE does not predict that of the real ones and is not shown.\n\n"
    ) + markdown_table([*head, "peak memory"], lines)


def cost_table(path: Path) -> str:
    """Return Table 4 from the records of table4_cost.py, if there are any."""
    records = ResultsFile(path, ("name",)).records()
    if not records:
        return ""
    lines = []
    for record in records:
        paper, layers = record["paper"], len(record["hidden"])
        factors = f", J = {record['factors']}" if record["factors"] else ""
        name = f"{record['data']}, {record['side']}-based, {layers} layer{'s' * (layers > 1)}"
        epoch, test = record["epoch_seconds"], record["test_seconds"]
        lines.append(
            [
                *(name + factors, record["kind"]),
                *(f"{record['parameters'] / 1e6:.2f} M", f"{paper['parameters_m']} M"),
                *(f"**{epoch:.2f}**", f"{paper['epoch']}", f"{paper['epoch'] / epoch:.0f}×"),
                *(f"**{test:.2f}**", f"{paper['test']}", f"{paper['test'] / test:.0f}×"),
                f"{record['peak_mb'] / 1000:.1f} GB",
            ]
        )
    head = ["model", "ratings", "parameters", "paper's", "s / epoch", "paper's", "ratio"]
    head += ["s / test pass", "paper's", "ratio", "peak memory"]
    return (
        "## Table 4: cost\n\n`python -m experiments.table4_cost`\n\n"
        + markdown_table(head, lines)
        + f"\nOurs on {records[0]['threads']} CPU threads, the paper's on a Titan X; load average "
        f"{min(r['load'] for r in records):.1f} to {max(r['load'] for r in records):.1f}, of which "
        f"{records[0]['threads']} are ours.\n"
    )
