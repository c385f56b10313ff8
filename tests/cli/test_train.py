"""`cfnade train`: it trains, it says so, and nothing that happens to it loses anything."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.forks import Run, Server

from cfnade.checkpoint import load
from cfnade.components.optimizers import member_network
from cfnade.utils.safetensors_io import digest_file

Shell = Any
KILLS = 10
EPOCHS = 250  # of runs that are interrupted: they must not end before that


def options(out: Path, epochs: int = 6) -> list[str]:
    text = f"--side item --hidden 16 --epochs {epochs} --batch-rows 16 --n-threads 1 --out {out}"
    return text.split()


def test_train_writes_a_model_and_its_history(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    done = shell("train", ratings_file, *options(out))
    assert done.code == 0, done.err
    assert "next: cfnade evaluate" in done.out
    lines = [line for line in done.err.splitlines() if line.startswith("epoch")]
    assert len(lines) == 6
    pattern = (
        r"epoch 1/6   cost +\S+   valid RMSE \d\.\d{4}   best \d\.\d{4} @ 1   "
        r"NLL \d\.\d{4}   \S+ s +\d+ s left"
    )
    assert re.fullmatch(pattern, lines[0])
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == [1, 2, 3, 4, 5, 6]
    bundle = load(out)
    assert bundle.metadata["run_config"]["split"] == "paper:0"
    assert bundle.metadata["valid"]["rmse"] == min(record["valid_rmse"] for record in history)


def test_options_override_the_recipe(shell: Shell, ratings_file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        'side = "item"\n[model]\nhidden = [7]\nshared = false\n'
        "[training]\nepochs = 2\nbatch_rows = 16\nseed = 4\n"
    )
    out = tmp_path / "model"
    done = shell("train", ratings_file, "--recipe", recipe, "--seed", "5", "--out", out)
    assert done.code == 0, done.err
    facts, fields = load(out).metadata, load(out).members[0].to_dict()["item"]
    assert (fields["hidden"], fields["shared"]) == ([7], False)
    assert (facts["run"]["settings"]["seed"], facts["epochs"]) == (5, 2)


def test_the_refit_is_shown_but_is_not_history(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    done = shell("train", ratings_file, *options(out, 3), "--refit")
    assert done.code == 0, done.err
    assert "refit 1 " in done.err
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == [1, 2, 3]


def test_without_context_only_histories_work(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    arguments = [*options(out, 1), "--side", "user", "--without-context"]
    done = shell("train", ratings_file, *arguments)
    assert done.code == 0
    assert "it recommends for histories, not for known users" in done.out
    assert "evaluate" not in done.out
    assert not load(out).has_context
    assert shell("recommend", out, "3=5").code == 0
    refused = shell("recommend", out, "--user", "3")
    assert refused.code == 1
    assert "without" in refused.said


def weights(out: Path) -> str:
    return digest_file(out / "model.safetensors")


@pytest.fixture(scope="module")
def whole(processes: Server, ratings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of a run that nobody disturbs."""
    out = tmp_path_factory.mktemp("whole")
    run = processes.start("train", ratings_file, *options(out, EPOCHS))
    _, err = run.end()
    assert run.code == 0, err
    return weights(out)


def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    processes: Server, ratings_file: Path, tmp_path: Path, whole: str
) -> None:
    """Killed at random moments: in and between steps and while the state, which every step saves,
    is written; every fifth time at start-up. It is never done before the last kill.
    """
    out, chance = tmp_path / "model", random.Random(1)
    arguments: list[str | Path] = [ratings_file, *options(out, EPOCHS), "--save-every", "0"]
    for kill in range(KILLS):
        run = processes.start("train", *arguments)
        if kill % 5 != 4:
            wait_for(out / "training.safetensors", run)
        time.sleep(chance.uniform(0.0, 0.1))
        assert run.poll() is None, "it ended before it was killed: more epochs are needed"
        run.signal(signal.SIGKILL)
        run.end()
        assert run.code == -signal.SIGKILL
        arguments = ["--resume", "--out", out, "--save-every", "0"]
    final = processes.start("train", "--resume", "--out", out)
    _, err = final.end()
    assert final.code == 0, err
    assert weights(out) == whole
    history = (out / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in history] == list(range(1, EPOCHS + 1))


def wait_for(state: Path, run: Run) -> None:
    """Until the run has written a state since it began, so that every try gets somewhere."""
    before = state.stat().st_mtime_ns if state.exists() else 0
    while run.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
        time.sleep(0.01)


def test_ctrl_c_ends_the_epoch_saves_and_says_how_to_go_on(
    processes: Server, ratings_file: Path, tmp_path: Path, whole: str
) -> None:
    out = tmp_path / "model"
    run = processes.start("train", ratings_file, *options(out, EPOCHS), "--save-every", "0")
    wait_for(out / "training.safetensors", run)
    run.signal(signal.SIGINT)
    said, err = run.end()
    assert run.code == 0, err
    assert "stopped" in said
    assert f"cfnade train --resume --out {out}" in said
    assert load(out).metadata["epochs"] < EPOCHS
    final = processes.start("train", "--resume", "--out", out)
    _, err = final.end()
    assert final.code == 0, err
    assert weights(out) == whole


def test_a_full_disk_loses_nothing_that_was_saved(
    processes: Server, shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    assert shell("train", ratings_file, *options(out, 2)).code == 0
    before = {path.name: digest_file(path) for path in out.iterdir()}
    for size in (3_000, 20_000):  # no file may grow beyond this many bytes
        run = processes.start(
            "train", ratings_file, *options(out, 2), "--seed", "9", "--overwrite", file_bytes=size
        )
        _, err = run.end()
        assert run.code == 1
        assert "Traceback" not in err
        assert "error: " in err
        for name in ("model.safetensors", "model.json", "context.safetensors"):
            assert digest_file(out / name) == before[name]
        load(out)


def test_divergence_keeps_the_best_model_and_fails(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    """All rows in one batch: the averaged weights are sound until the first update of them."""
    out = tmp_path / "model"
    wild = ["--batch-rows", "64", "--learning-rate", "1e30", "--save-every", "0"]
    done = shell("train", ratings_file, *options(out, 30), *wild)
    assert done.code == 1
    assert "diverged" in done.said
    assert "lower learning rate" in done.said
    assert f"The best model before that is kept in {out}" in done.said
    assert "Traceback" not in done.err
    kept = load(out)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert 1 <= len(history) < 30
    best = min(history, key=lambda record: record["valid_rmse"])
    assert kept.metadata["best_epoch"] == best["epoch"]
    assert kept.metadata["valid"]["rmse"] == best["valid_rmse"]
    assert all(
        bool(weight.isfinite().all()) for weight in member_network(kept.members[0]).parameters()
    )
    # What it suggests can be followed: nothing is left to go on with.
    before = weights(out)
    assert shell("train", ratings_file, *options(out, 6), "--overwrite").code == 0
    assert weights(out) != before


def test_divergence_before_any_good_epoch_leaves_the_model_that_was_there(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    assert shell("train", ratings_file, *options(out, 1)).code == 0
    before = weights(out)
    wild = ["--learning-rate", "1e30", "--save-every", "0", "--overwrite"]
    done = shell("train", ratings_file, *options(out, 30), *wild)
    assert done.code == 1
    assert "diverged" in done.said
    assert weights(out) == before
    assert not (out / "training.safetensors").exists()


def test_more_ratings_continue_an_earlier_model(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    first, more = tmp_path / "first", tmp_path / "more"
    assert shell("train", ratings_file, *options(first)).code == 0
    grown = tmp_path / "grown.csv"
    grown.write_text(ratings_file.read_text() + "900,3,4,9\n900,77,2,9\n")
    done = shell("train", grown, *options(more, 1), "--init-model", first)
    assert done.code == 0, done.err
    assert load(more).context.n_users == load(first).context.n_users + 1
    assert load(more).metadata["run_config"]["init_model"] == str(first)
