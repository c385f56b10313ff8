"""Option classes and argument checks with one-line errors.

    @options(TrainingError, "training option")
    class TrainingConfig:
        epochs: Annotated[int, Ge(1)] = 50
        patience: Annotated[int, Ge(1)] | None = None
        schedule: Literal["cosine", "linear"] = "cosine"

`TrainingConfig(epochs=0)` raises a TrainingError: training option epochs (=0) must be a whole
number of at least 1. Constraints are those of `annotated_types`. Checked types are int, float,
bool, str, Literal, tuples `tuple[X, ...]` of these, and each of these or None; fields of other
types are not checked. A NumPy scalar becomes Python's own type, a list becomes a tuple.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from annotated_types import BaseMetadata, Ge, GroupedMetadata, Gt, Le, Lt, MaxLen, MinLen

from cfnade.exceptions import CfnadeError

T = TypeVar("T")
S = TypeVar("S", int, float, bool, str)
C = TypeVar("C")

_MAX_VALUE_LENGTH = 80  # characters of a value in a message


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def options(error: type[CfnadeError], noun: str = "") -> Callable[[type[C]], type[C]]:
    """Return a decorator that makes a frozen, keyword-only dataclass with checked fields.

    Fields are checked on creation, and therefore by `dataclasses.replace`; then `__post_init__` of
    the class runs. Dataclasses derived from the class are checked, too.

    Args:
        error: Raised for a value that violates the type or a constraint of its field.
        noun: What a field is called in messages, such as "training option".
    """

    def decorate(cls: type[C]) -> type[C]:
        inherited = getattr(cls, "__post_init__", None)

        def check_fields(self: Any) -> None:
            derived: Any = type(self)
            for name, rule in _field_rules(derived).items():
                value = _check(name, getattr(self, name), rule, error, noun)
                object.__setattr__(self, name, value)  # the instance is frozen
            if inherited is not None:
                inherited(self)

        cls.__post_init__ = check_fields  # type: ignore[attr-defined]
        cls.__options__ = error, noun  # type: ignore[attr-defined]
        return dataclass(frozen=True, kw_only=True)(cls)

    return decorate


def check_options(cls: type, values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Check some fields of an option class without creating an instance.

    Args:
        cls: A class made by `options`.
        values: Field names and values; names of no field are refused.
        where: Prefix of the error message, such as "recipe default: ".

    Returns:
        The values in Python's own types.
    """
    error, noun = cls.__options__  # type: ignore[attr-defined]
    names, rules = [field.name for field in fields(cls)], _field_rules(cls)
    checked = {}
    for name, value in values.items():
        if name not in names:
            message = describe_unknown(noun or "option", name, names)
            raise error(f"{where}{message}", field=name, value=value)
        rule = rules.get(name)
        checked[name] = _check(name, value, rule, error, f"{where}{noun}") if rule else value
    return checked


def check_scalar(
    name: str,
    value: object,
    kind: type[S],
    *constraints: BaseMetadata | GroupedMetadata,
    error: type[CfnadeError],
    noun: str = "",
) -> S:
    """Return an argument as an int, float, bool or str if it satisfies the constraints.

    Args:
        name: Name of the argument, for the error message.
        value: The argument; NumPy scalars are accepted.
        kind: The required type. An int is accepted where a float is required.
        *constraints: Constraints of `annotated_types`, such as `Ge(1)`.
        error: Raised if the value does not fit.
        noun: Stands before the name in the message.
    """
    checked: S = _check(name, value, _scalar_rule(kind, constraints), error, noun)
    return checked


def check_choice(
    name: str, value: object, choices: Iterable[str], *, error: type[CfnadeError]
) -> str:
    """Return an argument if it is one of the strings."""
    checked: str = _check(name, value, _choice_rule(choices), error, "")
    return checked


def describe_unknown(noun: str, name: object, valid: Collection[str]) -> str:
    """Return the message for an unknown name: with the closest known name, or with all of them."""
    matches = get_close_matches(str(name), valid, 1)
    hint = f"; did you mean {matches[0]!r}?" if matches else f" (known: {', '.join(valid)})"
    return f"unknown {noun} {name!r}{hint}"


# -- rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    description: str
    """Completes the sentence "it must be …"."""
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any]
    """To Python's own type, which JSON can hold."""


def _check(name: str, value: Any, rule: _Rule, error: type[CfnadeError], noun: str) -> Any:
    if not rule.accepts(value):
        subject = f"{noun} {name}" if noun and not noun.endswith(" ") else f"{noun}{name}"
        reason = f"must be {rule.description}"
        message = f"{subject} (={_shortened(value)}) {reason}"
        raise error(message, field=name, value=value, reason=reason)
    return rule.convert(value)


@cache  # evaluating annotations is slow
def _field_rules(cls: type) -> dict[str, _Rule]:
    hints = get_type_hints(cls, include_extras=True)
    rules = {field.name: _rule(hints[field.name]) for field in fields(cls)}
    return {name: rule for name, rule in rules.items() if rule is not None}


def _rule(hint: Any, constraints: Iterable[Any] = ()) -> _Rule | None:
    """Return the rule of a type hint, or None if values of that type are not checked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _rule(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return _optional_rule(arguments)
    if origin is Literal:
        return _choice_rule(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _tuple_rule(arguments[0], constraints)
    return _scalar_rule(hint, constraints) if hint in (int, float, bool, str) else None


def _optional_rule(alternatives: tuple[Any, ...]) -> _Rule | None:
    hints = [hint for hint in alternatives if hint is not NoneType]
    rule = _rule(hints[0]) if len(hints) == 1 else None
    if rule is None:
        return None
    return _Rule(
        f"{rule.description}, or None",
        lambda value: value is None or rule.accepts(value),
        lambda value: None if value is None else rule.convert(value),
    )


def _choice_rule(choices: Iterable[str]) -> _Rule:
    allowed = tuple(choices)
    return _Rule(
        f"one of {', '.join(allowed)}",
        lambda value: isinstance(value, str) and value in allowed,
        str,
    )


def _tuple_rule(item: Any, constraints: Iterable[Any]) -> _Rule | None:
    rule = _rule(item)
    if rule is None:
        return None
    least, most = 0, None
    for constraint in _flattened(constraints):
        if isinstance(constraint, MinLen):
            least = constraint.min_length
        elif isinstance(constraint, MaxLen):
            most = constraint.max_length

    def accepts(values: Any) -> bool:
        return (
            isinstance(values, Sequence)
            and not isinstance(values, str | bytes)
            and len(values) >= least
            and (most is None or len(values) <= most)
            and all(rule.accepts(value) for value in values)
        )

    return _Rule(
        f"a list of {_size_in_words(least, most)}, each {rule.description}",
        accepts,
        lambda values: tuple(rule.convert(value) for value in values),
    )


def _size_in_words(least: int, most: int | None) -> str:
    if least == most:
        return f"{least} values"
    if most is not None:
        return f"{least} to {most} values"
    return f"at least {least} value{'s' if least > 1 else ''}" if least else "values"


def _scalar_rule(kind: type, constraints: Iterable[Any]) -> _Rule:
    if kind is bool:
        return _Rule("true or false", lambda value: isinstance(value, bool | np.bool_), bool)
    if kind is str:
        return _Rule("a string", lambda value: isinstance(value, str), str)
    description, is_inside = _bounds(_flattened(constraints))
    numbers: type = Integral if kind is int else Real
    return _Rule(
        f"{'a whole number' if kind is int else 'a number'}{description}",
        lambda value: isinstance(value, numbers) and _is_finite(value) and is_inside(value),
        kind,
    )


def _flattened(constraints: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for constraint in constraints:
        flat += list(constraint) if isinstance(constraint, GroupedMetadata) else [constraint]
    return flat


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


_COMPARISONS: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    Ge: ("ge", "of at least", operator.ge),
    Gt: ("gt", "above", operator.gt),
    Le: ("le", "of at most", operator.le),
    Lt: ("lt", "below", operator.lt),
}


def _bounds(constraints: Sequence[Any]) -> tuple[str, Callable[[Any], bool]]:
    """Return the words for the bounds, and a function that checks them."""
    bounds = []
    for constraint in constraints:
        attribute, words, compare = _COMPARISONS[type(constraint)]
        bounds.append((words, compare, getattr(constraint, attribute)))

    def is_inside(value: Any) -> bool:
        return all(compare(value, bound) for _, compare, bound in bounds)

    if [type(constraint) for constraint in constraints] == [Ge, Le]:
        low, high = bounds[0][2], bounds[1][2]
        return f" in {_bound_in_words(low)}..{_bound_in_words(high)}", is_inside
    text = " and ".join(f"{words} {_bound_in_words(bound)}" for words, _, bound in bounds)
    return f" {text}" if text else "", is_inside


def _bound_in_words(bound: Any) -> str:
    return "2**63-1" if bound == 2**63 - 1 else str(bound)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[:_MAX_VALUE_LENGTH] + "…"
