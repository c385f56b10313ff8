"""Experiments: choices are made blind, what is done is skipped, the report only repeats records."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.components.oracle import PlainRows, plain_scores
from tests.experiments.plans import CHOICE, HEAD, plan_file, run

from cfnade.components import COMPONENTS
from cfnade.components.registry import new_member
from cfnade.config import TrainingConfig
from cfnade.data.load import load, load_split
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.inference.query import Query
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.train import train
from experiments import fit, report, tables
from experiments.curves import curves
from experiments.plan import Configuration, PlanError, read_plan
from experiments.runner import RESULTS, Experiment, choices_file, results_file
from experiments.shape_ml10m import write_like_ml10m
from experiments.tables import spread
from experiments.variants import SlopeNetwork, uncorrected_factor, variant


@pytest.mark.usefixtures("here", "own_cache")
def test_choices_are_made_without_a_test_rating(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def watched(parts: Split, *arguments: Any) -> Any:
        seen.append(len(parts.test))
        return train(parts, *arguments)

    monkeypatch.setattr(fit, "train", watched)
    results = tmp_path / "results"
    assert run(plan_file(tmp_path, data, CHOICE), results) == {}
    assert seen[:2] == [0, 0]  # two candidates, blind
    assert all(n > 0 for n in seen[2:])
    assert len(seen) == 4
    for record in choices_file(results, "table").records():
        assert "test" not in record


@pytest.mark.usefixtures("here", "own_cache")
def test_the_choice_is_the_best_by_validation_and_is_used(tmp_path: Path, data: Path) -> None:
    results = tmp_path / "results"
    run(plan_file(tmp_path, data, CHOICE), results)
    scored = {
        record["configuration"]["training"]["learning_rate"]: record["valid"]["rmse"]
        for record in choices_file(results, "table").records()
    }
    best = min(scored, key=lambda rate: scored[rate])
    finals = results_file(results, "table").records()
    assert len(finals) == 2
    for record in finals:
        assert record["configuration"]["training"]["learning_rate"] == best
        assert record["side"] == "user"
        assert record["hidden"] == [4]
        assert record["test"]["rmse"] > 0
        assert {"seed", "split_fingerprint", "commit", "seconds", "peak_mb", "valid"} <= set(record)
    assert finals[0]["split_fingerprint"] != finals[1]["split_fingerprint"]


@pytest.mark.usefixtures("here", "own_cache")
def test_what_is_done_is_not_done_again(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, results = plan_file(tmp_path, data, CHOICE), tmp_path / "results"
    run(plan, results)
    file = results_file(results, "table")
    lost, kept = file.records()
    file.write([kept])
    calls: list[str] = []
    real = fit.score

    def counted(*arguments: Any) -> Any:
        calls.append(arguments[1])
        return real(*arguments)

    monkeypatch.setattr(fit, "score", counted)
    monkeypatch.setattr(fit, "validate", None)  # would fail if called
    run(plan, results)
    assert calls == ["paper:1"]
    again = file.find({"name": "a", "split": "paper:1", "seed": 0})
    assert again is not None
    assert again["test"] == lost["test"]  # the same seed, the same bits
    run(plan, results, splits=("paper:2",), rerun=True)
    assert calls == ["paper:1", "paper:2"]
    assert [record["test"] for record in file.records()] == [lost["test"], kept["test"]]


@pytest.mark.usefixtures("here", "own_cache")
def test_a_choice_can_be_taken_over(tmp_path: Path, data: Path) -> None:
    runs = CHOICE + '[[runs]]\nname = "b"\nside = "item"\nchoose_like = "a"\n'
    plan = read_plan(plan_file(tmp_path, data, runs))
    experiment = Experiment(plan, tmp_path / "results", 1)
    for task in experiment.due():  # nothing but the candidates, until all of them are there
        assert task.function is fit.validate
        rmse = 0.8 if task.key["candidate"]["learning_rate"] == 1e-2 else 0.9
        task.file.add(task.key | {"valid": {"rmse": rmse}})
    assert {task.function for task in experiment.due()} == {fit.score}
    fixed = experiment.fixed(plan.entry("b"))
    assert fixed.training["learning_rate"] == 1e-2
    assert fixed.side == "item"


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ('[[runs]]\nname = "a"\nchose = {}\n', "did you mean 'choose'"),
        ('[[runs]]\nname = "a"\n[[runs]]\nname = "a"\n', "two runs have the name 'a'"),
        ('[[runs]]\nname = "a"\ntraining = { epoch = 3 }\n', "did you mean 'epochs'"),
        ('[[runs]]\nlabel = "a"\n', "has no 'name'"),
    ],
)
def test_a_wrong_plan_is_refused(tmp_path: Path, data: Path, runs: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_plan(plan_file(tmp_path, data, runs))


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(PlanError, match="did you mean 'a'"):
        read_plan(plan_file(tmp_path, tmp_path, '[[runs]]\nname = "a"\n')).entry("aa")
    mixed = '[[runs]]\nname = "a"\nrecipe = "ml-1m-item"\n'
    with pytest.raises(PlanError, match="run a has a recipe, whose model the common one"):
        read_plan(plan_file(tmp_path, tmp_path, mixed))


# -- every committed plan can be read, and its first line runs it ------------------------------


def test_results_are_few_files_in_order() -> None:
    """One JSON Lines file per table, sorted by name, split and seed."""
    assert len([path for path in RESULTS.iterdir() if path.name != ".state"]) <= 30
    for name in report.SECTIONS:
        if (RESULTS / f"{name}.jsonl").exists():
            keys = [
                (r["name"], r["split"], r["seed"]) for r in results_file(RESULTS, name).records()
            ]
            assert keys == sorted(set(keys))


PLANS = sorted(Path(report.FOLDER) / f"{name}.toml" for name in report.SECTIONS)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_first_line_of_a_plan_is_its_command(path: Path) -> None:
    assert read_plan(path).entries
    first = path.read_text().splitlines()[0]
    assert first == f"# python -m experiments {path.stem}"


# -- the report --------------------------------------------------------------------------------


def record(name: str, test: float, **rest: Any) -> dict[str, Any]:
    configuration = {"model": {}, "training": {"learning_rate": 0.1}}
    scores = {"valid": {"rmse": test + 0.01}, "test": {"rmse": test, "nll_raw": 1.0}}
    facts = {"best_epoch": 3, "seconds": 10.0, "threads": 1, "peak_mb": 900, "commit": "abc"}
    facts |= {"split": "paper:1", "epochs": 3, "source": "made up", "ratings": 10}
    return {"name": name, "configuration": configuration} | scores | facts | rest


def test_the_report_shows_mean_spread_and_difference(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(HEAD + '[[runs]]\nname = "a"\nlabel = "Model A"\nfacts = { paper = 0.9 }\n')
    records = {"a": [record("a", 0.80), record("a", 0.82)]}
    text = tables.compared(read_plan(path), records)
    line = next(line for line in text.splitlines() if "Model A" in line)
    assert "0.8100 ± 0.0141" in line  # by hand: sd of two numbers is their distance over √2
    assert "-0.0900" in line


def test_at_a_glance_a_number_is_met_only_if_ours_is_not_above_it(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    runs = [("a", "facts = { paper = 0.9 }"), ("b", 'facts = { paper = 0.9, row = "ours" }')]
    runs += [("c", 'facts = { paper = 0.9, row = "paper\'s settings" }')]
    runs += [("d", 'facts = { paper = 0.9, row = "ours, on an easy split" }')]
    theirs = 'splits = ["authors-code:1", "authors-code:2"]\n'
    runs += [("e", theirs + 'facts = { paper = 0.9, row = "paper\'s settings, another part" }')]
    text = "".join(f'[[runs]]\nname = "{name}"\nlabel = "A"\n{facts}\n' for name, facts in runs)
    path.write_text(HEAD + text)
    scores = {"a": [0.91, 0.93], "b": [0.90, 0.88], "c": [0.9002], "d": [0.80], "e": [0.7, 0.7]}
    splits = read_plan(path).entry("a").splits
    records = {
        name: [record(name, x, split=split) for x, split in zip(found, splits, strict=False)]
        for name, found in scores.items()
    }
    line = tables.glance([(read_plan(path), records)]).splitlines()[-1]
    assert "| A | 0.900 | 0.9002, missed (1 of 2 splits) | 0.8900, met |" in line
    assert line.endswith("| 0.7000, met |")


def test_a_change_is_compared_on_the_test_parts_that_both_have(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(HEAD + "".join(f'[[runs]]\nname = "{name}"\n' for name in "abc"))
    runs = {"a": {"x:1": 0.80, "x:2": 0.90}, "b": {"x:1": 0.81, "x:2": 0.93}}
    runs |= {"c": {"other:2": 0.89, "other:3": 0.10}}  # the same test part but for the third
    records = {
        name: [record(name, rmse, split=split) for split, rmse in found.items()]
        for name, found in runs.items()
    }
    *_, first, second, third = tables.differences(read_plan(path), records).splitlines()
    assert "| 0.8500 | +0.0000 |" in first
    # By hand: the mean of 0.01 and 0.03, and their distance over √2.
    assert "| 0.8700 | +0.0200 ± 0.0141 |" in second
    assert "| other ratings | 0.8900 | -0.0100 |" in third
    assert third.endswith("| 1 |")


def test_points_of_a_curve_are_means_over_the_same_splits(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    entries = [f'[[runs]]\nname = "{x}"\nlabel = "A"\nfacts = {{ x = {x} }}\n' for x in (1, 2)]
    path.write_text(HEAD + "".join(entries))
    records = {"1": [record("1", 0.8, split="x:1"), record("1", 0.1, split="x:2")]}
    records |= {"2": [record("2", 0.7, split="x:1")]}
    assert curves(read_plan(path), records) == {"A": [(1.0, 0.8), (2.0, 0.7)]}


def test_the_spread_of_one_run_is_not_invented() -> None:
    assert str(spread([record("a", 0.8)], lambda r: r["test"]["rmse"])) == "0.8000"


def test_the_report_is_what_its_records_give() -> None:
    """The committed README is generated, not typed."""
    pytest.importorskip("matplotlib")
    folder = Path(report.FOLDER)
    assert (folder / "README.md").read_text() == report.report(folder / "results", folder)
    text = report.GUIDE.read_text()
    assert text == report.guide(text, folder / "results", folder)


# -- what the authors' code does ---------------------------------------------------------------


@cache
def small_run(name: str | None, side: str = "item") -> Any:
    ratings = synthetic(50, 30, 700, seed=2).ratings
    with variant(name):
        return train(
            split(ratings, "paper:1"),
            plan_side(side, {"hidden": (5,)}, TrainingConfig(epochs=3)),
            RunOptions(n_threads=1),
        )


def network_of(trained: Any) -> Any:
    return trained.model.members[0].components["item"].network


def test_uncorrected_steps_are_as_long_as_a_hand_calculation_says() -> None:
    """Against m / √v with both moments started at zero, for a constant gradient."""
    m = v = 0.0
    for t in range(1, 400):
        m, v = 0.9 * m + 0.1, 0.999 * v + 0.001
        theirs = np.sqrt(1 - 0.001**t) / (1 - 0.1**t) * m / np.sqrt(v)
        right = (m / (1 - 0.9**t)) / np.sqrt(v / (1 - 0.999**t))
        assert uncorrected_factor(t) == pytest.approx(theirs / right, rel=1e-9)
    assert uncorrected_factor(10) == pytest.approx(6.5, abs=0.1)


def test_a_slope_of_zero_is_the_plain_model() -> None:
    plain = network_of(small_run(None))
    sloped = SlopeNetwork(plain.config)
    sloped.load_state_dict(plain.state_dict(), strict=False)
    assert sloped.input_table.equal(plain.W)


def test_the_slope_is_learnt_and_counts_for_every_level() -> None:
    network = network_of(small_run("slope"))
    assert float(network.S.detach().abs().max()) > 0
    added = (network.input_table - network.W).detach()  # (M, K, H)
    assert added.sub(network.S.detach()[:, None, :]).abs().max() < 1e-6


def test_a_sloped_model_answers_with_its_slope() -> None:
    fitted = small_run("slope").model
    side: Any = fitted.members[0].components["item"]
    cells = np.repeat(np.arange(5), 6), np.tile(np.arange(6), 5)
    pairs = Query.of_pairs(fitted.context, *cells).pairs("item")
    plain = PlainRows(plain_scores(side), pairs.rows)
    found = side.scorer(pairs.rows).score_pairs(pairs)
    np.testing.assert_allclose(found, plain.score_pairs(pairs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["item", "both"])
@pytest.mark.parametrize("name", ["slope", "adam", "flat_start"])
def test_a_variant_changes_the_result_and_ends(name: str, side: str) -> None:
    before = dict(COMPONENTS)
    changed = small_run(name, side).history[-1]["valid_rmse"]
    assert before == COMPONENTS
    assert changed != small_run(None, side).history[-1]["valid_rmse"]


def test_a_flat_start_says_nothing_before_the_first_step() -> None:
    ratings = synthetic(50, 30, 700, seed=2).ratings
    with variant("flat_start"):
        member = new_member(("item",), ratings, {"hidden": (5,)}, TrainingConfig())
    network: Any = member.components["item"].network
    assert not network.b.any()
    assert network.W.any()


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown variant 'slop'"), variant("slop"):
        pass


# -- a data set of MovieLens 10M's shape -------------------------------------------------------


@pytest.mark.usefixtures("own_cache")
def test_the_made_up_file_is_read_as_movielens_10m(tmp_path: Path) -> None:
    folder = write_like_ml10m(tmp_path / "ml-10M100K", scale_down=2000)
    ratings = load(str(folder))
    assert ratings.scale.values == tuple(np.arange(1, 11) / 2)
    assert ratings.times is not None
    assert ratings.titles is not None
    parts = load_split(str(folder), "paper:1")
    configuration = Configuration("user", {"hidden": [4], "factors": 3}, {"epochs": 1})
    found = fit.score(str(folder), "paper:1", 0, replace(configuration), 1, tmp_path)
    assert found["ratings"] == len(ratings)
    assert found["test"]["n"] == len(parts.test)


def test_table_4_sets_our_seconds_beside_the_papers(tmp_path: Path) -> None:
    record: dict[str, Any] = {"data": "ml-1m", "side": "item", "hidden": [500, 500]}
    record |= {"kind": "real", "parameters": 30_480_000, "epoch_seconds": 0.5, "test_seconds": 0.25}
    record |= {"peak_mb": 1500, "threads": 2, "load": 1.96, "factors": None}
    record["paper"] = {"parameters_m": 30.48, "epoch": 3.11, "test": 0.68}
    path = tmp_path / "table4_cost.jsonl"
    path.write_text(json.dumps(record) + "\n")
    line = next(row for row in tables.cost_table(path).splitlines() if row.startswith("| ml-1m"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[0] == "ml-1m, item-based, 2 layers"
    assert cells[4:7] == ["**0.50**", "3.11", "6×"]
    assert cells[7:10] == ["**0.25**", "0.68", "3×"]
    assert "load average 2.0 to 2.0" in tables.cost_table(path)
    assert tables.cost_table(tmp_path / "none.jsonl") == ""
