"""From the parts of a data set to a choice: its sides made, the network's epoch and what each side
counts chosen by validation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cfnade.choice import Choice
from cfnade.choice.blending import AskedPeople, blended, kept, mean_ndcg
from cfnade.choice.choice_side import ChoiceSide
from cfnade.choice.factored import Posterior, PosteriorConfig
from cfnade.choice.linear import Linear
from cfnade.choice.nade_training import ChoiceTrainer
from cfnade.choice.picks import Picks
from cfnade.choice.planning import ChoicePlan
from cfnade.choice.set_nade import ChoiceNade
from cfnade.choice.set_states import score_all
from cfnade.data.split_protocols import choose_positions
from cfnade.data.splits import Split
from cfnade.models.choice_network import ChoiceNetwork
from cfnade.training.loop import Saving
from cfnade.training.state import Progress, lists_folder

ASKED = 2_000
"""So many people, at most, are asked to choose by."""

STREAM = 7  # of the random numbers that choose them
Say = Callable[[str], None]


def asked_of(split: Split, seed: int) -> AskedPeople | None:
    """People of the validation part, at most ASKED of them; None if there are none."""
    people = np.unique(split.valid.users).astype(np.int64)
    if not len(people):
        return None
    if len(people) > ASKED:
        people = people[choose_positions(len(people), ASKED, (seed, STREAM))]
    context = split.train.concat(split.fold_in) if len(split.fold_in) else split.train
    return AskedPeople(Picks.of(context).take(people), Picks.of(split.valid).take(people))


class ChoiceRun:
    """One choice on its way; the network's state is kept if a folder is given."""

    def __init__(
        self,
        split: Split,
        plan: ChoicePlan,
        *,
        saving: Saving | None = None,
        say: Say = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan, self._say, self._stop = plan, say, stop
        self._levels = len(split.train.scale) if plan.levels else 1
        self._picks = self._seen(Picks.of(split.train))
        asked = asked_of(split, plan.nade.seed)
        self._asked = asked and AskedPeople(self._seen(asked.known), asked.answers)
        self._identity = {"plan": plan.to_dict(), "split": split.fingerprint}
        self._saving = saving and replace(saving, folder=lists_folder(saving.folder))
        self.history: list[dict[str, Any]] = []

    def go(self) -> tuple[Choice, dict[str, Any]]:
        """The choice, and what was found on the way, for model.json.

        A run that is stopped has the paths that it had made, the network at least.
        """
        sides: dict[str, ChoiceSide] = {}
        seconds = {}
        makers: dict[str, Callable[[], ChoiceSide]] = {"nade": self._nade, "linear": self._linear}
        if self._plan.posterior is not None:
            makers["posterior"] = partial(self._posterior, self._plan.posterior)
        for name, make in makers.items():
            if sides and self._stop():
                break
            began = time.monotonic()
            sides[name] = make()
            seconds[name] = round(time.monotonic() - began, 2)
            self._say(f"lists: {name} path made in {seconds[name]:.1f} s")
        some = np.arange(min(ASKED, len(self._picks)))
        weights, ndcgs = blended(sides, self._asked, self._picks.take(some))
        facts = ndcgs | {"seconds": seconds, "history": self.history, "plan": self._plan.to_dict()}
        needed = kept(sides, weights)
        return Choice(needed, {name: weights[name] for name in needed}), facts

    def _seen(self, picks: Picks) -> Picks:
        return picks if self._plan.levels else picks.evenly()

    def _linear(self) -> Linear:
        plan = self._plan
        return Linear.fit(self._picks, penalty=plan.penalty, neighbours=plan.neighbours)

    def _posterior(self, config: PosteriorConfig) -> Posterior:
        plan = self._plan
        how = {"sweeps": plan.sweeps, "people": plan.people, "seed": plan.nade.seed}
        return Posterior.fit(self._picks, config, **how)

    def _nade(self) -> ChoiceNade:
        """With the averaged weights that give the best lists on validation."""
        trainer = ChoiceTrainer(self._picks, self._levels, self._plan.nade)
        run = NetworkRun(trainer, self._plan, self._value, self._saving, self._identity, self._say)
        run.go(self._stop)
        self.history = run.history
        return ChoiceNade.of([trainer.best()])

    def _value(self, network: ChoiceNetwork) -> float | None:
        if self._asked is None:
            return None
        return mean_ndcg(score_all(network, self._asked.known).numpy(), self._asked)


class NetworkRun:
    """The network of a choice on its way; `value` says how good averaged weights are."""

    def __init__(
        self,
        trainer: ChoiceTrainer,
        plan: ChoicePlan,
        value: Callable[[ChoiceNetwork], float | None],
        saving: Saving | None,
        identity: dict[str, Any],
        say: Say,
    ) -> None:
        self._trainer, self._plan, self._value = trainer, plan, value
        self._saving, self._identity, self._say = saving, identity, say
        self._kept_at = time.monotonic()
        self.history: list[dict[str, Any]] = []

    def go(self, stop: Callable[[], bool]) -> None:
        """All epochs, or as many as bring anything."""
        trainer, epoch = self._trainer, self._restored()
        while epoch < self._plan.nade.epochs and not self._finished():
            cost = trainer.epoch(epoch)
            epoch += 1
            if epoch % self._plan.look_every == 0 or epoch == self._plan.nade.epochs:
                self._look(epoch, cost)
            self._keep(epoch)
            if stop():
                break
        self._keep(epoch, now=True)

    def _finished(self) -> bool:
        """Whether the last looks brought nothing."""
        values = [record["ndcg"] for record in self.history if record["ndcg"] is not None]
        return len(values) > self._plan.patience and int(np.argmax(values)) < len(values) - (
            self._plan.patience
        )

    def _look(self, epoch: int, cost: float) -> None:
        """Score the averaged weights, and remember them if they are the best so far."""
        value = self._value(self._trainer.averaged())
        before = [record["ndcg"] for record in self.history if record["ndcg"] is not None]
        if value is None or not before or value > max(before):
            self._trainer.remember()
        self.history.append({"epoch": epoch, "cost": cost, "ndcg": value})
        shown = "" if value is None else f", validation NDCG@100 {value:.4f}"
        self._say(f"lists: epoch {epoch}, cost {cost:.3f}{shown}")

    def _keep(self, epoch: int, *, now: bool = False) -> None:
        """Write the state, if it is to be kept and it is time."""
        if self._saving is None:
            return
        if not now and not self._saving.due(0, time.monotonic() - self._kept_at):
            return
        self._saving.folder.mkdir(parents=True, exist_ok=True)
        progress = Progress(epoch=epoch, step=self._trainer.step, history=self.history)
        self._saving.write(self._trainer.state(), progress, self._identity)
        self._kept_at = time.monotonic()

    def _restored(self) -> int:
        """How many epochs an interrupted run had done; 0 if there was none."""
        saving = self._saving
        if saving is None or not saving.resume or not saving.there():
            return 0
        tensors, progress = saving.read(self._identity)
        self._trainer.restore(tensors, progress.step)
        self.history = progress.history
        return progress.epoch
