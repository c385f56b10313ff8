"""`cfnade tune`: a better recipe by validation. It can be interrupted and gone on with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge

from cfnade.cli.arguments import Data, with_reading
from cfnade.exceptions import TrainingError
from cfnade.utils.validation import check_scalar


@with_reading
def tune(
    data: Data,
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder of the search.")],
    recipe: Annotated[str, typer.Option(help="The recipe to start from.")] = "default",
    split: Annotated[str, typer.Option(help="How to cut the ratings.")] = "paper:0",
    trials: Annotated[int, typer.Option(help="How many recipes to try in all.")] = 20,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    reading: dict[str, Any],
) -> None:
    """Search for better training settings by validation RMSE.

    Trials are kept in the folder: the same command goes on where it was stopped. The best recipe
    so far is written there as best.toml. Needs Optuna: pip install 'cfnade[tune]'.

    \b
      cfnade tune ratings.csv --out search --trials 30
      cfnade train ratings.csv --recipe search/best.toml --out model
    """
    check_scalar("trials", trials, int, Ge(1), error=TrainingError)
    try:
        import optuna
    except ImportError:
        raise TrainingError(
            "tuning needs Optuna; install it with: pip install 'cfnade[tune]'"
        ) from None
    from cfnade.data.loader import load_split
    from cfnade.recipes import load_recipe
    from cfnade.tuning import sampler_seed, try_settings, write_best

    base = load_recipe(recipe)
    parts = load_split(data, split, **reading)
    if len(parts.valid) == 0:
        raise TrainingError(f"split {split} has no validation part to choose by; take another")
    out.mkdir(parents=True, exist_ok=True)
    study = _study(out / "study.db", f"{base.name} {parts.fingerprint}")
    seed = sampler_seed(base.training.seed, len(study.trials))
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    for number in range(len(done), trials):
        trial = study.ask()
        tried = replace(base, training=try_settings(trial, base.training))
        rmse = _score(parts, tried, threads)
        study.tell(trial, rmse)
        write_best(out / "best.toml", base, study.best_params, study.best_value, split)
        settings = "  ".join(f"{name} {value:.3g}" for name, value in trial.params.items())
        best = f"best {study.best_value:.4f}"
        print(f"{number + 1:3}/{trials}  valid rmse {rmse:.4f}  {best}  {settings}")
    print(f"{out / 'best.toml'}: validation RMSE {study.best_value:.4f}")


def _study(file: Path, name: str) -> Any:
    """The search kept in this file, or a new one."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=name, storage=f"sqlite:///{file}", load_if_exists=True
        )
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        raise TrainingError(
            f"{file}: is not a search that can be gone on with ({str(error).splitlines()[0]}); "
            "delete it, or search in another folder"
        ) from error


def _score(parts: Any, tried: Any, threads: int | None) -> float:
    from cfnade.training.run import train

    trained = train(
        parts, side=tried.side, architecture=tried.model, settings=tried.training, threads=threads
    )
    return float(trained.fitted.facts["valid"]["rmse"])
