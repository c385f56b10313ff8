"""The job of a training run: kept, refused or gone on with, never lost by a wrong argument."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cfnade.checkpoint import load
from cfnade.utils.safetensors_io import digest_file

Shell = Any
EPOCHS = 6


def options(out: Path, epochs: int) -> list[str]:
    text = f"--side item --hidden 16 --epochs {epochs} --batch-rows 16 --n-threads 1 --out {out}"
    return text.split()


FILES = ("run.json", "training.safetensors", "history.jsonl", "model.json", "model.safetensors")


def digests(out: Path) -> dict[str, str]:
    return {name: digest_file(out / name) for name in FILES}


def test_a_wrong_argument_leaves_an_earlier_run_as_it_was(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    assert shell("train", ratings_file, *options(out, 1), "--keep-state").code == 0
    before = digests(out)
    for line, message in {
        "--hidden 0": "--hidden 0: must be",
        "--recipe nonsense": "unknown recipe",
        "--init-model nowhere": "nowhere",
        "--device toaster": "device",
        "--split papr:0": "did you mean",
        f"--hidden 20 --init-model {out}": "cannot be continued",
    }.items():
        done = shell("train", ratings_file, *options(out, 1), *line.split(), "--overwrite")
        assert done.code == 1
        assert message in done.said
        assert digests(out) == before


def test_an_unfinished_run_is_not_thrown_away_and_resumed_only_as_it_was(
    shell: Shell, ratings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    with monkeypatch.context() as patched:  # Ctrl-C in the first epoch
        patched.setattr("cfnade.cli.train.interruptible", lambda: nullcontext(lambda: True))
        assert "stopped" in shell("train", ratings_file, *options(out, EPOCHS)).out
    before = digest_file(out / "training.safetensors"), (out / "run.json").read_text()
    refused = shell("train", ratings_file, *options(out, 2))
    assert refused.code == 1
    assert "holds an unfinished run" in refused.said
    assert "continue it with --resume, or replace it with --overwrite" in refused.said
    other = tmp_path / "other.csv"
    other.write_text(ratings_file.read_text())
    differing = [
        (["--epochs", "7"], f"--epochs was {EPOCHS} when the run began and is 7 now"),
        (["--hidden", "16,16"], "--hidden was 16 when the run began and is 16,16 now"),
        (["--split", "paper:1"], "--split was paper:0 when the run began and is paper:1 now"),
        (["--recipe", "ml-1m-item"], "--recipe was default-plain when the run began and is ml-1m"),
        (["--no-time"], "--time was None when the run began and is False now"),
        (["--use-timestamps"], "--use-timestamps was None when the run began and is True now"),
        (["--no-cache"], "--no-cache was None when the run began and is False now"),
        ([str(other)], f"DATA was {ratings_file} when the run began and is {other} now"),
    ]
    for arguments, message in differing:
        done = shell("train", "--resume", "--out", out, *arguments)
        assert done.code == 1
        assert message in done.said
    after = digest_file(out / "training.safetensors"), (out / "run.json").read_text()
    assert before == after
    # Another folder and all the arguments again: the same run all the same.
    monkeypatch.chdir(ratings_file.parent)
    again = shell("train", "ratings.csv", *options(out, EPOCHS), "--split", "paper:0", "--resume")
    assert again.code == 0, again.err
    # Now that it is finished, there is a model to lose.
    refused = shell("train", ratings_file, *options(out, 1))
    assert refused.code == 1
    assert "holds a trained model; give --overwrite to replace it" in refused.said


def test_a_run_that_patience_ended_is_finished(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    early = [*options(out, 60), "--patience", "1", "--learning-rate", "0.2"]
    assert shell("train", ratings_file, *early).code == 0
    assert load(out).metadata["epochs"] < 60
    assert not (out / "training.safetensors").exists()
    assert (
        "is finished, so there is nothing to resume"
        in shell("train", "--resume", "--out", out).said
    )


def test_data_is_found_from_another_folder(
    shell: Shell, ratings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    test = ratings_file.parent / "test.csv"
    test.write_text("userId,movieId,rating,timestamp\n900,3,4,9\n")
    (ratings_file.parent / "items.csv").write_text("movieId,title\n3,Alien\n")
    monkeypatch.chdir(ratings_file.parent)
    arguments = [*options(out, 1), "--split", "file:test.csv", "--scale", "1-5", "--keep-state"]
    arguments += ["--item-features", "items.csv"]
    done = shell("train", ratings_file.name, *arguments)
    assert done.code == 0, done.err
    monkeypatch.chdir(tmp_path)
    for command in (["evaluate", out], ["train", "--resume", "--out", out]):
        done = shell(*command)
        assert done.code == 0, done.err
