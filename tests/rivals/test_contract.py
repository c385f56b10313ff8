"""What every model in the comparison must do, whoever wrote it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade.data.ratings import Ratings
from cfnade.data.synthetic import Synthetic, synthetic
from cfnade.errors import ModelError
from cfnade.metrics import rmse
from cfnade_rivals import CLASSES, make, rival_class
from cfnade_rivals.interface import FloatArray, MissingError, Rival, Unsaved
from cfnade_rivals.store import load, save

CASES = Path(__file__).parent / "cases"
OWN = ("means", "autorec", "rbm", "llorma", "nnmf")
Fitted = Callable[[str], Rival]


@dataclasses.dataclass(frozen=True)
class Known:
    """Parts of made-up ratings. The last user and the last item occur in the test only."""

    train: Ratings
    valid: Ratings
    test: Ratings
    made: Synthetic


@pytest.fixture(scope="module")
def known() -> Known:
    """300 people, 150 films, 18,000 ratings of strong tastes."""
    made = synthetic(300, 150, 18_000, seed=3, factors=2)
    ratings = made.ratings
    parts = np.random.default_rng(0).choice(3, len(ratings), p=(0.8, 0.05, 0.15))
    parts[(ratings.users == 299) | (ratings.items == 149)] = 2
    train, valid, test = (ratings.select(parts == i) for i in range(3))
    return Known(train, valid, test, made)


def case(name: str) -> dict[str, Any]:
    """base, changed and with; see cases/README.md."""
    given = tomllib.loads((CASES / f"{name}.toml").read_text())
    return {"base": {}, "changed": {}, "with": {}} | given


def fit(name: str, known: Known, seed: int = 1, **options: Any) -> Rival:
    rival = make(name, **options)
    try:
        rival.fit(known.train, known.valid, seed=seed, threads=1)
    except MissingError as error:
        pytest.skip(str(error))
    return rival


@pytest.fixture(scope="module")
def fitted(known: Known) -> Fitted:
    """Each model fitted once, for all tests that only look at it."""
    kept: dict[str, Rival] = {}

    def one(name: str) -> Rival:
        if name not in kept:
            kept[name] = fit(name, known, **case(name)["base"])
        return kept[name]

    return one


def predictions(rival: Rival, known: Known) -> FloatArray:
    return rival.predict(known.test.users, known.test.items)


every = pytest.mark.parametrize("name", CLASSES)


@every
def test_predictions_are_ratings(name: str, known: Known, fitted: Fitted) -> None:
    found = predictions(fitted(name), known)
    assert found.shape == (len(known.test),)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert found.min() >= 1.0
    assert found.max() <= 5.0


@every
def test_probabilities_are_a_distribution_with_that_mean(
    name: str, known: Known, fitted: Fitted
) -> None:
    rival = fitted(name)
    chances = rival.probabilities(known.test.users, known.test.items)
    if chances is None:
        return
    assert chances.shape == (len(known.test), 5)
    assert chances.min() >= 0.0
    np.testing.assert_allclose(chances.sum(1), 1.0, atol=1e-5)
    # Calibration and rounding move the mean a little.
    np.testing.assert_allclose(chances @ np.arange(1, 6), predictions(rival, known), atol=0.02)


@every
def test_the_unknown_gets_a_finite_answer(name: str, fitted: Fitted) -> None:
    """-1, a user and an item without training ratings, in all combinations."""
    users, items = (a.ravel() for a in np.meshgrid([-1, 299, 0], [-1, 149, 0]))
    found = fitted(name).predict(users, items)
    assert np.isfinite(found).all()
    assert found.min() >= 1.0
    assert found.max() <= 5.0
    chances = fitted(name).probabilities(users, items)
    if chances is not None:
        np.testing.assert_allclose(chances.sum(1), 1.0, atol=1e-5)


@every
def test_no_question_is_no_answer(name: str, fitted: Fitted) -> None:
    none = np.empty(0, np.int64)
    assert fitted(name).predict(none, none).shape == (0,)


@every
def test_order_and_company_of_questions_do_not_matter(
    name: str, known: Known, fitted: Fitted
) -> None:
    whole = predictions(fitted(name), known)
    back = fitted(name).predict(known.test.users[::-1], known.test.items[::-1])
    np.testing.assert_allclose(back[::-1], whole, atol=1e-4)
    alone = fitted(name).predict(known.test.users[:1], known.test.items[:1])
    np.testing.assert_allclose(alone, whole[:1], atol=1e-4)


@every
def test_an_index_beyond_the_data_is_refused(name: str, fitted: Fitted) -> None:
    for users, items in (([300], [0]), ([0], [150]), ([-2], [0])):
        with pytest.raises(ValueError, match=r"must lie in 0\.\.|or -1|or be -1"):
            fitted(name).predict(np.array(users), np.array(items))


@every
def test_the_same_seed_gives_the_same_bits(name: str, known: Known, fitted: Fitted) -> None:
    first = predictions(fitted(name), known)
    again = predictions(fit(name, known, **case(name)["base"]), known)
    assert first.tobytes() == again.tobytes()
    if name != "means":  # nothing in them is drawn
        other = predictions(fit(name, known, seed=2, **case(name)["base"]), known)
        assert first.tobytes() != other.tobytes()


@every
def test_it_can_be_fitted_anew(name: str, known: Known, fitted: Fitted) -> None:
    first = predictions(fitted(name), known)
    rival = make(name, **case(name)["base"])
    try:
        rival.fit(known.valid.plus(known.test), known.valid.select(np.arange(0)), threads=1)
    except MissingError as error:
        pytest.skip(str(error))
    rival.fit(known.train, known.valid, seed=1, threads=1)
    assert predictions(rival, known).tobytes() == first.tobytes()


@every
def test_it_beats_the_means(name: str, known: Known, fitted: Fitted) -> None:
    """There is taste to be found: the truth is far better than means are."""
    users, items, values = known.test.users, known.test.items, known.test.values
    floor = fit("means", known, of="global") if name == "means" else fitted("means")
    means = rmse(values, floor.predict(users, items))
    found = rmse(values, fitted(name).predict(users, items))
    best = rmse(values, known.made.means(users, items))
    assert best < found < means - (0.02 if name != "means" else 0.0)


# Each fit of LensKit's starts another Python with all its libraries.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "als" else n for n in CLASSES]
)
def test_every_option_changes_the_result(name: str, known: Known) -> None:
    given = case(name)
    options = {f.name for f in dataclasses.fields(make(name, **given["base"]).options)}
    assert set(given["changed"]) == options, "cases/ must name every option, and no other"
    bases: dict[str, bytes] = {}
    for option, value in given["changed"].items():
        base = given["base"] | given["with"].get(option, {})
        key = repr(sorted(base.items()))
        if key not in bases:
            bases[key] = predictions(fit(name, known, **base), known).tobytes()
        changed = predictions(fit(name, known, **base | {option: value}), known)
        assert changed.tobytes() != bases[key], f"{option}={value!r} makes no difference"


@every
def test_options_cannot_be_changed_and_unknown_ones_are_refused(name: str) -> None:
    options = make(name, **case(name)["base"]).options
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, dataclasses.fields(options)[0].name, None)
    with pytest.raises(ModelError, match="colour"):
        make(name, colour="red")


@every
def test_questions_before_the_fit_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="fit"):
        make(name, **case(name)["base"]).predict(np.array([0]), np.array([0]))


@pytest.mark.parametrize("name", OWN)
def test_saved_and_loaded_it_gives_the_same_bits(
    name: str, known: Known, fitted: Fitted, tmp_path: Path
) -> None:
    save(fitted(name), tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.name == name
    assert back.options == fitted(name).options
    assert predictions(back, known).tobytes() == predictions(fitted(name), known).tobytes()
    users, items = np.array([-1, 299, 0]), np.array([0, 149, -1])
    same = fitted(name).predict(users, items)
    assert back.predict(users, items).tobytes() == same.tobytes()
    chances = fitted(name).probabilities(users, items)
    if chances is not None:
        other = back.probabilities(users, items)
        assert other is not None
        assert other.tobytes() == chances.tobytes()


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in OWN])
def test_adapters_refuse_saving(name: str, tmp_path: Path) -> None:
    rival = make(name, **case(name)["base"])
    with pytest.raises(ModelError, match=r"cannot be saved|cfnade\.checkpoint\.save"):
        save(rival, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(ModelError, match=r"cannot be loaded|cfnade\.checkpoint\.load"):
        rival.restore({})


def test_all_classes_are_there_and_named_as_registered() -> None:
    for name in CLASSES:
        assert rival_class(name).name == name
        assert issubclass(rival_class(name), Unsaved) == (name not in (*OWN, "cfnade"))


def test_an_unknown_model_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'autorek'; did you mean 'autorec'"):
        rival_class("autorek")


def test_looking_at_the_registry_imports_no_library() -> None:
    code = "import sys, cfnade_rivals.contestants as r; r.names(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numba", "cornac", "myfm", "surprise"} & set(done.stdout.split())
