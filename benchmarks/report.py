"""The tables of README.md, generated from results/*.json: python benchmarks/report.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
BEGIN, END = "<!-- engine: begin -->", "<!-- engine: end -->"
_NETFLIX_USERS = 480_189


def write_readme() -> None:
    """Replace the tables of README.md."""
    path = FOLDER / "README.md"
    before, tables = path.read_text().split(BEGIN, 1)
    after = tables.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{_tables()}{END}{after}")


def _tables() -> str:
    makers = {"epoch": _epoch, "steps": _steps, "compilation": _compilation, "growth": _growth}
    makers |= {"growth_disk": _growth_disk, "prediction": _prediction, "load": _load}
    makers |= {"serve": _serve, "picks": _implicit, "picks_everybody": _all_users}
    parts = []
    for name, make in makers.items():
        file = FOLDER / "results" / f"{name}.json"
        if file.exists():
            parts.append(make(json.loads(file.read_text())))
    return "\n".join(parts)


def _implicit(found: dict[str, Any]) -> str:
    seconds, vaecf = found["epoch"]["ours"], found["epoch"]["vaecf"]
    text = f"## Implicit feedback\n\n{describe_machine(found['machine'])}\n\n"
    text += (
        f"MovieLens 1M, ratings of 4 and 5. An epoch of the set NADE with {found['hidden']} units "
        f"takes {seconds:.2f} s, one of Cornac's VAECF of the same size and batch {vaecf:.2f} s: "
        f"**{vaecf / seconds:.1f}×** (goal 20×).\n\n"
    )
    lines = [[name, f"{taken:.2f} s"] for name, taken in found["lists"].items()]
    return text + markdown_table([f"top 20 of all {found['people']:,} users", ""], lines)


def _all_users(found: dict[str, Any]) -> str:
    users, seconds = found["people"], found["seconds"]
    minutes = seconds / users * _NETFLIX_USERS / 60
    rate = f"; at that rate all {_NETFLIX_USERS:,} in {minutes:.1f} minutes"
    return (
        f"{describe_machine(found['machine'])}\n\nTop 20 of {users:,} users of a random model "
        f"of Netflix's size ({found['picks']:,} interactions): {seconds:.0f} s, "
        f"{found['peak_mb'] / 1000:.1f} GB{rate if users < _NETFLIX_USERS else ''} (goal: "
        "5 minutes, 6 GB).\n"
    )


def describe_machine(found: dict[str, Any]) -> str:
    """Return processor, threads, date, commit and load of a result of `common.machine`."""
    return (
        f"{found['cpu']}, {found['threads']} threads of {found['cores']} cores, "
        f"{found['date'][:10]}, commit {found['commit']}, load {found['load']} at the end."
    )


def markdown_table(head: list[str], lines: list[list[str]]) -> str:
    """Return a table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _torch_cell(result: dict[str, Any], name: str) -> str:
    if name not in result:
        return "not run: too large"
    found = result[name]
    timed, ratio = found["batches_timed"], result["ratio_to_" + name]
    return f"{found['s']:.1f} s ({timed} batches timed), {ratio:.0f}×"


def _epoch(found: dict[str, Any]) -> str:
    lines = [
        [
            r["case"],
            r["data"],
            str(r["batch"]),
            f"**{r['ours_s']:.3f} s**",
            f"{r['one_thread_s']:.3f} s, {r['one_thread_s'] / r['ours_s']:.2f}×",
            _torch_cell(r, "dense"),
            _torch_cell(r, "gather"),
            f"{r['paper_gpu_s']} s, {r['ratio_to_paper']:.1f}×",
            f"{r['limit_s']:.3f} s, {r['distance_to_limit']:.2f}",
            f"{r['peak_mb']:.0f} MB",
        ]
        for r in found["cases"]
    ]
    head = ["case", "ratings", "batch", "ours", "one thread", "dense", "gather", "paper's GPU"]
    head += ["limit, distance", "peak"]
    text = f"## Seconds per epoch\n\n{describe_machine(found['machine'])} "
    text += f"Kernels for {found['vectors']}.\n\n"
    text += f"{markdown_table(head, lines)}\n### Where the time goes\n\nPer epoch. Least: the "
    text += "larger of bytes over memory speed and operations over matmul rate. Spent: in an epoch "
    text += "with timers.\n\n"
    for r in found["cases"]:
        speeds = f"{r['memory_gb_s']:.1f} GB/s, {r['matmul_gflop_s']:.0f} GFLOP/s"
        kernels = [
            [
                k["name"],
                f"{k['bytes'] / 1e9:.3f}",
                f"{k['operations'] / 1e9:.2f}",
                f"{k['seconds']:.4f}",
                f"{k['spent']:.4f}",
                _rates(k),
            ]
            for k in r["kernels"]
        ]
        text += f"{r['case']}, batch {r['batch']} ({speeds}):\n\n"
        head = ["kernel", "GB", "G operations", "least s", "spent s", "achieved"]
        text += markdown_table(head, kernels) + "\n"
    return text


def _rates(kernel: dict[str, Any]) -> str:
    """Return the rates of a kernel, and its least time relative to the measured one."""
    if not kernel["seconds"]:
        return "–"
    bytes_, operations = (kernel[name] / kernel["spent"] / 1e9 for name in ("bytes", "operations"))
    efficiency = kernel["seconds"] / kernel["spent"]
    return f"{bytes_:.1f} GB/s, {operations:.0f} Gop/s, {efficiency:.0%}"


def _steps(found: dict[str, Any]) -> str:
    runs = sorted(found["runs"], key=lambda run: (run["case"], not run["wide"], run["as"]))
    parts = list(dict.fromkeys(part for run in runs for part in run["spent"]))
    lines = [
        [run["case"], "AVX-512" if run["wide"] else "AVX2", run["as"]]
        + [f"{1e3 * run['spent'].get(part, 0.0):.1f}" for part in parts]
        + [f"**{1e3 * run['total']:.1f}**", f"{run['distance']:.1f}"]
        for run in runs
    ]
    head = ["case", "kernels for", "version", *parts, "total", "distance to limit"]
    return (
        f"## Three steps on one thread\n\n{describe_machine(found['machine'])}\n\nCPU "
        "milliseconds of three steps of 512 synthetic rows, each the fastest of five runs; for "
        f"machines that are not quiet.\n\n{markdown_table(head, lines)}\n"
    )


def _compilation(found: dict[str, Any]) -> str:
    def line(task: dict[str, Any]) -> list[str]:
        slowest = ", ".join(f"`{name}` {seconds:.1f}" for name, seconds in task["slowest"][:3])
        return [task["task"], str(task["functions"]), f"{task['seconds']:.1f}", slowest]

    head = ["task", "functions", "CPU seconds", "slowest"]
    text = f"## Compilation\n\n{describe_machine(found['machine'])}\n\n"
    text += markdown_table(head, [line(task) for task in found["tasks"]])
    total = sum(task["seconds"] for task in found["tasks"])
    return text + f"\nTotal {total:.0f} s; functions of two tasks count with the first.\n"


def _growth(found: dict[str, Any]) -> str:
    lines = [[p["what"], f"{p['value']:,}", f"{p['ours_s']:.4f}"] for p in found["points"]]
    ratios = found["threads"]
    text = f"## Growth\n\n{describe_machine(found['machine'])}\n\n"
    text += markdown_table(["what", "value", "s per epoch"], lines)
    text += (
        f"\nOne thread against {found['machine']['threads']}: compute-bound "
        f"{ratios['compute']['ratio']:.2f}×, memory-bound {ratios['memory']['ratio']:.2f}×; the "
        f"machine's memory speed grows {ratios['machine']['memory_ratio']:.2f}×, its matmul rate "
        f"{ratios['machine']['matmul_ratio']:.2f}×.\n"
    )
    return text


def _growth_disk(found: dict[str, Any]) -> str:
    nanoseconds = [1e9 * p["seconds"] / p["ratings"] for p in found["points"]]
    lines = [
        [
            f"{p['ratings']:,}",
            f"{p['seconds']:.1f} s",
            f"{nano:.0f} ns",
            f"{1e9 * p['processor'] / p['ratings']:.0f} ns",
            f"{p['peak_mb']:.0f} MB",
        ]
        for p, nano in zip(found["points"], nanoseconds, strict=True)
    ]
    head = ["ratings", "epoch", "per rating", "CPU time per rating", "peak memory"]
    low, high = min(nanoseconds), max(nanoseconds)
    first, last = found["points"][0], found["points"][-1]
    slope = (last["seconds"] - first["seconds"]) / (last["ratings"] - first["ratings"])
    billion = last["seconds"] + slope * (1e9 - last["ratings"])
    return (
        f"## Growth, read from disk\n\n{describe_machine(found['machine'])}\n\n"
        f"{markdown_table(head, lines)}\n"
        f"User-based, 17,770 columns, J = 50, H = 500; the engine reads chunks of users from a "
        f"file of {found['bytes'] / 1e9:.1f} GB, which the system does not cache. A rating costs "
        f"{low:.0f} to {high:.0f} ns, a range of {high / low - 1:.0%} (goal: 20 %). By this slope "
        f"a billion ratings take {billion:.0f} s; that was not run.\n"
    )


def _load(found: dict[str, Any]) -> str:
    keys = ("polars", "first", "again")
    lines = [
        [r["data"], f"{r['text_mb']:,} MB"]
        + [f"{r[key]['seconds']:.2f} s, {r[key]['peak_mb']:,} MB" for key in keys]
        + [f"{r['ratio']:.2f}"]
        for r in found["data"]
    ]
    head = ["data", "text", "polars", "first load", "cached load", "first / polars"]
    text = f"## Loading\n\n{describe_machine(found['machine'])}\n\n{markdown_table(head, lines)}\n"
    return text + "Seconds of a fresh process, imports included, and its peak memory.\n"


def _prediction(found: dict[str, Any]) -> str:
    top = found["top10"]
    text = (
        f"## Prediction\n\n{describe_machine(found['machine'])}\n\n"
        f"{found['cells_per_second'] / 1e6:.2f} million pairs per second. Top 10 of 17,770 items "
        f"for a new user with {top['ratings']} ratings by `Predictor.recommend`, "
        f"{top['requests']} requests: p50 {top['p50_ms']:.2f} ms, p99 {top['p99_ms']:.2f} ms.\n"
    )
    ridge, head = found["top10_ridge"], ["model", "users", "one call", "one by one", "ratio"]
    lines = []
    for r in found["lists"]:
        times = f"{r['seconds']:.2f} s", f"{r['one_by_one']:.1f} s", f"{r['ratio']:.1f}"
        lines.append([r["model"], f"{r['people']:,}", *times])
    return (
        f"{text}With a ridge component, H = 100: p50 {ridge['p50_ms']:.2f} ms, p99 "
        f"{ridge['p99_ms']:.2f} ms.\n\nTop 20 for all users of data of the MovieLens 1M shape:\n\n"
        f"{markdown_table(head, lines)}\n"
    )


def _load_cell(figures: dict[str, Any] | None) -> str:
    """Return rate and latencies of a load, if it was measured."""
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
            _load_cell(r["again"]),
            _load_cell(r["wrk"]),
            str(r["closed"]["errors"] + r["open"]["errors"]),
        ]
        for r in found["cases"]
    ]
    head = ["model", "items", "ratings", "maximum", "p50 / p99"]
    head += [f"p50 / p99 at {found['rate']}/s", "repeated", "wrk", "errors"]
    text = f"## Service\n\n{describe_machine(found['machine'])}\n\n{markdown_table(head, lines)}\n"
    text += (
        f"`POST /recommendations` for lists of {found['best']}, {found['workers']} worker, the "
        f"load from another process on the same machine. Maximum: {found['clients']} clients "
        f"that send the next request as soon as the last is answered. {found['rate']}/s: at fixed "
        "times, with latency from when a request was due. All users are new. Repeated: a few users "
        f"at the same rate. wrk: the {found['clients']} clients by wrk.\n"
    )
    for name, memory in found["memory"].items():
        before, middle, after = (memory["mb"][i] for i in (0, len(memory["mb"]) // 2, -1))
        text += (
            f"Memory, {name}: {before:.0f} MB before, {middle:.0f} MB half-way and {after:.0f} MB "
            f"after {memory['requests']:,} requests, {memory['errors']} errors.\n"
        )
    for name, (single, several) in found["beginning"].items():
        text += (
            f"First answer, {name}: {single['first_answer_s']:.1f} s after the command, imports "
            f"included (goal: 1 s). {several['workers']} workers share the model's "
            f"{several['file_mb']:.0f} MB: {several['together_mb']:.0f} MB in total, "
            f"{several['apart_mb']:.0f} MB if each had a copy.\n"
        )
    return text


if __name__ == "__main__":
    write_readme()
