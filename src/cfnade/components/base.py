"""What a component is: one additive term of a model's scores, as a config and named arrays.

A fitted model averages the distributions of its members; a member adds the scores of its
components before the softmax. A component whose rows are users reads what a user rated and has
weights of every item; one whose rows are items reads an item's ratings and has weights of every
user. Code outside this package does not distinguish kinds of components.

Nothing here needs torch before a component is fitted or trained. To add a component: a subclass in
a module of its own with `@register` (`tests/components/toy.py` is an example), its import in
`__init__.py`, and its cases in `tests/components/`: see docs/project/architecture.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
)

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.posterior import Evidence
from cfnade.utils.caching import locked_cached_property

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from cfnade.components.batches import Batch
    from cfnade.components.optimizers import Adam
    from cfnade.components.row_states import RowStates
    from cfnade.distributed.partition import ColumnPartition
    from cfnade.kernels.adam import AdamRule

Axis = Literal["user", "item"]

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
BoolArray = npt.NDArray[np.bool_]

THIN = 30.0
"""A column with n ratings counts n / (n + THIN) in means over columns."""


def other_axis(axis: Axis) -> Axis:
    """Return what the columns are if the rows are these."""
    return "item" if axis == "user" else "user"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a component's rows and columns, each to be scored without its own rating."""

    rows: CsrRows
    """Known ratings of some rows."""
    row: IntArray  # (n,) which of these rows
    column: IntArray  # (n,) -1: unknown
    index: IntArray  # (n,) of the row in the model; -1: new
    levels: IntArray  # (n,) of the row's rating of the column, which is left out; -1: none
    left_out: IntArray | None = None
    """(n,) A further rating that is left out: its place among the ratings of the rows; -1: none."""
    times: Array | None = None
    serial: bool = False
    """Whether to compute on the calling thread, so that bits depend on the pair alone."""

    def take(self, places: IntArray) -> Pairs:
        """Return some of the pairs."""
        left_out = None if self.left_out is None else self.left_out[places]
        times = None if self.times is None else self.times[places]
        return Pairs(
            self.rows,
            self.row[places],
            self.column[places],
            self.index[places],
            self.levels[places],
            left_out,
            times,
            self.serial,
        )


class ComponentScorer(Protocol):
    """Scores of a component, given the ratings of its rows. Scores have K levels."""

    def score_pairs(self, pairs: Pairs) -> Array:
        """Return scores of pairs, (n, K)."""

    def score_columns(self, rows: CsrRows) -> Array:
        """Return scores of every column of some rows, nothing left out: (B, M, K).

        The array may be written to. In memory levels come before columns: bounds are computed from
        that (kernels/top_k.py).
        """

    def score_rows(self, columns: IntArray) -> Array:
        """Return scores of every row that it was given, of each of some columns: (B, N, K)."""

    def fold_in_output(self) -> tuple[RowStates, OutputTable] | None:
        """Return the states that scores of a column without weights are linear in, if any."""


class OutputTable(NamedTuple):
    """Output weights of columns, which multiply the state of a row."""

    table: Array  # (M, K, S)
    bias: Array  # (M, K)
    shared: bool
    """Whether levels add up (Eq. 10)."""


class ArraySpec(NamedTuple):
    """Shape and role of one named array."""

    shape: tuple[int, ...]
    column_axis: int | None = 0
    """The axis that runs over columns. None: the array is the same on every rank."""
    dtype: str = "float32"
    trained: bool = True
    """Whether gradients move it; in torch others are buffers."""


@dataclass(frozen=True)
class FitData:
    """The data and options that components are fitted to."""

    dataset: Dataset
    training: TrainingConfig
    generator: torch.Generator
    preceding: tuple[Component, ...] = ()
    """The components before this one in its member."""
    partition: ColumnPartition | None = None
    """The columns of this rank, where ranks share them."""


class Component(ABC):
    """One additive term of a model's scores: a config and named arrays.

    `spec` declares the arrays. Checks of saved models, slices for ranks, extension to new ids and
    estimates of memory follow from it.
    """

    head: ClassVar[Literal["rating", "interaction"]]
    """Whether it scores the levels of ratings, or items."""
    name: ClassVar[str]
    config_type: ClassVar[type[Any]]
    partition: ColumnPartition | None = None

    def __init__(
        self, config: Any, arrays: Arrays | None = None, axis: Axis | None = "user"
    ) -> None:
        self.config, self.axis = config, axis
        self.arrays: dict[str, Array] = self._zeros() if arrays is None else dict(arrays)

    def _zeros(self) -> dict[str, Array]:
        specs = self.spec(self.config).items()
        return {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs}

    @classmethod
    @abstractmethod
    def spec(cls, config: Any) -> dict[str, ArraySpec]:
        """Return shape and role of every array."""

    @classmethod
    def config_of(cls, fields: Mapping[str, Any]) -> Any:
        """Return the config with these fields."""
        try:
            return cls.config_type(**fields)
        except TypeError as error:
            raise ModelError(f"component {cls.name!r}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the config as plain values, as JSON has them."""
        fields = asdict(self.config).items()
        return {name: list(v) if isinstance(v, tuple) else v for name, v in fields}

    def take_columns(self, places: IntArray, trained: BoolArray | None = None) -> Self:
        """Return the component for other columns.

        Args:
            places: Where each column is now, (M,); -1 is a new one.
            trained: Which of the present columns had training ratings; a new column gets their
                mean. None: all.
        """
        arrays = {
            name: _take(self.arrays[name], spec.column_axis, places, trained)
            for name, spec in self.spec(self.config).items()
        }
        return type(self)(replace(self.config, columns=len(places)), arrays, self.axis)

    def with_arrays(self, arrays: Arrays) -> Self:
        """Return the component with some other arrays; nothing is copied."""
        component = object.__new__(type(self))
        component.__dict__ |= {k: v for k, v in self.__dict__.items() if k != "network"}
        component.arrays = {**self.arrays, **arrays}
        return component

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "network"}


def _take(array: Array, axis: int | None, places: IntArray, trained: BoolArray | None) -> Array:
    if axis is None:
        return array.copy()
    rows = np.moveaxis(array, axis, 0)
    out = rows[np.maximum(places, 0)]
    if (places < 0).any():
        sources = rows if trained is None or not trained.any() else rows[trained]
        out[places < 0] = sources.mean(0, dtype=np.float64).astype(array.dtype)
    return np.ascontiguousarray(np.moveaxis(out, 0, axis))


class RatingComponent(Component):
    """A term of the scores of rating levels."""

    head = "rating"
    needs_times: ClassVar[bool] = False
    """Whether it scores no pair without a timestamp."""
    starts_well: ClassVar[bool] = False
    """Whether its start is a model by itself, which validation may prefer to a trained one."""
    tunes: ClassVar[bool] = False
    """Whether it has arrays `gain` and `shift`, which are fitted to validation ratings after
    training. Both are 0 before, and it takes no part in training."""
    partitionable: ClassVar[bool] = False
    """Whether ranks can share its columns."""
    kernels: ClassVar[str] = "nade"
    """The group of kernels that its training needs (kernels/warmup.py)."""
    closed_form: ClassVar[bool] = False
    """Whether it is fitted to the ratings at once, and nothing of it is trained."""

    @property
    def group(self) -> ProcessGroup:
        """The ranks that have the other columns."""
        return SINGLE_PROCESS if self.partition is None else self.partition.group

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def config_for(cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]) -> Any:
        """Return the config for these ratings; options are those that do not follow from them."""

    @classmethod
    @abstractmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        """Return start values for gradient training, or the closed-form solution.

        The first component of a member has the prior of the levels.
        """

    def update(self, data: FitData, counts: IntArray) -> None:
        """Fit a closed form again from where it stands, after ratings have been added.

        counts (M, K) are the ratings that each column had at each level until now.
        """

    def finish(self, ratings: Dataset, member: Member) -> None:
        """Adjust arrays after training."""

    @property
    def prior_weight(self) -> float:
        """The ensemble weight of its member, relative to others, if validation cannot decide."""
        return 1.0

    # -- trained ------------------------------------------------------------------------------

    @property
    def trained(self) -> list[str]:
        """Names of the arrays that gradients move."""
        return [name for name, spec in self.spec(self.config).items() if spec.trained]

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        """Return rate and L2 of each trained array.

        share is 0 for a cost that is a mean over rows; for a mean over the targets of a block it
        is the part of all columns that a block has.
        """
        from cfnade.kernels.adam import AdamRule

        del ratings, share
        return dict.fromkeys(self.trained, AdamRule(rate=settings.learning_rate))

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        """Return what moves its arrays in place, on a CPU; by default autograd."""
        from cfnade.components.optimizers import TorchTrainer

        del threads
        return TorchTrainer(self, self.rules(ratings, settings, share=share))

    def module(self) -> nn.Module:
        """Return a module of its config, whose state has the names of arrays."""
        import torch
        from torch import nn

        specs = self.spec(self.config)
        return nn.ParameterDict({name: torch.zeros(specs[name].shape) for name in self.trained})

    @locked_cached_property
    def network(self) -> Any:
        """The torch module of its arrays, in the same memory; a closed form has none."""
        import torch

        with torch.device("meta"):
            module = self.module()
        names = module.state_dict()
        tensors = {name: torch.from_numpy(self.arrays[name]) for name in names}
        module.load_state_dict(tensors, assign=True)
        return module

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        """Return differentiable scores of a batch's targets by its module, (T, K)."""
        raise NotImplementedError(f"{type(self).__name__} is not trained by torch")

    # -- asked --------------------------------------------------------------------------------

    def fault(self, ratings: Dataset) -> str | None:
        """Return why it does not fit the id tables and the scale of these ratings, if so."""
        assert self.axis is not None
        columns, levels = len(ratings.ids(other_axis(self.axis))), len(ratings.scale)
        if columns != self.config.columns:
            return f"the id table has {columns:,} columns, the model {self.config.columns:,}"
        if levels != self.config.levels:
            return f"the scale {ratings.scale} has {levels} levels, not {self.config.levels}"
        return None

    @abstractmethod
    def scorer(self, rows: CsrRows) -> ComponentScorer:
        """Return its scores, given the ratings of these rows."""

    @property
    def learns(self) -> Axis | None:
        """Users or items that have trained weights here; None: neither."""
        return None if self.axis is None else other_axis(self.axis)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Return a vector of each user or item, if it has any: (users or items, width)."""
        del context, axis
        return None

    def evidence(self) -> Evidence | None:
        """Return what a rating tells of its row, where what is known of a row is a Gaussian."""
        return None


class Trainer(ABC):
    """Moves the arrays of one component in place; the loop owns schedule and validation."""

    optimizer: Adam | None = None

    @abstractmethod
    def add_scores(self, batch: Batch, scores: Array) -> None:
        """Add to the scores (T, K) of the batch's targets."""

    @abstractmethod
    def backward(self, batch: Batch, gradient: Array, rate: float) -> None:
        """Step down the gradient (T, K) of the scores that `add_scores` added last."""

    def fused_step(self, batch: Batch, rate: float) -> float | None:
        """Take the whole step of a component that is alone; return its cost, or None."""
        del batch, rate
        return None

    def state(self) -> dict[str, Tensor]:
        """Return what an interrupted run needs to resume, beside the arrays; shares memory."""
        return {} if self.optimizer is None else self.optimizer.state()

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Resume from a state after that many steps."""
        del steps
        if self.optimizer is not None:
            self.optimizer.restore(state)


class Member:
    """Components by name, in order: their scores are added, and the first has the levels' prior.

    For user u and item i, with u's other ratings and i's other ratings known, level k of a member
    with a CF-NADE of users and one of items scores

        s^k = Σ_{j≤k} [ V^U_{i,j}·h_u + b^U_{i,j} ]  +  Σ_{j≤k} [ V^I_{u,j}·h_i + b^I_{u,j} ]

    and p(r_ui = k) is the softmax of s. Trained on one cost, each component learns what the others
    leave over.
    """

    def __init__(self, components: Mapping[str, RatingComponent]) -> None:
        self.components = dict(components)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What the rows of its components are, in their order, each once."""
        return tuple(dict.fromkeys(c.axis for c in self.components.values() if c.axis is not None))

    def arrays(self) -> dict[str, Array]:
        """All its arrays, as component/array."""
        return {
            f"{name}/{key}": array
            for name, component in self.components.items()
            for key, array in component.arrays.items()
        }

    def with_arrays(self, arrays: Mapping[str, Array]) -> Member:
        """Return the same with some other arrays, such as averaged ones; nothing is copied."""
        parts: dict[str, dict[str, Array]] = {name: {} for name in self.components}
        for key, array in arrays.items():
            component, _, name = key.partition("/")
            parts[component][name] = array
        return Member({name: c.with_arrays(parts[name]) for name, c in self.components.items()})

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Set the values of some arrays in place."""
        targets = self.arrays()
        for name, array in arrays.items():
            targets[name][...] = array

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the fields of each component as plain values."""
        return {name: component.to_dict() for name, component in self.components.items()}
