"""A refresh learns what came, is published if not worse, and can be taken back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Shell
from tests.cli.conftest import shell as shell  # the fixture
from tests.online.files import bytes_below
from tests.online.given import NEW_PEOPLE, come, model_at, store_of
from tests.server.given import KINDS, ratings

from cfnade import CFNADE, checkpoint
from cfnade.cli import refresh as refresh_command
from cfnade.components.ridge import RidgeComponent
from cfnade.evaluation.evaluate import evaluate
from cfnade.exceptions import CheckpointError, TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.online import refresh as refreshing
from cfnade.online.event_store import Event, EventStore
from cfnade.online.publish import (
    N_VERSIONS,
    earlier_versions,
    fingerprint,
    publish,
    rollback,
)
from cfnade.online.refresh import FolderBusyError, holdout_split, newest_split, refresh


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and the store of its ratings, to be copied."""
    folder = tmp_path_factory.mktemp("saved")
    model_at(folder / "model")
    store_of(folder / "ratings.db")
    return folder


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved / "model", tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def place(saved: Path, tmp_path: Path) -> str:
    shutil.copy(saved / "ratings.db", tmp_path / "ratings.db")
    return str(tmp_path / "ratings.db")


# -- what is held back ----------------------------------------------------------------------------


def test_the_newest_tenth_is_held_back_and_half_of_it_given() -> None:
    made = ratings(KINDS["user"])
    parts = newest_split(made)
    assert made.times is not None
    assert parts.train.times is not None
    held = len(made) - len(parts.train)
    assert held == -(-len(made) // 10)
    newest = sorted(made.times.tolist())[len(made) - held :]
    both = parts.valid.concat(parts.fold_in)
    assert both.times is not None
    assert sorted(both.times.tolist()) == newest
    for user in set(both.users.tolist()):
        given, asked = (
            part.times[part.users == user]  # type: ignore[index]
            for part in (parts.fold_in, parts.valid)
        )
        assert 0 <= len(asked) - len(given) <= 1
        assert given.max(initial=0) <= asked.min(initial=2**31 - 1)


def test_nothing_is_asked_that_the_earlier_model_was_told(model: Path) -> None:
    fitted, made = checkpoint.load(model), ratings(KINDS["user"])
    parts = newest_split(made)
    held = parts.valid.concat(parts.fold_in)
    told = parts.train.concat(held.select(np.arange(5)))
    split = holdout_split(made, replace(fitted, context=told))
    assert _cells(split.train) == _cells(told)
    assert _cells(split.fold_in.concat(split.valid)) == _cells(held.select(np.arange(5, len(held))))
    everything = replace(fitted, context=made)  # so nothing is new, and the newest are asked
    assert _cells(holdout_split(made, everything).valid) == _cells(parts.valid)


def _cells(made: Any) -> set[tuple[int, int]]:
    return set(zip(made.users.tolist(), made.items.tolist(), strict=True))


def test_what_is_made_from_ratings_is_made_of_the_newest_too(place: str, tmp_path: Path) -> None:
    model = model_at(tmp_path / "ridge", "ridge")
    come(place)
    assert refresh(model, place, tolerance=1.0, n_threads=1).published
    fitted = checkpoint.load(model)
    counts = fitted.context.level_counts("item")
    np.testing.assert_array_equal(fitted.training_counts["item"], counts)
    side = fitted.members[0].components["user-ridge"]
    assert isinstance(side, RidgeComponent)
    starts = side.network.e_start
    new = fitted.context.item_ids.tolist().index("new")  # which all of its raters gave five stars
    assert starts[new, 0] == starts[:, 0].min()


# -- published or not -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user", "both", "item", "lists"])
def test_new_people_and_items_are_of_the_model_after_one_refresh(
    kind: str, place: str, tmp_path: Path
) -> None:
    model = model_at(tmp_path / kind, kind)
    if kind == "lists":  # trained with metric="recall", k=5
        fitted = checkpoint.load(model)
        tuning = {"plan": {"metric": {"metric": "recall", "k": 5}}}
        checkpoint.save(replace(fitted, metadata=fitted.metadata | {"lists": tuning}), model)
    come(place)
    done = refresh(model, place, tolerance=1.0, n_threads=1)
    assert (done.published, done.n_new_users, done.n_new_items) == (True, NEW_PEOPLE, 1)
    fresh = CFNADE.load(model)
    users, items = fresh.predictor_.users, fresh.predictor_.items
    assert min(users.indices([f"n{n}" for n in range(NEW_PEOPLE)])) >= 0
    assert items.index("new") >= 0
    titles = fresh.fitted_.context.titles
    assert titles is not None
    assert titles[items.index("101")].startswith("Film ")  # titles come along
    listed = fresh.recommend(["n0"], n=41, min_ratings=0)["item"].to_list()
    assert "new" in listed
    assert (fresh.fitted_.interaction_model is not None) == (kind == "lists")
    if kind == "lists":
        assert fresh.fitted_.metadata["lists"]["metric"] == "recall@5"
    again = refresh(model, place, n_threads=1)
    assert (again.published, again.reason) == (
        False,
        "the store has no new events since the last refresh",
    )


def test_what_is_worse_is_not_published(
    model: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(place)
    real = refreshing._continue_training

    def spoilt(*given: object) -> object:
        fitted = real(*given)  # type: ignore[arg-type]
        side = fitted.members[0].components["user"]
        for table in side.network.parameters():
            table.data += 3 * table.data.abs().mean() * np.random.default_rng(0).normal()
            table.data.flatten()[::2] *= -4
        return fitted

    monkeypatch.setattr(refreshing, "_continue_training", spoilt)
    publish(_marked(checkpoint.load(model), 0), model)  # so there is an earlier one
    before = fingerprint(model)
    kept = earlier_versions(model)
    store = EventStore.open(place)
    store.erase_user("mistyped")  # of whom the store knows nothing
    store.close()
    done = refresh(model, place, n_threads=1)
    assert not done.published
    assert "worse, so the model stays" in done.reason
    assert done.rmse_after is not None
    assert done.rmse_before is not None
    assert done.rmse_after > done.rmse_before
    assert fingerprint(model) == before
    assert earlier_versions(model) == kept != []
    again = refresh(model, place, n_threads=1)  # the same training would give the same model
    assert (again.published, again.rmse_after) == (False, None)
    assert again.reason.endswith("no new events since the last refresh, which was worse")
    assert refresh(model, place, tolerance=100.0, n_threads=1).published  # the bar is an argument


def test_who_came_and_went_between_refreshes_forces_nothing(
    model: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model holds them, so none has to go."""
    publish(_marked(checkpoint.load(model), 0), model)
    before, kept = fingerprint(model), earlier_versions(model)
    come(place)
    store = EventStore.open(place)
    assert store.erase_user("n0").n_events
    store.close()
    real = evaluate
    rmse = iter([1.0, 2.0])
    monkeypatch.setattr(
        refreshing, "evaluate", lambda *given: replace(real(*given), rmse=next(rmse))
    )
    assert not refresh(model, place, n_threads=1).published
    assert (fingerprint(model), earlier_versions(model)) == (before, kept)


def test_the_last_three_are_kept_and_rolled_back_one_by_one(model: Path) -> None:
    fitted = checkpoint.load(model)
    checks = [fingerprint(model)]
    for number in range(N_VERSIONS + 2):
        publish(_marked(fitted, number), model)
        checks.append(fingerprint(model))
    assert [fingerprint(one) for one in earlier_versions(model)] == checks[
        -2 : -2 - N_VERSIONS : -1
    ]
    for number in range(N_VERSIONS):
        rollback(model)
        assert fingerprint(model) == checks[-2 - number]
        checkpoint.load(model)
    with pytest.raises(CheckpointError, match="no earlier version to return to"):
        rollback(model)


def _marked(fitted: FittedModel, number: int) -> FittedModel:
    from dataclasses import replace

    return replace(fitted, metadata=fitted.metadata | {"number": number})


class Killed(BaseException):
    """The process ends here; whatever would tidy up can change nothing any more."""


CHANGES = ("link", "rename", "replace", "unlink", "mkdir", "rmdir")


def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> bool:
    """Let an action change files so many times, then nothing; whether it came to its end."""
    left = steps

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*given, **named)

        return counted

    with monkeypatch.context() as patched:
        for name in CHANGES:
            patched.setattr(os, name, dying(getattr(os, name)))
        patched.setattr(os, "fsync", lambda _: None)
        try:
            action()
        except Killed:
            return False
    return True


def test_a_kill_at_any_step_of_publishing_leaves_a_whole_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change of a file is the last one once; then all goes on as if nothing was."""
    fitted = checkpoint.load(model)
    new: list[bool] = []
    for steps in range(100):
        folder = tmp_path / f"copy-{steps}"
        shutil.copytree(model, folder)
        ended = killed_after(steps, monkeypatch, partial(publish, _marked(fitted, 1), folder))
        new.append(checkpoint.load(folder).metadata.get("number") == 1)  # checked file by file
        if steps % 4 == 0 or ended:
            publish(_marked(fitted, 7), folder)  # the next refresh goes through
            assert checkpoint.load(folder).metadata["number"] == 7
            rollback(folder)
            assert (checkpoint.load(folder).metadata.get("number") == 1) == new[-1]
            assert list(folder.glob("earlier/.part-*")) == []
        shutil.rmtree(folder)
        if ended:
            break
    assert len(new) > 10
    assert new == sorted(new)  # old up to one step, new from then on
    assert new[-1]
    assert not new[0]


def test_a_refresh_that_is_killed_holds_nobody_up(model: Path, place: str) -> None:
    """kill -9 in the middle: the lock goes with the process, the model is as it was."""
    come(place)
    before = fingerprint(model)
    program = (
        "import sys, time, pathlib\n"
        "from cfnade.online import refresh as refreshing\n"
        "def never(*given):\n"
        "    print('training', flush=True)\n"
        "    time.sleep(600)\n"
        "refreshing._continue_training = never\n"
        "refreshing.refresh(pathlib.Path(sys.argv[1]), sys.argv[2], n_threads=1)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(model), place], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "training\n"
    with pytest.raises(TrainingError, match=f"process {process.pid} on"):
        refresh(model, place, n_threads=1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert fingerprint(model) == before
    assert refresh(model, place, tolerance=1.0, n_threads=1).published


# -- forgetting -----------------------------------------------------------------------------------


def test_who_is_forgotten_is_in_no_file_after_a_refresh(
    model: Path, place: str, tmp_path: Path
) -> None:
    come(place)
    who = "somebody-unmistakable-4711"
    store = EventStore.open(place)
    store.append([Event(who, str(item), "rating", 4.0) for item in range(101, 120)])
    assert refresh(model, place, tolerance=1.0, n_threads=1).published
    assert refresh(model, place, tolerance=1.0, n_threads=1).published is False
    store.append([Event("x", "101", "rating", 4.0)])
    assert refresh(model, place, tolerance=1.0, n_threads=1).published
    assert who.encode() in bytes_below(tmp_path)  # in the model, the one before, and the store
    assert store.erase_user(who).n_events == 19
    store.close()
    time.sleep(0.01)
    done = refresh(model, place, tolerance=0.0, n_threads=1)
    assert done.published  # however good it is: they must go
    assert who.encode() not in bytes_below(tmp_path)
    assert CFNADE.load(model).predictor_.users.index(who) == -1


# -- bad input ------------------------------------------------------------------------------------


def test_what_cannot_be_refreshed_is_one_message(
    model: Path, place: str, tmp_path: Path, shell: Shell
) -> None:
    empty = store_of_nothing(tmp_path / "empty.db")
    for arguments, message in [
        (("refresh", model), "missing option '--store'"),
        (("refresh", model, "--store", tmp_path / "no.db"), "there is no store"),
        (("refresh", tmp_path / "nowhere", "--store", place), "there is no such folder"),
        (
            ("refresh", model, "--store", place, "--every", "soon"),
            "--every soon: is not a duration",
        ),
        (
            ("refresh", model, "--store", place, "--tolerance", "-1"),
            "--tolerance: must be",
        ),
        (("refresh", model, "--store", empty), "there are no ratings in the store yet"),
        (("rollback", model), "no earlier version to return to"),
    ]:
        said = shell(*arguments)
        assert said.code in (1, 2), (arguments, said)
        assert message in said.said, (message, said.said)
        assert "Traceback" not in said.err


def store_of_nothing(path: Path) -> str:
    EventStore.open(str(path), create=True).close()
    return str(path)


def test_a_store_without_the_models_ratings_is_refused(model: Path, tmp_path: Path) -> None:
    place = store_of_nothing(tmp_path / "few.db")
    come(place)
    with pytest.raises(TrainingError, match="import those first"):
        refresh(model, place, n_threads=1)


def test_every_goes_on_after_a_failure(
    model: Path, place: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that may pass at first, any after it worked once; a mistake in the command ends it."""
    outcomes: list[BaseException | None] = []

    def once(*_: object) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    monkeypatch.setattr(refresh_command, "_refresh_once", once)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    command = ("refresh", model, "--store", place, "--every", "1s")
    stop: BaseException = KeyboardInterrupt()
    outcomes += [FolderBusyError("busy"), None, TrainingError("too few"), None, stop]
    said = shell(*command)
    assert outcomes == []
    assert "not refreshed, next try in 1s: busy" in said.err
    assert "not refreshed, next try in 1s: too few" in said.err
    outcomes += [TrainingError("too few"), stop]
    said = shell(*command)
    assert (said.code, outcomes) == (1, [stop])


def test_the_command_says_what_it_did(model: Path, place: str, shell: Shell) -> None:
    come(place)
    said = shell("refresh", model, "--store", place, "--tolerance", "1", "--n-threads", "1")
    assert said.code == 0, said
    assert "published: RMSE" in said.out
    assert "5 new users, 1 new item" in said.out
    said = shell("rollback", model)
    assert (said.code, "back to the model that was in" in said.out) == (0, True)
