"""The estimator keeps scikit-learn's contract, and every argument of it means something."""

from __future__ import annotations

import copy
import logging
import math
import pydoc
import re
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.support.close import assert_close

from cfnade import DataError, Dataset, Split, checkpoint, load, split, synthetic
from cfnade.config import TrainingConfig
from cfnade.data.synthetic import synthetic_interactions
from cfnade.estimator import CFNADE, NotFittedError
from cfnade.evaluation.evaluate import evaluate
from cfnade.exceptions import (
    CfnadeError,
    CheckpointError,
    ModelError,
    PredictionError,
    TrainingError,
)
from cfnade.recipes import load_recipe
from cfnade.training.parameters import model_fields, plan_from_parameters, training_options
from cfnade.training.steps import KernelStepper

SMALL: dict[str, Any] = {
    "side": "user",
    "hidden": (6,),
    "epochs": 3,
    "batch_rows": 8,
    "n_threads": 1,
}


@pytest.fixture(scope="module")
def parts() -> Split:
    made = synthetic(30, 20, 300, seed=3).ratings
    return split(made.replace(times=np.arange(len(made)) * 60), "paper:0")


@pytest.fixture(scope="module")
def fitted(parts: Split) -> CFNADE:
    return CFNADE(**SMALL).fit(parts)


@pytest.fixture(scope="module")
def item_based(parts: Split) -> CFNADE:
    return CFNADE(**SMALL | {"side": "item"}).fit(parts)


def frame_of(ratings: Dataset) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "user": ratings.user_ids[ratings.users],
            "item": ratings.item_ids[ratings.items],
            "rating": ratings.values,
        }
    )


def bits(estimator: CFNADE) -> dict[str, bytes]:
    return {
        f"{number}.{name}": array.tobytes()
        for number, member in enumerate(estimator.fitted_.members)
        for name, array in member.arrays().items()
    }


def all_predictions(estimator: CFNADE, ratings: Dataset) -> Any:
    users = np.repeat(ratings.user_ids, ratings.n_items)
    return estimator.predict_proba(users, np.tile(ratings.item_ids, ratings.n_users))


# -- arguments -----------------------------------------------------------------------------------


def test_arguments_are_keyword_only_and_have_defaults() -> None:
    parameters = list(signature(CFNADE).parameters.values())
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters)
    assert list(CFNADE().get_params()) == [p.name for p in parameters]


def test_arguments_are_stored_as_they_are_even_if_they_cannot_be_used() -> None:
    given = {name: object() for name in signature(CFNADE).parameters}
    found = CFNADE(**given).get_params()  # type: ignore[arg-type]
    assert all(found[name] is value for name, value in given.items())


def test_a_clone_has_equal_arguments_and_is_not_fitted(fitted: CFNADE) -> None:
    """What sklearn.base.clone does: copy every argument, construct, and compare identities."""
    given = {name: copy.deepcopy(value) for name, value in fitted.get_params(deep=False).items()}
    clone = type(fitted)(**given)
    stored = clone.get_params(deep=False)
    assert all(stored[name] is given[name] for name in given)
    assert clone.get_params() == fitted.get_params()
    assert not hasattr(clone, "fitted_")
    assert hasattr(fitted, "fitted_")


def test_set_params_changes_the_next_fit_and_returns_the_estimator(parts: Split) -> None:
    estimator = CFNADE(**SMALL)
    assert estimator.set_params(epochs=1, seed=4) is estimator
    direct = CFNADE(**{**SMALL, "epochs": 1, "seed": 4})
    assert estimator.get_params() == direct.get_params()
    assert bits(estimator.fit(parts)) == bits(direct.fit(parts))


def test_help_documents_every_parameter_and_shows_nothing_private() -> None:
    documented = re.findall(r"^ {8}(\w+): ", CFNADE.__doc__ or "", re.MULTILINE)
    assert documented[: len(signature(CFNADE).parameters)] == [*signature(CFNADE).parameters]
    for name, method in vars(CFNADE).items():
        if callable(method) and not name.startswith("_"):
            parameters = [*signature(method).parameters][1:]
            text = method.__doc__ or ""
            if "arguments are those" not in text.replace("\n", " ") and name != "set_params":
                assert all(f"{parameter}:" in text or "`deep`" in text for parameter in parameters)
    text = pydoc.plain(pydoc.render_doc(CFNADE))
    assert not re.findall(r"^ \|  _[a-z]\w*\(", text, re.MULTILINE)


def test_a_wrong_name_is_refused_and_nothing_is_set() -> None:
    estimator = CFNADE()
    with pytest.raises(TrainingError, match="'epoch'; did you mean 'epochs'"):
        estimator.set_params(seed=9, epoch=1)
    assert estimator.get_params() == CFNADE().get_params()
    with pytest.raises(TypeError, match="epoch"):
        CFNADE(epoch=1)  # type: ignore[call-arg]


def test_it_prints_as_what_would_make_it_again() -> None:
    assert repr(CFNADE()) == "CFNADE()"
    estimator = CFNADE(side="item", hidden=(8, 8), training_options={"smoothing": 2.0})
    assert eval(repr(estimator)).get_params() == estimator.get_params()


def test_defaults_are_those_of_the_default_recipe_of_the_side() -> None:
    defaults, default = CFNADE().get_params() | {"side": "user"}, load_recipe("default")
    assert training_options(defaults) == default.training
    assert model_fields(defaults).items() >= default.model.items()
    plain = load_recipe("default-plain")
    for paper in (defaults | {"ridge": 0}, defaults | {"side": "item"}):
        assert training_options(paper) == TrainingConfig() == plain.training
        assert model_fields(paper).items() >= plain.model.items()
        assert not model_fields(paper).get("ridge")
    assert model_fields(defaults | {"side": "item", "ridge": 7})["ridge"] == 7


def test_given_parameters_replace_those_of_the_recipe() -> None:
    default, both = load_recipe("default-both"), CFNADE(side="both").get_params()
    assert training_options(both) == default.training
    own = both | {"learning_rate": 0.5, "training_options": {"passes": 3}}
    assert training_options(own) == replace(default.training, learning_rate=0.5, passes=3)
    assert model_fields(both).items() >= default.model.items()


# Every argument with a value that must change the distributions.
CHANGES: dict[str, Any] = {
    "side": "item",
    "ridge": 0,
    "hidden": (6, 6),
    "factors": 3,
    "shared": False,
    "activation": "sigmoid",
    "context_scale": "sum",
    "target_weight": "paper",
    "ordinal_weight": 0.3,
    "epochs": 4,
    "batch_rows": 16,
    "learning_rate": 0.05,
    "weight_decay": 0.5,
    "schedule": "constant",
    "average": 0.9,
    "refit": True,
    "seed": 1,
    "n_seeds": 2,
    "training_options": {"smoothing": 50.0},
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_argument_changes_the_predictions(name: str, parts: Split, fitted: CFNADE) -> None:
    changed = CFNADE(**{**SMALL, name: CHANGES[name]}).fit(parts)
    before, after = (all_predictions(one, parts.train) for one in (fitted, changed))
    assert np.abs(before - after).max() > 1e-6


def test_patience_ends_training_before_its_last_epoch(parts: Split) -> None:
    options = {**SMALL, "epochs": 40, "learning_rate": 0.2, "schedule": "constant", "average": 0.0}
    patient, hasty = CFNADE(**options).fit(parts), CFNADE(**options, patience=2).fit(parts)
    assert len(patient.history_) == 40
    assert len(hasty.history_) == hasty.history_[-1]["best_epoch"] + 2 < 40


def test_threads_and_device_reach_training(fitted: CFNADE, parts: Split) -> None:
    assert fitted.fitted_.metadata["run"]["threads"] == 1
    two = CFNADE(**{**SMALL, "n_threads": 2}).fit(parts)
    assert two.fitted_.metadata["run"]["threads"] == 2
    with pytest.raises(TrainingError, match="device 'tape'"):
        CFNADE(**SMALL, device="tape").fit(parts)


def test_verbose_prints_a_line_an_epoch(parts: Split, capsys: pytest.CaptureFixture[str]) -> None:
    estimator = CFNADE(**SMALL).fit(parts)
    assert capsys.readouterr().out == ""
    lines = estimator.set_params(verbose=True).fit(parts).history_
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(lines) == 3
    shown = lines[1]
    assert f"valid NLL {shown['valid_nll']:.4f}   best {shown['best_nll']:.4f}" in printed[1]
    assert f"RMSE {shown['valid_rmse']:.4f}" in printed[1]
    assert f"best {lines[2]['best_nll']:.4f} @ {lines[2]['best_epoch']}" in printed[2]


def test_verbose_names_the_model_of_each_line(
    parts: Split, capsys: pytest.CaptureFixture[str]
) -> None:
    CFNADE(**{**SMALL, "side": "user,item", "n_seeds": 2, "epochs": 1, "verbose": True}).fit(parts)
    starts = [line.split("epoch")[0].strip() for line in capsys.readouterr().out.splitlines()]
    names = ["model 1/3 user", "model 2/3 user", "model 3/3 item"]
    assert sorted(set(starts)) == names


def test_every_argument_is_tried_above() -> None:
    elsewhere = {"samples", "time_budget", "patience", "n_threads", "device", "verbose"}
    elsewhere |= {"use_timestamps", "learn_interactions", "metric", "k"}
    assert set(CHANGES) | elsewhere == set(signature(CFNADE).parameters)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"side": "users"}, TrainingError, r"side \(='users'\) must be \"user\", \"item\" or"),
        ({"n_seeds": 0}, TrainingError, r"n_seeds \(=0\) must be a whole number of at least 1"),
        ({"ridge": -1}, TrainingError, r"ridge \(=-1\) must be a whole number of at least 0"),
        ({"hidden": 500}, ModelError, r"hidden \(=500\) must be a list of"),
        ({"activation": "swish"}, ModelError, "swish"),
        ({"epochs": "3"}, TrainingError, r"epochs \(='3'\) must be a whole number"),
        ({"seed": -1}, TrainingError, r"seed \(=-1\) must be a whole number"),
        ({"schedule": "plateau"}, TrainingError, "patience .* must be given"),
        ({"training_options": 3}, TrainingError, r"training_options \(=3\) must be a mapping"),
        ({"training_options": {"smothing": 3}}, TrainingError, "did you mean 'smoothing'"),
        ({"training_options": {"epochs": 3}}, TrainingError, r"write CFNADE\(epochs=3\)"),
        ({"n_threads": 0}, ModelError, r"threads \(=0\)"),
        ({"learn_interactions": 1}, TrainingError, "must be True, False or None"),
        (
            {"learn_interactions": True, "use_timestamps": True},
            TrainingError,
            "learn_interactions=True: a model whose predictions depend",
        ),
    ],
)
def test_fit_refuses_what_cannot_be_used(
    wrong: dict[str, Any], error: type[Exception], message: str, parts: Split
) -> None:
    estimator = CFNADE(**{**SMALL, **wrong})
    with pytest.raises(error, match=message):
        estimator.fit(parts)
    assert not hasattr(estimator, "fitted_")


# -- data ----------------------------------------------------------------------------------------


def test_the_same_ratings_give_the_same_model_however_they_are_given(
    parts: Split, fitted: CFNADE, tmp_path: Path
) -> None:
    train, valid = frame_of(parts.train), frame_of(parts.valid)
    train.write_csv(tmp_path / "train.csv")
    valid.write_csv(tmp_path / "valid.csv")
    # The split's tables also hold who is in the test part alone; here everybody must be met.
    for ids, rated in ((parts.train.n_users, "user"), (parts.train.n_items, "item")):
        assert pl.concat([train, valid])[rated].n_unique() == ids
    ways = [
        (parts.train, parts.valid),
        (train, valid),
        (train.to_pandas(), parts.valid),
        (tmp_path / "train.csv", str(tmp_path / "valid.csv")),
    ]
    for data, given in ways:
        assert bits(CFNADE(**SMALL).fit(data, given)) == bits(fitted)


def test_without_valid_a_twentieth_is_drawn_by_the_seed(parts: Split) -> None:
    estimator = CFNADE(**SMALL).fit(parts.train)
    counts = estimator.fitted_.metadata["ratings"]
    n = len(parts.train)
    assert counts == {"train": n - -(-n // 20), "valid": -(-n // 20), "test": 0}
    assert len(estimator.fitted_.context) == n
    assert bits(CFNADE(**SMALL).fit(frame_of(parts.train))) == bits(estimator)
    drawn = [CFNADE(**SMALL, seed=seed).fit(parts.train).fitted_ for seed in (0, 1)]
    assert (drawn[0].training_counts["item"] != drawn[1].training_counts["item"]).any()


def test_the_same_seed_gives_the_same_bits(parts: Split, fitted: CFNADE) -> None:
    again = CFNADE(**SMALL).fit(parts)
    assert bits(again) == bits(fitted)
    assert again.fitted_.calibration == fitted.fitted_.calibration
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    assert bits(again.fit(parts)) == bits(fitted)  # fit starts anew, and from no global state


def test_the_test_part_is_never_looked_at(parts: Split, fitted: CFNADE) -> None:
    turned = parts.test.replace(levels=4 - parts.test.levels)
    other = Split("", parts.train, parts.valid, turned, parts.fold_in, "")
    assert bits(CFNADE(**SMALL).fit(other)) == bits(fitted)


def test_valid_may_hold_new_ids_and_few_levels(parts: Split) -> None:
    valid = pl.DataFrame({"user": [1000, 1001], "item": [1, 2000], "rating": [3, 3]})
    estimator = CFNADE(**SMALL).fit(parts.train, valid)
    assert (estimator.n_users_, estimator.n_items_) == (32, 21)
    assert estimator.scale_ == parts.train.scale
    assert estimator.predict_frame(1000, [1])["n_user_ratings"].to_list() == [1]


def test_raw_text_ids_and_half_stars_come_back_as_they_were() -> None:
    drawn = synthetic(12, 9, 80, seed=1, scale="0.5-5/0.5").ratings
    frame = frame_of(drawn).with_columns(
        user=pl.format("u{}", "user"), item=pl.format("book {}", "item")
    )
    estimator = CFNADE(**SMALL).fit(load(frame, scale="0.5-5/0.5"))
    assert estimator.classes_.tolist() == [k / 2 for k in range(1, 11)]
    found = estimator.recommend(["u3"], n=20, exclude_seen=False, min_ratings=0)
    assert set(found["item"]) == set(frame["item"])
    assert found["user"].unique().to_list() == ["u3"]
    assert {"p_0.5", "p_5"} <= set(found.columns)
    assert ((found["prediction"] >= 0.5) & (found["prediction"] <= 5)).all()
    new = estimator.predict("new", ["book 1"], histories={"new": {"book 2": 4.5, "book 3": 0.5}})
    assert new.shape == (1,)


@pytest.mark.parametrize(
    ("valid", "error", "message"),
    [
        (lambda p: p.train, DataError, "validation ratings are of a user and an item that the tra"),
        (lambda _: 3.5, DataError, "float"),
        (lambda _: "nowhere.csv", DataError, "nowhere.csv: there is no such file"),
        (
            lambda _: pl.DataFrame({"user": [1], "item": [999], "rating": [7]}),
            DataError,
            "rating 7 is off the scale 1–5",
        ),
    ],
)
def test_validation_that_cannot_be_used_is_refused(
    valid: Any, error: type[Exception], message: str, parts: Split
) -> None:
    with pytest.raises(error, match=message):
        CFNADE(**SMALL).fit(parts.train, valid(parts))


def test_a_split_takes_no_second_validation(parts: Split) -> None:
    with pytest.raises(TrainingError, match="has a validation part"):
        CFNADE(**SMALL).fit(parts, parts.valid)


# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        lambda e: e.predict([1], [1]),
        lambda e: e.predict_proba([1], [1]),
        lambda e: e.predict_frame([1], [1]),
        lambda e: e.recommend([1]),
        lambda e: e.explain(user=1, item=1),
        lambda e: e.evaluate(pl.DataFrame({"user": [1], "item": [1], "rating": [1]})),
        lambda e: e.save("nowhere"),
        lambda e: e.suggest_items_to_rate(history={}),
        lambda e: e.find_items("film"),
    ],
)
def test_asking_before_fitting_says_what_to_do(question: Any) -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(ratings\) first, or .*CFNADE.load"):
        question(CFNADE())


def test_what_is_there_after_fitting(fitted: CFNADE, parts: Split) -> None:
    assert (fitted.n_users_, fitted.n_items_) == (30, 20)
    assert fitted.scale_ == parts.train.scale
    assert [record["epoch"] for record in fitted.history_] == [1, 2, 3]
    assert fitted.predictor_.fitted is fitted.fitted_
    assert fitted.diverged_ is None
    assert len(fitted.fitted_.context) == len(parts.train) + len(parts.valid)


def test_predictions_are_the_means_of_the_distributions(fitted: CFNADE, parts: Split) -> None:
    test = parts.test
    users, items = test.user_ids[test.users], test.item_ids[test.items]
    chances = fitted.predict_proba(users, items)
    assert chances.shape == (len(test), 5)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-9)
    means = fitted.predict(list(users), list(items))
    np.testing.assert_allclose(chances @ fitted.classes_, means, rtol=1e-7)
    assert_close(
        fitted.predict(users[0], items), fitted.predict(np.full(len(items), users[0]), items)
    )
    assert fitted.evaluate(test).rmse == pytest.approx(np.sqrt(np.mean((means - test.values) ** 2)))


def test_evaluate_takes_what_fit_takes(fitted: CFNADE, parts: Split, tmp_path: Path) -> None:
    expected = evaluate(fitted.fitted_, parts.test)
    assert_close(fitted.evaluate(parts.test).as_dict(), expected.as_dict())
    frame = frame_of(parts.test)
    assert_close(fitted.evaluate(frame).as_dict(), expected.as_dict())
    frame.write_csv(tmp_path / "test.csv")
    assert_close(fitted.evaluate(tmp_path / "test.csv").as_dict(), expected.as_dict())
    assert fitted.evaluate(frame.head(1)).n == 1  # which does not tell its scale by itself


def test_time_changes_predictions_and_must_be_given(parts: Split) -> None:
    knowing, blind = (
        CFNADE(**SMALL | {"side": "both"}, use_timestamps=time).fit(parts) for time in (True, False)
    )
    now = int(parts.train.times[0])  # type: ignore[index]
    assert (
        abs(float(knowing.predict([1], [1], timestamp=now)[0] - blind.predict([1], [1])[0])) > 1e-6
    )
    with pytest.raises(PredictionError, match="give timestamp="):
        knowing.predict([1], [1])


# -- keeping -------------------------------------------------------------------------------------


KINDS: dict[str, dict[str, Any]] = {
    "user": {"factors": 2, "training_options": {"smoothing": 2.0, "context_rate": (0.2, 0.9)}},
    "item": {"side": "item", "hidden": (6, 5), "refit": True},
    "user-seeds": {"n_seeds": 2},
    "both": {"side": "both", "training_options": {"passes": 2, "batch_columns": 9}},
    "both-seeds": {"side": "both", "n_seeds": 2},
    "both-time": {"side": "both", "use_timestamps": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_estimator_comes_back_with_its_arguments_and_bits(
    kind: str, parts: Split, tmp_path: Path
) -> None:
    estimator = CFNADE(**(SMALL | {"epochs": 2, "seed": 5} | KINDS[kind])).fit(parts)
    estimator.save(tmp_path / "model")
    back = CFNADE.load(tmp_path / "model")
    assert back.get_params() == estimator.get_params()
    assert bits(back) == bits(estimator)
    assert back.history_ == estimator.history_
    scores = (one.evaluate(parts.test).as_dict() for one in (back, estimator))
    assert_close(*scores)
    if not estimator.use_timestamps:
        assert_close(back.recommend([1, 2]), estimator.recommend([1, 2]))
        assert_close(all_predictions(back, parts.train), all_predictions(estimator, parts.train))
    assert bits(back.fit(parts)) == bits(estimator)


@pytest.mark.parametrize("damaged", [{"unheard of": 1}, 3, []])
def test_saved_parameters_that_cannot_be_used_are_refused(
    damaged: Any, fitted: CFNADE, tmp_path: Path
) -> None:
    checkpoint.save(replace(fitted.fitted_, metadata={"parameters": damaged}), tmp_path)
    with pytest.raises(CheckpointError, match="the parameters of its training cannot be used: "):
        CFNADE.load(tmp_path)


def test_a_model_without_metadata_loads_with_default_parameters(
    fitted: CFNADE, tmp_path: Path
) -> None:
    checkpoint.save(replace(fitted.fitted_, metadata={}), tmp_path)
    back = CFNADE.load(tmp_path)
    assert back.get_params() == CFNADE().get_params()
    assert back.history_ == []
    assert_close(back.predict([1], [2]), fitted.predict([1], [2]))


def test_an_earlier_model_can_be_continued(parts: Split, fitted: CFNADE, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    fresh = CFNADE(**SMALL).fit(parts)
    further = CFNADE(**SMALL).fit(parts, init_model=fitted)
    assert bits(CFNADE(**SMALL).fit(parts, init_model=tmp_path)) == bits(further)
    assert further.history_[0]["cost"] < fresh.history_[0]["cost"]
    with pytest.raises(TrainingError, match=r"cannot be continued: its hidden is"):
        CFNADE(**{**SMALL, "hidden": (7,)}).fit(parts, init_model=fitted)


def test_divergence_after_a_good_epoch_keeps_that_and_says_so(
    parts: Split, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest, costs = KernelStepper.step, list[float]()

    def failing(self: KernelStepper, batch: Any, *, rate: float) -> float:
        per_epoch = 4  # 30 rows in batches of 8
        costs.append(honest(self, batch, rate=rate) if len(costs) <= per_epoch else math.nan)
        return costs[-1]

    monkeypatch.setattr(KernelStepper, "step", failing)
    with caplog.at_level(logging.WARNING, "cfnade"):
        estimator = CFNADE(**SMALL).fit(parts)
    assert estimator.diverged_ is not None
    assert "diverged" in caplog.text
    assert len(estimator.history_) == 1
    assert np.isfinite(estimator.predict([1], [1])).all()


# -- what people pick ------------------------------------------------------------------------------

INTERACTIONS = synthetic_interactions(120, 30, 8, seed=4).interactions


@pytest.fixture(scope="module")
def picked() -> CFNADE:
    return CFNADE(n_threads=1, seed=2).fit(INTERACTIONS)


def interactions_frame(ratings: Dataset) -> pl.DataFrame:
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return pl.DataFrame({"user": users, "item": items})


def test_interactions_are_learnt_listed_and_explained(picked: CFNADE) -> None:
    context = picked.fitted_.context
    assert (picked.n_users_, picked.n_items_, len(context)) == (120, 30, len(INTERACTIONS))
    frame = picked.recommend([1, 2], n=5)
    assert frame.columns == [
        *("user", "rank", "item", "title", "score", "interaction_probability"),
        *("n_user_ratings", "n_item_ratings", "n_hidden_items"),
    ]
    known = set(INTERACTIONS.item_ids[INTERACTIONS.items[INTERACTIONS.users == 0]].tolist())
    assert not known & set(frame.filter(frame["user"] == 1)["item"].to_list())
    everything = picked.recommend([1], n=30)
    assert everything["interaction_probability"].sum() == pytest.approx(1.0, rel=1e-5)
    why = picked.explain(user=1, item=int(frame["item"][0]))
    assert set(why["item"].to_list()) == known
    assert why["interaction_probability"][0] == pytest.approx(
        frame["interaction_probability"][0], rel=1e-4
    )
    assert picked.recommend(history=sorted(known), n=5)["item"].to_list() == (
        frame.filter(frame["user"] == 1)["item"].to_list()
    )
    assert picked.similar_items(3, n=4).height == 4


def test_a_saved_model_of_interactions_says_the_same(picked: CFNADE, tmp_path: Path) -> None:
    picked.save(tmp_path)
    loaded = CFNADE.load(tmp_path)
    assert loaded.get_params() == picked.get_params()
    users = picked.predictor_.users.table
    answers = [
        (
            model.recommend(users, n=4),
            model.recommend(users[:3], n=4, diversity=0.3),
            model.explain(user=3, item=5),
            model.similar_items(3),
        )
        for model in (loaded, picked)
    ]
    for one, other in zip(*answers, strict=True):  # mapped tables lie elsewhere: not the same bits
        assert_frame_equal(one, other, rel_tol=1e-5)


def test_interactions_are_shared_without_anybodys(picked: CFNADE, tmp_path: Path) -> None:
    picked.save(tmp_path, with_context=False)
    shared = CFNADE.load(tmp_path)
    told = {"me": [3, 5, 8]}
    expected = picked.recommend(histories=told, n=6).drop("n_item_ratings", "n_hidden_items")
    found = shared.recommend(histories=told, n=6).drop("n_item_ratings", "n_hidden_items")
    assert_close(found, expected)
    assert shared.similar_items(3)["item"].equals(picked.similar_items(3)["item"])
    with pytest.raises(PredictionError, match="saved without the ratings"):
        shared.recommend([1])


def test_interactions_are_taken_from_tables_and_evaluated() -> None:
    parts = split(INTERACTIONS, "paper:0")
    model = CFNADE(n_threads=1).fit(parts)
    scores = model.evaluate_ranking(parts.test, k=10)
    assert 0.15 < scores.by_k[10]["ndcg"].mean < 0.9
    told = interactions_frame(parts.test)
    again = model.evaluate_ranking(told, k=10)
    assert again.by_k[10]["ndcg"].mean == pytest.approx(scores.by_k[10]["ndcg"].mean)
    with pytest.raises(CfnadeError, match="interactions"):
        model.evaluate(parts.test)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"side": "user"}, r"side \(='user'\) is for ratings"),
        ({"hidden": (5,)}, r"hidden \(=\(5,\)\) is for ratings"),
        ({"time_budget": -1.0}, r"time_budget \(=-1.0\) must be"),
        ({"learn_interactions": False}, r"learn_interactions \(=False\) is for ratings"),
        ({"seed": -1}, "seed"),
        ({"metric": "rmse"}, r"metric \(='rmse'\)"),
        ({"k": 0}, r"k \(=0\)"),
    ],
)
def test_what_is_said_of_ratings_is_refused_of_interactions(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        CFNADE(**wrong).fit(INTERACTIONS)


def test_the_time_budget_of_interactions_is_in_minutes() -> None:
    changed: dict[str, Any] = {"time_budget": 0.5}
    plan = plan_from_parameters(CFNADE(**changed).get_params(), changed, INTERACTIONS)
    assert plan.implicit is not None
    assert plan.implicit.seconds == 30


def test_interactions_are_tuned_for_the_metric_asked_for() -> None:
    model = CFNADE(metric="recall", k=5, time_budget=0.01, n_threads=1).fit(INTERACTIONS)
    assert model.fitted_.metadata["lists"]["metric"] == "recall@5"


def test_interactions_are_not_continued(picked: CFNADE) -> None:
    with pytest.raises(TrainingError, match="init_model is for models of ratings"):
        CFNADE().fit(INTERACTIONS, init_model=picked)


def test_lists_leave_predictions_as_they_are(parts: Split, tmp_path: Path) -> None:
    plain, listing = (
        CFNADE(**SMALL, learn_interactions=lists).fit(parts) for lists in (False, True)
    )
    assert bits(plain) == bits(listing)
    assert_close(all_predictions(plain, parts.test), all_predictions(listing, parts.test))
    assert plain.fitted_.interaction_model is None
    assert listing.fitted_.metadata["lists"]["score"] > 0
    listing.save(tmp_path)
    loaded = CFNADE.load(tmp_path)
    assert loaded.learn_interactions is True
    users = parts.train.user_ids[:8]
    for how in ({}, {"balance": 0.1}, {"rank_by": "prediction"}):
        assert_close(loaded.recommend(users, **how), listing.recommend(users, **how))
    expected = plain.recommend(users, rank_by="prediction")
    assert_close(listing.recommend(users, rank_by="prediction"), expected)


def test_everybody_may_have_picked_one_thing_or_everything() -> None:
    users, items = np.divmod(np.arange(40), 4)
    for table in (
        pl.DataFrame({"user": np.arange(40), "item": np.arange(40) % 4}),
        pl.DataFrame({"user": users, "item": items}),
    ):
        model = CFNADE(n_threads=1).fit(table)
        frame = model.recommend([0], n=9)
        assert np.isfinite(frame["interaction_probability"].to_numpy()).all()
        assert model.recommend([0], n=9, exclude_seen=False).height == 4
        assert np.isfinite(model.similar_items(2)["similarity"].to_numpy()).all()
