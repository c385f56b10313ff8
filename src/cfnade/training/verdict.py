"""What validation says of trained members: what each counts, and how sure they may be together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cfnade.calibration.calibration import Calibration
from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.evaluation.rating_metrics import rmse
from cfnade.fitted_model import FittedModel
from cfnade.training.floor import means_rmse
from cfnade.training.member import TrainedMember
from cfnade.training.pooling import Replies, asked, mixed
from cfnade.training.shares import Shares, best_stages, equal_shares, shares_of
from cfnade.training.validation import calibrated


class Verdict(NamedTuple):
    """Of members, in their order."""

    shares: Shares
    alone: Sequence[float | None]
    """The validation RMSE of each; None without validation."""
    calibration: Calibration | None
    calibration_of_new: Calibration | None
    metrics: dict[str, Any]

    def tried(self, members: Sequence[TrainedMember]) -> list[dict[str, Any]]:
        """What every member gave, those too that count nothing."""
        return [
            {
                "side": member.final.side,
                "valid_rmse": error,
                "seconds": round(member.seconds, 2),
                "share": round(of_known, 4),
                "share_of_new": round(of_new, 4),
            }
            for member, error, (of_known, of_new) in zip(
                members, self.alone, self.shares, strict=True
            )
        ]


def verdict_on(
    members: Sequence[TrainedMember],
    kinds: Sequence[int],
    split: Split,
    *,
    seed: int,
    weigh: bool,
    stages: Sequence[int] | None,
) -> Verdict:
    """Ask all members about split.valid; `kinds` are numbers from 0 on.

    If `weigh`, validation says what each kind counts; with `stages`, those that add little count
    nothing. Otherwise, and without a validation part, all count the same.
    """
    valid, shares = split.valid, equal_shares(kinds)
    if len(valid) == 0:
        return Verdict(shares, [None] * len(members), None, None, {})
    answers = [asked(member.chosen, valid, seed=seed) for member in members]
    if weigh:
        trusts = [_trust(member.chosen) for member in members]
        if stages is None:
            shares = shares_of(answers, kinds, valid, trusts)
        else:
            shares = best_stages(answers, kinds, stages, valid, trusts)
    apart = any("user" in member.chosen.trained_on for member in members)
    calibration, of_new, metrics = calibrated(mixed(answers, shares), valid, apart=apart)
    metrics["means_rmse"] = means_rmse(split.train, valid)
    return Verdict(shares, _rmse_of_each(answers, valid), calibration, of_new, metrics)


def _trust(fitted: FittedModel) -> float:
    """What a member counts where validation cannot tell."""
    return max(side.trust for side in fitted.members[0].components.values())


def _rmse_of_each(answers: Sequence[Replies], valid: Dataset) -> list[float | None]:
    stars = valid.scale.array()
    return [rmse(valid.values, answer.everything.probabilities @ stars) for answer in answers]
