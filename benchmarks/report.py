"""The engine's tables in README.md, made from results/*.json: nothing in them is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
BEGIN, END = "<!-- engine: begin -->", "<!-- engine: end -->"
_NETFLIX = 480_189  # people


def write_readme() -> None:
    """Replace the engine's part of README.md and leave the rest."""
    path = FOLDER / "README.md"
    text = path.read_text() if path.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    if BEGIN not in text:
        text += f"\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{_tables()}{END}{after}")


def _tables() -> str:
    makers = {"epoch": _epoch, "steps": _steps, "compilation": _compilation, "growth": _growth}
    makers |= {"growth_disk": _growth_disk, "prediction": _prediction, "load": _load}
    makers |= {"serve": _serve}
    makers |= {"picks": _picks, "picks_everybody": _everybody}
    parts = []
    for name, make in makers.items():
        file = FOLDER / "results" / f"{name}.json"
        if file.exists():
            parts.append(make(json.loads(file.read_text())))
    return "\n".join(parts)


def _picks(found: dict[str, Any]) -> str:
    ours, theirs = found["epoch"]["ours"], found["epoch"]["vaecf"]
    text = f"## What people pick\n\n{_machine(found['machine'])}\n\n"
    text += (
        f"MovieLens 1M, likes. An epoch of CF-NADE of sets with {found['hidden']} units takes "
        f"{ours:.2f} s, one of Cornac's VAECF of the same size and batch {theirs:.2f} s: "
        f"**{theirs / ours:.1f}×** (goal 20×).\n\n"
    )
    lines = [[name, f"{seconds:.2f} s"] for name, seconds in found["lists"].items()]
    return text + _table([f"top 20 of all {found['people']:,} people", ""], lines)


def _everybody(found: dict[str, Any]) -> str:
    people, took = found["people"], found["seconds"]
    every = f"; at that pace all {_NETFLIX:,} in {took / people * _NETFLIX / 60:.1f} minutes"
    return (
        f"{_machine(found['machine'])}\n\nTop 20 of {people:,} people of a made-up choice of "
        f"Netflix's size ({found['picks']:,} picks): {took:.0f} s, {found['peak_mb'] / 1000:.1f} GB"
        f"{every if people < _NETFLIX else ''} (asked: 5 minutes, 6 GB).\n"
    )


def _machine(found: dict[str, Any]) -> str:
    return (
        f"{found['cpu']}, {found['threads']} threads of {found['cores']} cores, "
        f"{found['date'][:10]}, commit {found['commit']}, load {found['load']} at the end."
    )


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _other(result: dict[str, Any], way: str) -> str:
    if way not in result:
        return "not run: too large"
    found = result[way]
    timed, ratio = found["batches_timed"], result["ratio_to_" + way]
    return f"{found['s']:.1f} s ({timed} batches timed), {ratio:.0f}×"


def _epoch(found: dict[str, Any]) -> str:
    lines = [
        [
            r["case"],
            r["data"],
            str(r["batch"]),
            f"**{r['ours_s']:.3f} s**",
            _alone(r),
            _other(r, "dense"),
            _other(r, "gather"),
            f"{r['paper_gpu_s']} s, {r['ratio_to_paper']:.1f}×",
            f"{r['limit_s']:.3f} s, {r['distance_to_limit']:.2f}",
            f"{r['peak_mb']:.0f} MB",
        ]
        for r in found["cases"]
    ]
    head = ["case", "ratings", "batch", "ours", "one thread", "dense", "gather", "paper's GPU"]
    head += ["limit, distance", "peak"]
    vectors = found.get("vectors", "AVX-512")
    text = f"## Seconds per epoch\n\n{_machine(found['machine'])} Kernels for {vectors}.\n\n"
    text += f"{_table(head, lines)}\n### Where the time goes\n\nPer epoch. Least: the larger of "
    text += (
        "bytes over memory speed and operations over matmul rate. Spent: in a watched epoch.\n\n"
    )
    for r in found["cases"]:
        speeds = f"{r['memory_gb_s']:.1f} GB/s, {r['matmul_gflop_s']:.0f} GFLOP/s"
        kernels = [
            [
                k["name"],
                f"{k['bytes'] / 1e9:.3f}",
                f"{k['operations'] / 1e9:.2f}",
                f"{k['seconds']:.4f}",
                f"{k['spent']:.4f}" if "spent" in k else "–",
                _rates(k),
            ]
            for k in r["kernels"]
        ]
        text += f"{r['case']}, batch {r['batch']} ({speeds}):\n\n"
        head = ["kernel", "GB", "G operations", "least s", "spent s", "achieved"]
        text += _table(head, kernels) + "\n"
    return text


def _alone(result: dict[str, Any]) -> str:
    """One thread beside several, where it was measured."""
    alone = result.get("one_thread_s")
    return f"{alone:.3f} s, {alone / result['ours_s']:.2f}×" if alone else "–"


def _rates(kernel: dict[str, Any]) -> str:
    """What a kernel does in a second, and how near to the possible that is."""
    if not kernel["seconds"] or "spent" not in kernel:
        return "–"
    bytes_, operations = (kernel[name] / kernel["spent"] / 1e9 for name in ("bytes", "operations"))
    share = kernel["seconds"] / kernel["spent"]
    return f"{bytes_:.1f} GB/s, {operations:.0f} Gop/s, {share:.0%}"


def _steps(found: dict[str, Any]) -> str:
    runs = sorted(found["runs"], key=lambda run: (run["case"], not run["wide"], run["as"]))
    parts = list(dict.fromkeys(part for run in runs for part in run["spent"]))
    lines = [
        [run["case"], "AVX-512" if run["wide"] else "AVX2", run["as"]]
        + [f"{1e3 * run['spent'].get(part, 0.0):.1f}" for part in parts]
        + [f"**{1e3 * run['total']:.1f}**", f"{run['distance']:.1f}"]
        for run in runs
    ]
    head = ["case", "kernels for", "version", *parts, "together", "distance to limit"]
    return (
        f"## Three steps on one thread\n\n{_machine(found['machine'])}\n\nProcessor milliseconds "
        "of three steps of 512 rows, made up; each step the fastest of five. For a machine that "
        f"others use meanwhile.\n\n{_table(head, lines)}\n"
    )


def _compilation(found: dict[str, Any]) -> str:
    def one(task: dict[str, Any]) -> list[str]:
        slowest = ", ".join(f"`{name}` {seconds:.1f}" for name, seconds in task["slowest"][:3])
        return [task["task"], str(task["functions"]), f"{task['seconds']:.1f}", slowest]

    head = ["task", "functions", "processor seconds", "slowest"]
    text = f"## Compilation\n\n{_machine(found['machine'])}\n\n"
    text += _table(head, [one(task) for task in found["tasks"]])
    total = sum(task["seconds"] for task in found["tasks"])
    text += f"\nTogether {total:.0f} s; what two tasks need counts with the first.\n"
    for name, run in found.get("train", {}).items():
        cold, warm = run["cold_s"], run["warm_s"]
        text += (
            f"`cfnade train {name}`, no settings: {cold:.1f} s with an empty cache, {warm:.1f} s "
            f"with a full one, {cold - warm:.1f} s more (goal 10).\n"
        )
    return text


def _growth(found: dict[str, Any]) -> str:
    lines = [[p["what"], f"{p['value']:,}", f"{p['ours_s']:.4f}"] for p in found["points"]]
    ratios = found["threads"]
    text = f"## Growth\n\n{_machine(found['machine'])}\n\n"
    text += _table(["what", "value", "s per epoch"], lines)
    text += (
        f"\nOne thread against {found['machine']['threads']}: compute-bound "
        f"{ratios['compute']['ratio']:.2f}×, memory-bound {ratios['memory']['ratio']:.2f}×; the "
        f"machine's memory speed grows {ratios['machine']['memory_ratio']:.2f}×, its matmul rate "
        f"{ratios['machine']['matmul_ratio']:.2f}×.\n"
    )
    return text


def _growth_disk(found: dict[str, Any]) -> str:
    each = [1e9 * p["seconds"] / p["ratings"] for p in found["points"]]
    lines = [
        [
            f"{p['ratings']:,}",
            f"{p['seconds']:.1f} s",
            f"{nano:.0f} ns",
            f"{1e9 * p['processor'] / p['ratings']:.0f} ns",
            f"{p['peak_mb']:.0f} MB",
        ]
        for p, nano in zip(found["points"], each, strict=True)
    ]
    head = ["ratings", "an epoch", "a rating", "its processor time", "peak memory"]
    first, last = found["points"][0], found["points"][-1]
    slope = (last["seconds"] - first["seconds"]) / (last["ratings"] - first["ratings"])
    billion = last["seconds"] + slope * (1e9 - last["ratings"])
    return (
        f"## Growth, read from disk\n\n{_machine(found['machine'])}\n\n"
        f"{_table(head, lines)}\n"
        f"CF-NADE of users, 17,770 columns, J = 50, H = 500; the engine fed by chunks of users "
        f"from a file of {found['bytes'] / 1e9:.1f} GB, none of which stays in the system's cache. "
        f"A rating costs {min(each):.0f} to {max(each):.0f} ns, {max(each) / min(each) - 1:.0%} "
        f"apart (asked: 20 %). By this slope a billion take {billion:.0f} s; that was not run.\n"
    )


def _load(found: dict[str, Any]) -> str:
    keys = ("polars", "first", "again")
    lines = [
        [r["data"], f"{r['text_mb']:,} MB"]
        + [f"{r[key]['seconds']:.2f} s, {r[key]['peak_mb']:,} MB" for key in keys]
        + [f"{r['ratio']:.2f}"]
        for r in found["data"]
    ]
    head = ["data", "text", "polars, bare", "first load", "again", "first / polars"]
    text = f"## Loading\n\n{_machine(found['machine'])}\n\n{_table(head, lines)}\n"
    return text + "Seconds of a fresh process, imports included, and its peak memory.\n"


def _prediction(found: dict[str, Any]) -> str:
    top = found["top10"]
    text = (
        f"## Prediction\n\n{_machine(found['machine'])}\n\n"
        f"{found['cells_per_second'] / 1e6:.2f} million cells per second. Top 10 of 17,770 columns "
        f"for a new person with {top['ratings']} ratings by `Predictor.recommend`, "
        f"{top['requests']} requests: p50 {top['p50_ms']:.2f} ms, p99 {top['p99_ms']:.2f} ms.\n"
    )
    if "lists" not in found:  # measured before there were these
        return text
    ridge, head = found["top10_ridge"], ["model", "people", "at once", "one by one", "ratio"]
    lines = []
    for one in found["lists"]:
        times = f"{one['seconds']:.2f} s", f"{one['one_by_one']:.1f} s", f"{one['ratio']:.1f}"
        lines.append([one["model"], f"{one['people']:,}", *times])
    return (
        f"{text}With a ridge part, H = 100: p50 {ridge['p50_ms']:.2f} ms, p99 "
        f"{ridge['p99_ms']:.2f} ms.\n\nTop 20 for everybody in data of the MovieLens 1M shape:\n\n"
        f"{_table(head, lines)}\n"
    )


def _beside(figures: dict[str, Any] | None) -> str:
    """Of a further way to ask, where it was tried."""
    if figures is None:
        return "–"
    rate, p50, p99 = (figures[name] for name in ("per_second", "p50_ms", "p99_ms"))
    return f"{rate:.0f}/s, {p50:.1f} / {p99:.1f} ms"


def _serve(found: dict[str, Any]) -> str:
    lines = [
        [
            r["model"],
            f"{r['items']:,}",
            str(r["ratings"]),
            f"{r['closed']['per_second']:.0f}/s",
            f"{r['closed']['p50_ms']:.1f} / {r['closed']['p99_ms']:.1f} ms",
            f"{r['open']['p50_ms']:.1f} / **{r['open']['p99_ms']:.1f}** ms",
            _beside(r.get("again")),
            _beside(r.get("wrk")),
            str(r["closed"]["errors"] + r["open"]["errors"]),
        ]
        for r in found["cases"]
    ]
    head = ["model", "items", "ratings", "at most", "p50 / p99 then"]
    head += [f"p50 / p99 at {found['rate']}/s", "asked again", "wrk", "errors"]
    text = f"## Service\n\n{_machine(found['machine'])}\n\n{_table(head, lines)}\n"
    text += (
        f"`POST /recommendations` for lists of {found['best']}, {found['workers']} worker, the "
        f"load from another process on the same machine: at most is {found['clients']} clients "
        f"that ask again as soon as they are answered; {found['rate']}/s is at fixed times, "
        "latency counted from when a request was due. Everybody is new; asked again: the same "
        "few people at the same rate; wrk: as many clients as at most.\n"
    )
    for name, held in found["memory"].items():
        before, middle, after = (held["mb"][at] for at in (0, len(held["mb"]) // 2, -1))
        text += (
            f"Memory, {name}: {before:.0f} MB before, {middle:.0f} MB half-way and {after:.0f} MB "
            f"after {held['requests']:,} requests, {held['errors']} errors.\n"
        )
    for name, begun in found.get("beginning", {}).items():
        alone, several = begun
        text += (
            f"First answer, {name}: {alone['first_answer_s']:.1f} s after the command, imports "
            f"included (asked: 1 s). {several['workers']} workers hold the model's "
            f"{several['file_mb']:.0f} MB once: {several['together_mb']:.0f} MB together, "
            f"{several['apart_mb']:.0f} MB if each had its own.\n"
        )
    return text


if __name__ == "__main__":
    write_readme()
