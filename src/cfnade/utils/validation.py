"""Option classes and argument checks with one-line errors.

    @options(TrainingError, "training option")
    class TrainingConfig:
        epochs: Annotated[int, Ge(1)] = 50
        patience: Annotated[int, Ge(1)] | None = None
        schedule: Literal["cosine", "linear"] = "cosine"

`TrainingConfig(epochs=0)` raises a TrainingError: training option epochs (=0) must be a whole
number of at least 1. Constraints are Ge, Gt, Le, Lt and Len of `annotated_types`. Checked types
are int, float, bool, str, Literal, tuples `tuple[X, ...]` of these, and unions of these and None;
values of other types are not checked. A NumPy scalar becomes Python's own type, a list a tuple.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from annotated_types import BaseMetadata, Ge, Gt, Le, Len, Lt

from cfnade.exceptions import CfnadeError

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
                value = rule.check(name, getattr(self, name), error, noun)
                object.__setattr__(self, name, value)  # the instance is frozen
            if inherited is not None:
                inherited(self)

        cls.__post_init__ = check_fields  # type: ignore[attr-defined]
        cls.__options__ = error, noun  # type: ignore[attr-defined]
        return dataclass(frozen=True, kw_only=True)(cls)

    return decorate


def check_options(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check some fields of an option class without creating an instance.

    Args:
        cls: A class made by `options`.
        values: Field names and values; names of no field are refused.

    Returns:
        The values in Python's own types.
    """
    error, noun = cls.__options__  # type: ignore[attr-defined]
    rules, checked = _field_rules(cls), {}
    for name, value in values.items():
        if name not in rules:
            raise error(describe_unknown(noun or "option", name, rules), field=name, value=value)
        checked[name] = rules[name].check(name, value, error, noun)
    return checked


def check_scalar(
    name: str,
    value: object,
    kind: type[S],
    *constraints: BaseMetadata,
    error: type[CfnadeError],
) -> S:
    """Return an argument as an int, float, bool or str if it satisfies the constraints.

    Args:
        name: Name of the argument, for the error message.
        value: The argument; NumPy scalars are accepted.
        kind: The required type. An int is accepted where a float is required.
        *constraints: Constraints of `annotated_types`, such as `Ge(1)`.
        error: Raised if the value does not fit.
    """
    checked: S = _rule(kind, constraints).check(name, value, error)
    return checked


def check_choice(
    name: str, value: object, choices: Iterable[str], *, error: type[CfnadeError]
) -> str:
    """Return an argument if it is one of the strings."""
    checked: str = _rule(Literal[*choices]).check(name, value, error)
    return checked


def describe_unknown(noun: str, name: object, valid: Collection[str]) -> str:
    """Return the message for an unknown name: with the closest known name, or with all of them."""
    matches = get_close_matches(str(name), valid, 1)
    hint = f"; did you mean {matches[0]!r}?" if matches else f" (known: {', '.join(valid)})"
    return f"unknown {noun} {name!r}{hint}"


# -- rules of type hints --------------------------------------------------------------------------


class _Rule(NamedTuple):
    """What a type hint requires of a value."""

    convert: Callable[[Any], Any]
    """Returns a value in Python's own types, or raises a ValueError."""
    requirement: str
    """Completes the sentence "it must be …"."""

    def check(self, name: str, value: Any, error: type[CfnadeError], noun: str = "") -> Any:
        """Return a value in Python's own types; raise the error if it does not fit."""
        try:
            return self.convert(value)
        except (ValueError, OverflowError):
            text, reason = repr(value), f"must be {self.requirement}"
        text = text if len(text) <= _MAX_VALUE_LENGTH else text[:_MAX_VALUE_LENGTH] + "…"
        subject = f"{noun} {name}" if noun else name
        raise error(f"{subject} (={text}) {reason}", field=name, value=value, reason=reason)


@cache  # evaluating annotations is slow
def _field_rules(cls: type) -> dict[str, _Rule]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: _rule(hints[field.name]) for field in fields(cls)}


def _rule(hint: Any, constraints: Sequence[Any] = ()) -> _Rule:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _rule(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return _list(_rule(arguments[0]), constraints)
    if origin is Literal:
        choices = ", ".join(map(str, arguments))
        requirement = f"one of {choices}" if len(arguments) > 1 else choices
        return _Rule(lambda value: _choice(value, arguments), requirement)
    if hint in (int, float):
        return _number(hint, constraints)
    if hint is bool:
        return _Rule(lambda value: bool(_instance(value, bool | np.bool_)), "true or false")
    if hint is str:
        return _Rule(lambda value: str(_instance(value, str)), "a string")
    return _Rule(lambda value: value, "")


def _union(alternatives: Sequence[Any]) -> _Rule:
    rules = [_rule(alternative) for alternative in alternatives if alternative is not NoneType]
    optional = len(rules) < len(alternatives)

    def convert(value: Any) -> Any:
        if value is None and optional:
            return None
        for rule in rules:
            with suppress(ValueError):
                return rule.convert(value)
        raise ValueError

    requirement = " or ".join(rule.requirement for rule in rules)
    return _Rule(convert, f"{requirement}, or None" if optional else requirement)


def _list(element: _Rule, constraints: Sequence[Any]) -> _Rule:
    length = next((limit for limit in constraints if isinstance(limit, Len)), Len())
    least, most = length.min_length, length.max_length

    def convert(value: Any) -> tuple[Any, ...]:
        items = _instance(value, Sequence)
        too_long = most is not None and len(items) > most
        if isinstance(value, str | bytes) or len(items) < least or too_long:
            raise ValueError
        return tuple(element.convert(item) for item in items)

    size = f"{least} to {most} values"
    if least == most:
        size = f"{least} values"
    elif most is None:
        size = f"at least {least} value{'s' * (least > 1)}" if least else "values"
    return _Rule(convert, f"a list of {size}, each {element.requirement}")


_COMPARISONS: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    Ge: ("ge", "of at least", operator.ge),
    Gt: ("gt", "above", operator.gt),
    Le: ("le", "of at most", operator.le),
    Lt: ("lt", "below", operator.lt),
}


def _number(kind: type, constraints: Sequence[Any]) -> _Rule:
    bounds = []
    for constraint in constraints:
        attribute, words, compare = _COMPARISONS[type(constraint)]
        bounds.append((words, compare, getattr(constraint, attribute)))

    def convert(value: Any) -> Any:
        number = _instance(value, Integral if kind is int else Real)
        is_valid = not isinstance(value, bool) and math.isfinite(number)
        if not is_valid or not all(compare(number, limit) for _, compare, limit in bounds):
            raise ValueError
        return kind(number)

    noun = "a whole number" if kind is int else "a number"
    if [words for words, *_ in bounds] == ["of at least", "of at most"]:
        return _Rule(convert, f"{noun} in {bounds[0][2]}..{bounds[1][2]}")
    limits = " and ".join(f"{words} {limit}" for words, _, limit in bounds)
    return _Rule(convert, f"{noun} {limits}".strip())


def _choice(value: Any, choices: Sequence[Any]) -> Any:
    for choice in choices:
        if isinstance(value, type(choice)) and value == choice:
            return choice
    raise ValueError


def _instance(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError  # what converters raise
    return value
