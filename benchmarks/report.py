"""The engine's tables in README.md, made from results/*.json: nothing in them is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
BEGIN, END = "<!-- engine: begin -->", "<!-- engine: end -->"


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
    makers = {"epoch": _epoch, "growth": _growth, "prediction": _prediction, "load": _load}
    parts = []
    for name, make in makers.items():
        file = FOLDER / "results" / f"{name}.json"
        if file.exists():
            parts.append(make(json.loads(file.read_text())))
    return "\n".join(parts)


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
            _other(r, "dense"),
            _other(r, "gather"),
            f"{r['paper_gpu_s']} s, {r['ratio_to_paper']:.1f}×",
            f"{r['limit_s']:.3f} s, {r['distance_to_limit']:.2f}",
            f"{r['peak_mb']:.0f} MB",
        ]
        for r in found["cases"]
    ]
    head = ["case", "ratings", "batch", "ours", "dense", "gather", "paper's GPU"]
    head += ["limit, distance", "peak"]
    text = f"## Seconds per epoch\n\n{_machine(found['machine'])}\n\n{_table(head, lines)}\n"
    text += (
        "### Where the limit comes from\n\nPer epoch; the larger of bytes over memory speed and "
    )
    text += "operations over matmul rate.\n\n"
    for r in found["cases"]:
        speeds = f"{r['memory_gb_s']:.1f} GB/s, {r['matmul_gflop_s']:.0f} GFLOP/s"
        kernels = [
            [
                k["name"],
                f"{k['bytes'] / 1e9:.3f}",
                f"{k['operations'] / 1e9:.2f}",
                f"{k['seconds']:.4f}",
            ]
            for k in r["kernels"]
        ]
        text += f"{r['case']}, batch {r['batch']} ({speeds}):\n\n"
        text += _table(["kernel", "GB", "G operations", "s"], kernels) + "\n"
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
    return (
        f"## Prediction\n\n{_machine(found['machine'])}\n\n"
        f"{found['cells_per_second'] / 1e6:.2f} million cells per second. Top 10 of 17,770 columns "
        f"for a new person with {top['ratings']} ratings by `Predictor.recommend`, "
        f"{top['requests']} requests: p50 {top['p50_ms']:.2f} ms, p99 {top['p99_ms']:.2f} ms.\n"
    )


if __name__ == "__main__":
    write_readme()
