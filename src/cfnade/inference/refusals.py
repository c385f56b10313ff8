"""Questions that a model cannot answer, refused before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.utils.text import option
from cfnade.utils.validation import describe_unknown


def check_who(users: Any, history: Any, histories: Any = None) -> None:
    """A question is about users, about a history, or about several."""
    given = sum(one is not None for one in (users, history, histories))
    if given == 0:
        raise PredictionError(f"give users, or {option('history')} (or histories=) for new users")
    if given > 1:
        raise PredictionError("give either users or a history, not both")


def check_names(what: str, given: Mapping[str, Any], takes: type) -> None:
    """What a call takes by name are the keys of a TypedDict; another name is a typing error."""
    names = takes.__annotations__
    for name in given:
        if name not in names:
            raise PredictionError(describe_unknown(f"argument of {what}", name, names))


def check_times(fitted: FittedModel, histories: Any, times: Any, new_items: Any = None) -> None:
    """Times are for a model that knows them, which takes no histories and no new items."""
    if times is not None and not fitted.needs_times:
        raise PredictionError("this model does not know time; leave times out")
    if histories and fitted.needs_times:
        raise PredictionError(
            "this model knows time and takes no histories: when their ratings were given is not "
            "known; train one without time features for that"
        )
    if new_items and fitted.needs_times:
        raise PredictionError(
            "this model knows time and takes no new items: when their ratings were given is not "
            "known; train one without time features for that"
        )


def require_lists(fitted: FittedModel) -> None:
    """Lists and explanations have no time of their own."""
    if fitted.needs_times:
        raise PredictionError(
            "this model knows time: it predicts given ratings at given times, and makes no lists "
            "or explanations; train one without time features for these"
        )


def require_ratings(fitted: FittedModel) -> None:
    """Only who was taught ratings can predict them."""
    if not fitted.rates:
        raise PredictionError(
            "this model was trained on interactions, which have no ratings to predict; ask it for "
            "lists with recommend()"
        )


def explains_picks(fitted: FittedModel, of: Any) -> bool:
    """Whether it is the choice that is to be explained."""
    if of not in (None, "rating", "pick"):
        raise PredictionError(f"of (={of!r}) must be 'rating' or 'pick'")
    if of == "pick" and fitted.interaction_model is None:
        raise PredictionError(
            "of='pick' needs a model that knows what people pick; train one with "
            f"{option('lists', True)}"
        )
    if of == "rating":
        require_ratings(fitted)
    return of == "pick" or not fitted.rates


def require_histories(fitted: FittedModel) -> None:
    """A new person is known by what they rated."""
    if not fitted.takes_histories:
        raise PredictionError(
            "this model is item-based: it knows the users of its training data only and takes no "
            f"history of another person; train one with {option('side', 'user')} for that"
        )


def require_context(fitted: FittedModel) -> None:
    """Known users are known by the ratings that the model conditions on."""
    if not fitted.has_context:
        instead = "give a history, or use" if fitted.takes_histories else "use"
        raise PredictionError(
            "this model was saved without the ratings that it conditions on, so it knows no user "
            f"and nothing about anyone; {instead} a copy saved with its context"
        )
