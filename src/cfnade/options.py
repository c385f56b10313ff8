"""What an option may be, said once beside it, and one check that names what breaks the rule.

    @dataclass(frozen=True)
    class Settings:
        epochs: Annotated[int, whole(1)] = 50
        patience: Annotated[int | None, optional(whole(1))] = None

        def __post_init__(self) -> None:
            check_fields(self, TrainingError, "training setting")

`Settings(epochs=0)` is then a TrainingError: training setting epochs (=0) must be a whole number
of at least 1. A single value goes through `checked`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from typing import Any, Generic, TypeVar, get_type_hints

from cfnade.exceptions import CfnadeError

T = TypeVar("T")

_SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True)
class Allowed(Generic[T]):
    """What a value must be: `words` end the sentence "it must be …"."""

    words: str
    fits: Callable[[Any], bool]
    plain: Callable[[Any], T]
    """Turns a value that fits into Python's own type, which JSON can hold."""

    def saying(self, more: str) -> Allowed[T]:
        """The same rule with a reason or a cure after its words."""
        return replace(self, words=self.words + more)


def whole(at_least: int | None = None, at_most: int | None = None) -> Allowed[int]:
    """A whole number, NumPy's as well; true and false are none."""

    def fits(value: Any) -> bool:
        return isinstance(value, Integral) and _is_number(value) and inside(value)

    words, inside = _bounds(at_least=at_least, at_most=at_most)
    return Allowed(f"a whole number{words}", fits, int)


def number(
    at_least: float | None = None,
    at_most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> Allowed[float]:
    """A finite number, NumPy's as well; true and false are none."""

    def fits(value: Any) -> bool:
        return _is_number(value) and inside(value)

    words, inside = _bounds(at_least=at_least, at_most=at_most, above=above, below=below)
    return Allowed(f"a number{words}", fits, float)


TRUE_OR_FALSE: Allowed[bool] = Allowed("true or false", lambda value: isinstance(value, bool), bool)


def one_of(*allowed: str) -> Allowed[str]:
    """One of these words."""

    def fits(value: Any) -> bool:
        return isinstance(value, str) and value in allowed

    return Allowed(f"one of {', '.join(allowed)}", fits, str)


def sequence(rule: Allowed[T], such_as: str) -> Allowed[tuple[T, ...]]:
    """A list or tuple of one value or more, each of which keeps the rule."""

    def fits(values: Any) -> bool:
        listed = isinstance(values, Sequence) and not isinstance(values, str | bytes)
        return listed and len(values) > 0 and all(rule.fits(value) for value in values)

    def plain(values: Any) -> tuple[T, ...]:
        return tuple(rule.plain(value) for value in values)

    return Allowed(f"a sequence such as {such_as}, each {rule.words}", fits, plain)


def optional(rule: Allowed[T]) -> Allowed[T | None]:
    """What the rule says, or None."""
    return Allowed(
        f"{rule.words}, or None",
        lambda value: value is None or rule.fits(value),
        lambda value: None if value is None else rule.plain(value),
    )


def checked(name: str, value: Any, rule: Allowed[T], error: type[CfnadeError], what: str = "") -> T:
    """The value in Python's own type, if it keeps the rule; `what` stands before the name."""
    if not rule.fits(value):
        subject = f"{what} {name}" if what else name
        raise error(f"{subject} (={_shown(value)}) must be {rule.words}")
    return rule.plain(value)


def check_fields(options: object, error: type[CfnadeError], what: str = "") -> None:
    """Check the fields of a dataclass that are annotated with a rule, and make them plain."""
    kind: Any = type(options)
    for name, rule in _rules(kind).items():
        value = checked(name, getattr(options, name), rule, error, what)
        object.__setattr__(options, name, value)  # it may be frozen


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """What to say of a name that is none of the known ones."""
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
    return f"unknown {what} {name!r}{hint}"


@cache  # for the annotations are texts, and each rule would be made anew
def _rules(kind: type) -> dict[str, Allowed[Any]]:
    hints = get_type_hints(kind, include_extras=True)
    marks = {field.name: getattr(hints[field.name], "__metadata__", ()) for field in fields(kind)}
    return {name: mark for name, of in marks.items() for mark in of if isinstance(mark, Allowed)}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "at_least": ("of at least", operator.ge),
    "at_most": ("of at most", operator.le),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
}


def _bounds(**bounds: float | None) -> tuple[str, Callable[[Any], bool]]:
    """The words for those bounds that are not None, and whether a number keeps to them."""
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}

    def inside(value: Any) -> bool:
        return all(_BOUNDS[name][1](value, bound) for name, bound in bounds.items())

    if bounds.keys() == {"at_least", "at_most"}:
        return f" in {bounds['at_least']}..{bounds['at_most']}", inside
    words = " and ".join(f"{_BOUNDS[name][0]} {bound}" for name, bound in bounds.items())
    return f" {words}" if words else "", inside


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
