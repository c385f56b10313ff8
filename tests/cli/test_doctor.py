"""`cfnade doctor`, and the line that commands print before they compile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cfnade.kernels.jit import COMPILATION_MESSAGE

Shell = Any


State = tuple[str, ...]
"""Groups of kernels that have yet to be compiled."""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> Callable[[State], None]:
    """Says what the cache is like: warm, if nothing else is said."""

    def say(state: State) -> None:
        monkeypatch.setattr("cfnade.kernels.warmup.missing_groups", lambda *_: state)

    say(())
    return say


def test_doctor_tells_a_folder_of_netflix_without_ratings(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFNADE_DATA", str(tmp_path))
    folder = tmp_path / "netflix"
    folder.mkdir()
    assert "netflix           " + str(folder) + " (incomplete" in shell("doctor", "--quick").out
    (folder / "movie_titles.txt").write_text("1,2003,Dinosaur Planet\n")
    assert "(incomplete: no combined_data_*.txt or mv_*.txt)" in shell("doctor", "--quick").out
    (folder / "combined_data_1.txt").write_text("1:\n1488844,3,2005-09-06\n")
    assert f"netflix           {folder}\n" in shell("doctor", "--quick").out


def test_doctor_shows_what_there_is(shell: Shell, own_cache: Path) -> None:
    done = shell("doctor")
    assert done.code == 0
    for word in ("torch", "threads", "kernels           work", str(own_cache)):
        assert word in done.out


def test_doctor_says_whether_kernels_must_be_compiled(
    shell: Shell, cache: Callable[[State], None]
) -> None:
    warm = shell("doctor", "--quick").out
    assert "kernel cache      warm, in " in warm
    folder = warm.split("warm, in ")[1].splitlines()[0]
    assert any(Path(folder).glob("posterior.*.nbi"))  # what another machine would take over
    cache(("nade", "implicit"))
    assert (
        "kernel cache      cold (to compile at first use: nade, implicit)"
        in shell("doctor", "--quick").out
    )


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which kernels must be compiled."""

    def prepare(*_: str) -> bool:
        logging.getLogger("cfnade").warning(COMPILATION_MESSAGE)
        return True

    monkeypatch.setattr("cfnade.kernels.warmup.compile_kernels", prepare)


@pytest.mark.usefixtures("cold")
def test_training_says_that_it_compiles_before_the_first_epoch(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    small = ["--hidden", "8", "--epochs", "1", "--out", tmp_path / "model"]
    done = shell("train", ratings_file, *small)
    assert done.code == 0, done.err
    assert done.err.count(COMPILATION_MESSAGE) == 1
    assert done.err.index(COMPILATION_MESSAGE) < done.err.index("epoch 1/1")
    other = shell("train", ratings_file, *small, "--device", "toaster")
    assert COMPILATION_MESSAGE not in other.err  # kernels are for the processor alone


@pytest.mark.usefixtures("cold")
def test_a_service_says_that_it_compiles_before_it_loads(
    shell: Shell, user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    monkeypatch.setattr("cfnade.server.run.run_server", lambda settings: print(settings.model_dir))
    done = shell("serve", user_model)
    assert (done.out, done.err) == (f"{user_model}\n", f"{COMPILATION_MESSAGE}\n")
