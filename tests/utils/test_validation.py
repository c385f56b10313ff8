"""Option classes and argument checks: values, error messages, derived classes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Len, Lt

from cfnade.exceptions import ModelError, TrainingError
from cfnade.utils.validation import (
    check_options,
    check_scalar,
    options,
)

NOT_NUMBERS = ["5", None, [5], True, np.True_, 1j, np.array([1]), float("nan")]


@pytest.mark.parametrize(
    ("kind", "constraints", "value", "expected"),
    [
        (int, [], -3, -3),
        (int, [Ge(1)], np.int32(7), 7),
        (int, [Ge(0), Le(255)], np.uint8(255), 255),
        (float, [Gt(0)], 1e-300, 1e-300),
        (float, [Ge(0), Le(1)], 1, 1.0),
        (float, [Ge(0), Lt(1)], Fraction(1, 4), 0.25),
        (bool, [], np.True_, True),
        (str, [], np.str_("text"), "text"),
    ],
)
def test_scalars_are_returned_as_python_types(
    kind: Any, constraints: list[Any], value: Any, expected: Any
) -> None:
    checked = check_scalar("x", value, kind, *constraints, error=ModelError)
    assert checked == expected
    assert type(checked) is type(expected)
    json.dumps(checked)


@pytest.mark.parametrize(
    ("kind", "constraints", "description", "bad"),
    [
        (int, [Ge(1)], "a whole number of at least 1", [*NOT_NUMBERS, 0, 1.5, np.float64(2)]),
        (int, [Ge(0), Le(255)], "a whole number in 0..255", [*NOT_NUMBERS, -1, np.int16(256)]),
        (float, [], "a number", [*NOT_NUMBERS, float("inf"), -np.inf]),
        (float, [Gt(0)], "a number above 0", [*NOT_NUMBERS, 0, 0.0, -0.1]),
        (float, [Ge(0), Lt(1)], "a number of at least 0 and below 1", [*NOT_NUMBERS, 1, -1]),
        (bool, [], "true or false", [0, 1, "yes", None]),
        (str, [], "a string", [1, None, b"text"]),
    ],
)
def test_errors_name_the_argument_the_value_and_the_rule(
    kind: Any, constraints: list[Any], description: str, bad: list[Any]
) -> None:
    for value in bad:
        with pytest.raises(ModelError) as raised:
            check_scalar("width", value, kind, *constraints, error=ModelError)
        assert str(raised.value) == f"width (={value!r}) must be {description}"
        assert (raised.value.field, raised.value.value) == ("width", value)


# -- option classes -------------------------------------------------------------------------------


@options(TrainingError, "training option")
class Example:
    epochs: Annotated[int, Ge(1)] = 5
    rate: Annotated[float, Gt(0)] = 1
    patience: Annotated[int, Ge(1)] | None = None
    schedule: Literal["cosine", "linear"] = "cosine"
    sizes: Annotated[tuple[Annotated[int, Ge(1)], ...], Len(1)] = (8,)
    note: Any = None

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience > self.epochs:
            raise TrainingError("patience exceeds epochs")


@dataclass(frozen=True, kw_only=True)
class Derived(Example):
    gains: Annotated[tuple[float, ...], Len(2, 2)] = (1.0, 0.0)


def test_fields_and_defaults_become_python_types() -> None:
    given: dict[str, Any] = {"epochs": np.int64(3), "sizes": [4, np.int64(2)], "note": b"anything"}
    example = Example(**given)
    assert example == Example(epochs=3, sizes=(4, 2), note=b"anything")
    assert [type(value) for value in (example.epochs, example.rate)] == [int, float]
    assert Derived(gains=[1, 2]).gains == (1.0, 2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": True}, "epochs (=True) must be a whole number of at least 1"),
        ({"patience": 0}, "patience (=0) must be a whole number of at least 1, or None"),
        ({"patience": 0, "rate": 0}, "rate (=0) must be a number above 0"),  # in field order
        ({"schedule": "sine"}, "schedule (='sine') must be one of cosine, linear"),
        (
            {"sizes": (8, 0)},
            "sizes (=(8, 0)) must be a list of at least 1 value, each a whole number of at least 1",
        ),
    ],
)
def test_the_first_invalid_field_is_named(values: dict[str, Any], message: str) -> None:
    for create in (Example, Derived, lambda **values: replace(Example(), **values)):
        with pytest.raises(TrainingError) as raised:
            create(**values)
        assert str(raised.value) == f"training option {message}"


def test_post_init_runs_after_validation() -> None:
    for cls in (Example, Derived):
        with pytest.raises(TrainingError, match="patience exceeds epochs"):
            cls(patience=np.int64(6))  # type: ignore[arg-type]


def test_instances_are_frozen_and_take_keywords_only() -> None:
    with pytest.raises(AttributeError):
        Example().epochs = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Example(3)  # type: ignore[call-arg]


@pytest.mark.parametrize("sizes", [500, (), "88", b"8", (8.0,), (True,), None, {8}])
def test_values_of_lists_are_checked(sizes: Any) -> None:
    with pytest.raises(TrainingError, match=r"training option sizes .* must be a list of"):
        Example(sizes=sizes)


def test_check_options() -> None:
    assert check_options(Example, {"rate": 1, "sizes": [3]}) == {"rate": 1.0, "sizes": (3,)}
    with pytest.raises(TrainingError, match=r"training option epochs \(=0\) must be"):
        check_options(Example, {"epochs": 0})
    with pytest.raises(TrainingError, match="unknown training option 'epoch'; did you"):
        check_options(Example, {"epoch": 1})


@pytest.mark.parametrize("value", ["8" * 10**6, 10**400], ids=["text", "number"])
def test_long_values_are_shortened_in_messages(value: Any) -> None:
    with pytest.raises(ModelError, match=r"888…|000…") as raised:
        check_scalar("rate", value, float, error=ModelError)
    assert len(str(raised.value)) < 200
