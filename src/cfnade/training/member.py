"""One member of an ensemble: initial weights, training, selection by validation, and the refit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from cfnade import __version__
from cfnade.components import FitData, Member
from cfnade.components.base import other_axis
from cfnade.components.optimizers import member_network, network_arrays
from cfnade.components.registry import component_names, is_closed_form, new_member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.scale import Scale
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.kernels.threads import thread_count
from cfnade.training.callbacks import Callback, Stage
from cfnade.training.loop import DivergedError, LoopOptions, TrainingLoop
from cfnade.training.options import RunOptions
from cfnade.training.plan import MemberPlan
from cfnade.training.state import LoopState
from cfnade.training.steps import make_stepper
from cfnade.training.validation import copy_gains, fit_component_gains, validation_scorer
from cfnade.utils.text import option


@dataclass(frozen=True)
class TrainedMember:
    """A model of one member: `selected` by validation, `final` that or the refit."""

    selected: FittedModel
    final: FittedModel
    state: LoopState
    plan: MemberPlan
    identity: dict[str, Any]
    seconds: float
    finished_at: float
    """Of time.monotonic()."""
    stopped: bool
    diverged: str | None

    @property
    def refitted(self) -> bool:
        return self.final is not self.selected


@dataclass(frozen=True)
class MemberTraining:
    """The training of one member and its refit."""

    plan: MemberPlan
    components: tuple[str, ...]
    fields: dict[str, Any]
    """Fields of the components that do not follow from the data."""
    number: int
    options: RunOptions
    """Those of the run, with the threads and the state of this member."""
    seconds: float = 0.0
    """Estimated time without the refit; 0 if it is unknown."""
    numbered: bool = False
    """Whether there are several members."""

    @classmethod
    def from_plan(
        cls, plan: MemberPlan, number: int, options: RunOptions, **more: Any
    ) -> MemberTraining:
        """Return the training of a plan's member."""
        fields = dict(plan.model)
        names = component_names(
            plan.side, ridge=fields.get("ridge", 0), time=fields.pop("time", False)
        )
        if is_closed_form(names):  # closed form: there are no weights to update or to average
            plan = replace(plan, training=replace(plan.training, epochs=0, average=0.0))
        return cls(plan, names, fields, number, options, **more)

    @property
    def config(self) -> TrainingConfig:
        return self.plan.training

    @property
    def stage(self) -> Stage:
        """What callbacks call this training."""
        return Stage(
            self.plan.label,
            seconds=self.seconds,
            member=self.number,
            numbered=self.numbered,
            epochs=self.config.epochs or None,
            patience=self.config.patience,
        )

    @property
    def stages(self) -> list[Stage]:
        """The training, and the refit if there is one."""
        return [self.stage, *([replace(self.stage, refit=True)] if self.config.refit else [])]

    def train(self, split: Split, callback: Callback) -> TrainedMember:
        """Train on split.train and select by split.valid."""
        began = time.monotonic()
        callback.on_stage_begin(self.stage)
        model = self._initial_model(split)
        member = model.members[0]
        loop = self._loop(
            model,
            callback,
            validate=self._validation_scorer(model, split),
            store=self.options.store,
            identity=self._identity(split, member),
        )
        continued = self.options.init_model is not None
        if continued or any(component.starts_well for component in member.components.values()):
            loop.validate_start()
        diverged = loop.run_until_diverged()
        stopped = loop.state.epoch < self.config.epochs and self.options.should_stop()
        self._finish(model, loop)
        fit_component_gains(model, split.valid)
        callback.on_stage_end(self.stage)
        final = model
        if self.config.refit and not stopped and diverged is None:
            final = self._refit(split, callback, loop.state.best_epoch, member) or model
            stopped = final is model and self.options.should_stop()  # the refit can be resumed too
        seconds = max(time.monotonic() - began, loop.state.seconds)  # longer if it was resumed
        return TrainedMember(
            selected=model,
            final=final,
            state=loop.state,
            plan=self.plan,
            identity=self._identity(split, member),
            seconds=seconds,
            finished_at=time.monotonic(),
            stopped=stopped,
            diverged=diverged,
        )

    def _validation_scorer(
        self, model: FittedModel, split: Split
    ) -> Callable[[nn.Module], dict[str, float]] | None:
        """Return what scores weights; None without a validation part."""
        return validation_scorer(model, split.valid)

    def _initial_model(self, split: Split, *, refit: bool = False) -> FittedModel:
        """Return a model of one member with its initial weights; a refit is on all ratings."""
        ratings = split.train.concat(split.valid) if refit else split.train
        if self.options.init_model is not None:
            member = continued_member(self.options.init_model, self.number, ratings, self.config)
        else:
            member = new_member(self.components, ratings, self.fields, self.config)
        return FittedModel(
            (member,), self.plan.side, ratings, count_training_ratings(member.axes, ratings)
        )

    def _loop(
        self, model: FittedModel, callback: Callback, stage: Stage | None = None, **options: Any
    ) -> TrainingLoop:
        stage = stage or self.stage
        member = model.members[0]
        network = member_network(member, self.options.device)
        stepper = make_stepper(
            member,
            model.context,
            self.fields,
            self.config,
            device=self.options.device,
            threads=thread_count(self.options.n_threads),
            network=network,
        )
        return TrainingLoop(
            network,
            stepper.sampler,
            stepper,
            LoopOptions.from_config(self.config, stepper.sampler.n_steps),
            callback=callback,
            stage=stage,
            should_stop=self.options.should_stop,
            **options,
        )

    def _refit(
        self, split: Split, callback: Callback, epochs: int, selected: Member
    ) -> FittedModel | None:
        """Train again from the start on all ratings, for as many epochs as validation selected.

        The gains are those of validation. None if it was stopped or diverged: the model that
        validation selected is then used.
        """
        stage = replace(self.stage, refit=True, epochs=epochs or None)
        callback.on_stage_begin(stage)
        model = self._initial_model(split, refit=True)
        loop = self._loop(model, callback, stage)
        try:
            loop.run(epochs)
        except DivergedError:
            return None
        if loop.state.epoch < epochs:
            return None
        self._finish(model, loop)
        copy_gains(selected, model.members[0])
        callback.on_stage_end(stage)
        return model

    def _finish(self, model: FittedModel, loop: TrainingLoop) -> None:
        """Finish the training on the CPU, where predictions are made."""
        member = model.members[0]
        if self.options.device != "cpu":
            member.assign(network_arrays(loop.model))
        finish_member(member, model.context)

    def _identity(self, split: Split, member: Member) -> dict[str, Any]:
        """Return what must be the same for a run to be resumed."""
        return {
            "side": self.plan.side,
            "model": member.to_dict(),
            "settings": self.config.to_json(),
            "data": split.data,
            "split": {"name": split.name, "fingerprint": split.fingerprint},
            "device": self.options.device,
            "threads": self.options.n_threads,
            "version": __version__,
        }


def finish_member(member: Member, ratings: Dataset) -> None:
    """Let each component do its last step."""
    for component in member.components.values():
        component.finish(ratings, member)


# -- an earlier model ------------------------------------------------------------------------------


def continued_member(
    model: FittedModel, number: int, ratings: Dataset, config: TrainingConfig
) -> Member:
    """Return a member of an earlier model for these ratings.

    Users and items are matched by id. New ones begin with the mean of the trained ones, and what
    has a closed form is fitted to the ratings again, from where it was.
    """
    extended = replace(model, members=(model.members[number],)).extend(ratings)
    (member,), generator = extended.members, torch.Generator().manual_seed(config.seed)
    for component in member.components.values():
        if component.axis is not None:
            counts = extended.training_counts[other_axis(component.axis)]
            component.update(FitData(ratings, config, generator), counts)
    return member


def check_init_model(trainings: Sequence[MemberTraining], model: FittedModel, scale: Scale) -> None:
    """Raise a TrainingError unless each training can continue with its member of the model."""
    refused = "init_model cannot be continued: "
    if len(model.members) != len(trainings):
        raise TrainingError(
            f"{refused}it has {len(model.members)} members, and {len(trainings)} are to be "
            "trained; leave out what describes the model, so that it is continued as it is"
        )
    if model.context.scale != scale:
        raise TrainingError(f"{refused}its ratings have another scale")
    for training, member in zip(trainings, model.members, strict=True):
        earlier, now = (" + ".join(names) for names in (member.components, training.components))
        if earlier != now:
            raise TrainingError(
                f"{refused}its components are {earlier}, not {now}; give the same side, and "
                f"{option('ridge', 0)} for a model without a ridge component"
            )
        for name, value in training.fields.items():
            saved = [fields[name] for fields in member.to_dict().values() if name in fields]
            if saved and _plain(value) not in map(_plain, saved):
                raise TrainingError(
                    f"{refused}its {name} is {saved[0]!r}, not {value!r}; give the same"
                )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
