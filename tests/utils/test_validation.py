"""Rules of options: what fits comes out plain, what does not is named with its value and rule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pytest

from cfnade.exceptions import ModelError, TrainingError
from cfnade.options import (
    TRUE_OR_FALSE,
    Allowed,
    check_fields,
    checked,
    number,
    one_of,
    optional,
    sequence,
    unknown,
    whole,
)

NOT_NUMBERS = ["5", None, [5], True, False, np.True_, 1j, np.array([1]), float("nan")]
SIZES = sequence(whole(1), "(500,)")


@pytest.mark.parametrize(
    ("rule", "value", "plain"),
    [
        (whole(), -3, -3),
        (whole(1), 1, 1),
        (whole(1), np.int32(7), 7),
        (whole(0, 255), np.uint8(255), 255),
        (number(), -0.5, -0.5),
        (number(above=0), 1e-300, 1e-300),
        (number(0, 1), np.float32(0.25), 0.25),
        (number(0, 1), 1, 1.0),
        (number(0, below=1), Fraction(1, 4), 0.25),
        (TRUE_OR_FALSE, False, False),
        (one_of("cosine", "linear"), "linear", "linear"),
        (optional(whole(1)), None, None),
        (optional(whole(1)), np.int64(4), 4),
        (SIZES, [8, np.int64(6)], (8, 6)),
    ],
)
def test_what_fits_comes_out_in_pythons_own_type(
    rule: Allowed[Any], value: Any, plain: Any
) -> None:
    answer = checked("x", value, rule, ModelError)
    assert answer == plain
    assert type(answer) is type(plain)
    json.dumps(answer)


@pytest.mark.parametrize(
    ("rule", "words", "bad"),
    [
        (whole(), "a whole number", [*NOT_NUMBERS, 2.0, np.float64(2)]),
        (whole(1), "a whole number of at least 1", [*NOT_NUMBERS, 0, -1, 1.5]),
        (whole(0, 255), "a whole number in 0..255", [*NOT_NUMBERS, -1, 256, np.int16(256)]),
        (number(), "a number", [*NOT_NUMBERS, float("inf"), -np.inf]),
        (number(above=0), "a number above 0", [*NOT_NUMBERS, 0, 0.0, -0.1]),
        (number(0), "a number of at least 0", [*NOT_NUMBERS, -1e-9]),
        (number(0, 1), "a number in 0..1", [*NOT_NUMBERS, -0.1, 1.1]),
        (number(0, below=1), "a number of at least 0 and below 1", [*NOT_NUMBERS, 1, -1]),
        (number(at_most=2), "a number of at most 2", [*NOT_NUMBERS, 3]),
        (TRUE_OR_FALSE, "true or false", [0, 1, "yes", None, np.True_]),
        (one_of("sum", "sqrt"), "one of sum, sqrt", ["mean", "", None, ["sum"], np.array("sum")]),
        (optional(whole(1)), "a whole number of at least 1, or None", [0, "", True]),
        (
            SIZES,
            "a sequence such as (500,), each a whole number of at least 1",
            [500, (), "88", b"8", (8.0,), (8, 0), (True,), None, {8}],
        ),
        (whole(2).saying(": one is all"), "a whole number of at least 2: one is all", [1]),
    ],
)
def test_what_does_not_fit_is_refused_by_name_value_and_rule(
    rule: Allowed[Any], words: str, bad: list[Any]
) -> None:
    for value in bad:
        with pytest.raises(ModelError) as refusal:
            checked("width", value, rule, ModelError)
        assert str(refusal.value) == f"width (={value!r}) must be {words}"


@dataclass(frozen=True)
class Settings:
    epochs: Annotated[int, whole(1)] = 5
    rate: Annotated[float, number(above=0)] = 0.1
    patience: Annotated[int | None, optional(whole(1))] = None
    note: Any = None

    def __post_init__(self) -> None:
        check_fields(self, TrainingError, "training setting")


def test_fields_that_carry_a_rule_are_checked_and_made_plain() -> None:
    settings = Settings(epochs=np.int64(3), rate=np.float32(0.5), note=b"anything")  # type: ignore[arg-type]
    assert settings == Settings(3, 0.5, None, b"anything")
    assert [type(settings.epochs), type(settings.rate)] == [int, float]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs (=0) must be a whole number of at least 1"),
        ({"epochs": True}, "epochs (=True) must be a whole number of at least 1"),
        ({"rate": "fast"}, "rate (='fast') must be a number above 0"),
        ({"patience": 0}, "patience (=0) must be a whole number of at least 1, or None"),
        ({"patience": 0, "rate": 0}, "rate (=0) must be a number above 0"),  # fields in order
    ],
)
def test_the_first_field_that_breaks_its_rule_is_named(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainingError) as refusal:
        Settings(**values)
    assert str(refusal.value) == f"training setting {message}"


@pytest.mark.parametrize("value", ["8" * 10**6, 10**400])
def test_a_long_value_is_cut_in_the_message(value: Any) -> None:
    with pytest.raises(ModelError, match=r"888…|000…") as refusal:
        checked("rate", value, number(), ModelError)
    assert len(str(refusal.value)) < 200


def test_an_unknown_name_gets_the_nearest_one_or_all() -> None:
    known = ("learning_rate", "epochs")
    assert unknown("setting", "learning_rat", known) == (
        "unknown setting 'learning_rat'; did you mean 'learning_rate'?"
    )
    assert unknown("setting", "x", known) == "unknown setting 'x' (known: learning_rate, epochs)"
