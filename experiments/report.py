"""Write experiments/README.md from the files under results/: python -m experiments report

Every number in it was read from a record or, where it is the paper's, from an experiment file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cfnade.utils.files import write_text
from cfnade_baselines.compare import ResultsFile
from experiments import curves, tables, time_to_accuracy
from experiments.plan import Plan, read_plan
from experiments.tables import Records, read_records

FOLDER = Path(__file__).resolve().parent
Section = Callable[[Plan, Records], str]

SECTIONS: dict[str, Section] = {
    "table1_ml1m": tables.compared,
    "table2_ml10m": tables.compared,
    "table3_netflix": tables.compared,
    "figure1_ordinal": curves.curve,
    "figure2_hidden": curves.curve,
    "ablations": tables.differences,
    "ml100k": tables.compared,
    "joint_ml1m": tables.ensembles,
    "joint_ml100k": tables.ensembles,
    "joint_netflix": tables.compared,
}

GUIDE = FOLDER.parent / "docs" / "results" / "reproduction.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"
PAPERS = ("table1_ml1m", "table2_ml10m", "table3_netflix")
SHORT = ("table1_ml1m", "table3_netflix", "ml100k", "ablations")

HEAD = """# The paper's tables and figures, run again

Made by `python -m experiments report` from the records under `results/`; nothing here is typed.
Each section names the command that runs it; `--only ENTRY --rerun` repeats one row.
`docs/results/reproduction.md` says what the protocol is and where it differs from the paper's
text and code; `LOG.md` is the diary, failures included.

RMSE on test, mean ± standard deviation over splits where there are several. Configurations were
chosen by validation, in processes that held no test rating, and scored on test once. Seconds are
those of training, on the number of threads named; most runs shared the machine with other work
(the load is in each record), so that they are upper bounds: `benchmarks/` has the quiet ones.

"""


def report(results: Path, plans: Path) -> str:
    """The whole text; a table without records is left out."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        plan = read_plan(plans / f"{name}.toml")
        records = read_records(results / f"{name}.jsonl")
        if not records:  # on other data: what it cost is shown, never what it scored
            records, section = read_records(results / f"{name}-other-data.jsonl"), tables.costs_only
        if records:
            parts.append(f"## {plan.title}\n\n`python -m experiments {name}`\n\n")
            parts.append(section(plan, records) + "\n")
            if section is curves.curve:
                curves.draw(plan, records, results / f"{name}.svg")
                parts.append(f"![{plan.title}](results/{name}.svg)\n\n")
    parts.append(tables.cost_table(results / "table4_cost.jsonl"))
    for record in ResultsFile(results / "time_to_accuracy.jsonl", ("name",)).records():
        parts.append("\n" + time_to_accuracy.markdown(record))
    return "".join(parts)


def guide(text: str, results: Path, plans: Path) -> str:
    """The guide with its short tables made anew between the marks."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    parts = [f"### At a glance\n\n{tables.glance(_papers_tables(results, plans))}\n"]
    for name in SHORT:
        plan, records = read_plan(plans / f"{name}.toml"), read_records(results / f"{name}.jsonl")
        if records:
            section = tables.differences if name == "ablations" else tables.short
            parts.append(f"### {plan.title}\n\n{section(plan, records)}\n")
    return f"{before}{BEGIN}\n{''.join(parts)}{END}{after}"


def _papers_tables(results: Path, plans: Path) -> list[tuple[Plan, Records]]:
    return [
        (read_plan(plans / f"{name}.toml"), read_records(results / f"{name}.jsonl"))
        for name in PAPERS
    ]


def write() -> None:
    """Make README.md and the guide's tables anew."""
    write_text(FOLDER / "README.md", report(FOLDER / "results", FOLDER))
    write_text(GUIDE, guide(GUIDE.read_text(encoding="utf-8"), FOLDER / "results", FOLDER))
