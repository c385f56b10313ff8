"""One training step on a device: fused kernels on a CPU, plain torch operations elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade.data.rows import Rows
from cfnade.models.cfnade import CFNADE
from cfnade.training.settings import Settings

if TYPE_CHECKING:
    from cfnade.kernels.step import Engine

RowIds = npt.NDArray[np.int64]


class Stepper(Protocol):
    """Moves a model's parameters; all that it remembers is in `state`."""

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        """Draw a batch from these rows, move down its cost, and return that cost."""

    def state(self) -> dict[str, Tensor]:
        """What an interrupted run needs to go on, beside the parameters; shares memory."""

    def restore(self, state: dict[str, Tensor], steps: int) -> None:
        """Go on from a state after that many steps."""


class CpuStepper:
    """Sampling, gradients and Adam in compiled kernels."""

    def __init__(self, model: CFNADE, rows: Rows, settings: Settings, threads: int | None) -> None:
        from cfnade.kernels.sampling import Sampler
        from cfnade.kernels.step import Engine
        from cfnade.models.engine import network_of

        network = network_of(model)
        self._engine = Engine(
            network,
            {name: rule_of(name, settings) for name in network.named()},
            ordinal_weight=model.config.ordinal_weight,
            rowwise=settings.rowwise,
            touched_only=settings.touched_only,
            threads=threads,
        )
        self._sampler = Sampler(
            rows.offsets,
            rows.columns,
            rows.levels,
            n_columns=rows.n_columns,
            n_levels=rows.n_levels,
            rate=settings.rates,
            weights=model.config.target_weight,
            threads=threads,
        )
        self._seed, self._mean = settings.seed, model.config.mean_context

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        batch = self._sampler.draw(rows, seed=self._seed, step=step)
        return self._engine.step(batch, scale=scale_of(self._mean, batch.counts), rate=rate)

    def state(self) -> dict[str, Tensor]:
        return moments_of(self._engine)

    def restore(self, state: dict[str, Tensor], steps: int) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._engine.steps = steps


class TorchStepper:
    """The same in plain torch, on any device."""

    def __init__(self, model: CFNADE, rows: Rows, settings: Settings) -> None:
        self._model, self._rows, self._settings = model, rows, settings
        names = _engine_names(model)
        groups = [
            {"params": [p], "lr": rule.rate, "weight_decay": rule.decay}
            for name, p in model.named_parameters()
            for rule in [rule_of(names[name], settings)]
        ]
        self._rates = [group["lr"] for group in groups]
        self._adam = torch.optim.Adam(groups)

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        from cfnade.models.orderless import draw_batch

        rng = np.random.default_rng((self._settings.seed, step))
        data = self._rows
        batch = draw_batch(
            data.offsets,
            data.columns,
            data.levels,
            rows,
            rng,
            target_weight=self._model.config.target_weight,
            rate=self._settings.rates,
        ).to(self._model.b.device)
        for group, base in zip(self._adam.param_groups, self._rates, strict=True):
            group["lr"] = base * rate
        self._adam.zero_grad(set_to_none=True)
        cost = self._model.cost(batch)
        cost.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        return float(cost.detach())

    def state(self) -> dict[str, Tensor]:
        return adam_state(self._adam)

    def restore(self, state: dict[str, Tensor], steps: int) -> None:  # noqa: ARG002
        restore_adam(self._adam, state)


def scale_of(mean_context: float | None, counts: RowIds) -> npt.NDArray[np.float64] | None:
    """What multiplies the summed contexts of rows with that many known ratings. Returns (B,)."""
    if mean_context is None:
        return None
    scale: npt.NDArray[np.float64] = np.sqrt(mean_context / np.maximum(counts, 1))
    return scale


def adam_state(adam: torch.optim.Adam) -> dict[str, Tensor]:
    """What torch's Adam remembers, by number of the parameter."""
    found: dict[str, Tensor] = {}
    for index, moments in adam.state_dict()["state"].items():
        found |= {f"{index}.{name}": tensor for name, tensor in moments.items()}
    return found


def restore_adam(adam: torch.optim.Adam, state: dict[str, Tensor]) -> None:
    whole: dict[str, Any] = adam.state_dict()
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        index, part = name.split(".")
        moments.setdefault(int(index), {})[part] = tensor
    adam.load_state_dict(whole | {"state": moments})


def moments_of(engine: Engine) -> dict[str, Tensor]:
    """Adam's memory, by parameter; shared, not copied."""
    pairs = engine.moments.items()
    return {f"{name}.{i}": tensor for name, pair in pairs for i, tensor in enumerate(pair)}


def rule_of(name: str, settings: Settings) -> Any:
    """Rate and L2 of a parameter by its name in the engine."""
    from cfnade.kernels.adam import Rule

    rate = settings.learning_rate
    if name in ("input_table", "B", "c"):
        rate *= settings.first_layer_factor
    if name in ("B", "Q", "c") or name.startswith("deep"):
        rate *= settings.dense_factor
    bias = name in ("bias", "c") or name.startswith("deep_c")
    # The penalty is decay · Σw², so its gradient is 2 · decay · w.
    decay = 0.0 if bias else 2.0 * settings.weight_decay
    return Rule(rate=rate, decay=decay * (settings.output_decay if name == "output_table" else 1))


def _engine_names(model: CFNADE) -> dict[str, str]:
    """The engine's name of each of the model's parameters."""
    tables = {"W": "input_table", "A": "input_table", "V": "output_table", "P": "output_table"}
    return {name: (tables | {"b": "bias"}).get(name, name) for name, _ in model.named_parameters()}
