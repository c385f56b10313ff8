"""The arguments of an estimator: what CFNADE and what stands for it elsewhere are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError
from cfnade.utils.validation import describe_unknown


@dataclass(kw_only=True, eq=False, repr=False)
class Arguments:
    """Stored as they are, and checked by fit()."""

    side: str | None = None
    """Whose ratings predict a rating: "user", the person's others; "item", the item's others;
    "both"; "near", both with neighbourhoods; or "auto", which tries several and lets validation say
    what each counts. "both,user" trains members of these kinds; arguments below are those of the
    first, the others take their default recipes. None is "auto" if nothing below says what the
    model is, else "user"."""

    minutes: float | None = None
    """How long "auto" may take, about, on two cores; None is 40 seconds for most data. More time
    never gives a worse validation score."""

    lists: bool | None = None
    """Whether it also learns what people pick, so that `recommend` lists what they would take up
    and like. None: if side is "auto" and it takes at most a third more time. Data without ratings
    are learnt that way alone."""

    ridge: int | None = None
    """Dimensions of the ridge part beside the network, an exact Bayesian fold-in: with it a handful
    of ratings is made the most of. 0 is the paper's model; None is 20 for side "user", else 0."""

    hidden: Sequence[int] | None = None
    """Units of each hidden layer; None is (100,) beside a ridge part, (500,) without."""

    factors: int | None = None
    """Rank of factored weights: less memory with many items (side "item": users); None is full."""

    shared: bool = True
    """Whether a level also learns from those below it."""

    activation: str = "tanh"
    """tanh, sigmoid or relu."""

    context_scale: str = "sqrt"
    """"sqrt" tempers what is known of those who rated much; "sum" is the paper's."""

    target_weight: str = "unit"
    """"unit": each drawn target counts the same; "paper" gives each row the paper's weight."""

    ordinal_weight: float | None = None
    """Share of the ordinal cost, 0 to 1; the rest is plain likelihood. None is 0 beside a ridge
    part, 1 without."""

    time: bool = False
    """Whether the model knows when ratings were given. A prediction then needs times."""

    epochs: int | None = None
    batch_rows: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    average: float | None = None
    patience: int | None = None
    refit: bool = TrainingConfig.refit
    seed: int = TrainingConfig.seed
    """Training, as in cfnade.config.TrainingConfig, where each is explained. None takes what
    the default recipe of the side says."""

    seeds: int = 1
    """How many models to train, from `seed` on; their distributions are averaged."""

    settings: Mapping[str, Any] | None = None
    """Rarer fields of TrainingConfig, such as {"smoothing": 10}."""

    threads: int | None = None
    """None takes torch's number. Another number may change the last bits."""

    device: str = "cpu"
    """Where to train; predictions are made on the CPU."""

    verbose: bool = False
    """Whether fit() prints a line an epoch, with the name of the model if it trains several."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The arguments; `deep` is scikit-learn's and changes nothing, as none is an estimator."""
        return {name: getattr(self, name) for name in self.usual_params()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments; the next fit() uses them."""
        usual = self.usual_params()
        for name in params:
            if name not in usual:
                raise TrainingError(
                    describe_unknown(f"argument of {type(self).__name__}", name, usual)
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def usual_params(cls) -> dict[str, Any]:
        """What arguments are if they are not given."""
        return {option.name: option.default for option in fields(cls) if option.init}

    def __repr__(self) -> str:
        arguments = [
            f"{name}={getattr(self, name)!r}"
            for name, default in self.usual_params().items()
            if getattr(self, name) != default
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"


def saved_arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimator's arguments as JSON can hold them; `restored_arguments` reads them."""
    return {name: _json_value(value) for name, value in params.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json_value(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json_value(one) for one in value]
    return value


def restored_arguments(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `saved_arguments` gave."""
    return {name: as_given(value) for name, value in saved.items()}


def as_given(value: Any) -> Any:
    """A field of a model as the argument that it was: a tuple, where JSON has a list."""
    if isinstance(value, Mapping):
        return {name: as_given(one) for name, one in value.items()}
    return tuple(map(as_given, value)) if isinstance(value, list) else value
