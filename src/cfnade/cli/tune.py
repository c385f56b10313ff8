"""`cfnade tune`: search for a better recipe by validation; interrupted searches resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Protocol

from cfnade.cli.options import Data, Threads, option
from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError


def tune(
    data: Data,
    *,
    out: Annotated[Path, option("FOLDER", "Folder of the search.")],
    recipe: Annotated[str, option("NAME", "Recipe to start from.")] = "default",
    split: Annotated[str, option("NAME", "How to split the ratings.")] = "paper:0",
    trials: Annotated[int, option("N", "Number of recipes to try.", min=1)] = 20,
    n_threads: Threads = None,
) -> None:
    """Search for better training options by validation RMSE.

    Trials are saved in the folder: the same command resumes an interrupted search. The best recipe
    so far is written to best.toml there. Needs Optuna: pip install 'cfnade[tune]'.

    \b
      cfnade tune ratings.csv --out search --trials 30
      cfnade train ratings.csv --recipe search/best.toml --out model
    """
    try:
        import optuna
        import tomli_w  # noqa: F401  # before hours of trials, not after the first
    except ImportError as error:
        raise TrainingError(
            f"tuning needs {error.name}; install it with: pip install 'cfnade[tune]'"
        ) from None
    from cfnade.data.load import load_split
    from cfnade.recipes import load_recipe

    base = load_recipe(recipe)
    parts = load_split(data, split)
    if len(parts.valid) == 0:
        raise TrainingError(f"split {split} has no validation part to choose by; take another")
    out.mkdir(parents=True, exist_ok=True)
    study = _open_study(out / "study.db", f"{base.name} {parts.fingerprint}")
    seed = sampler_seed(base.training.seed, len(study.trials))
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    finished = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    for number in range(len(finished), trials):
        trial = study.ask()
        candidate = replace(base, training=sample_config(trial, base.training))
        rmse = _valid_rmse(parts, candidate, n_threads)
        study.tell(trial, rmse)
        best = replace(base.training, **study.best_params)
        measured = {"valid_rmse": round(study.best_value, 5), "split": split}
        write_recipe(out / "best.toml", replace(base, training=best, measured=measured))
        values = "  ".join(f"{name} {value:.3g}" for name, value in trial.params.items())
        print(
            f"{number + 1:3}/{trials}  valid rmse {rmse:.4f}  best {study.best_value:.4f}  {values}"
        )
    print(f"{out / 'best.toml'}: validation RMSE {study.best_value:.4f}")


class Trial(Protocol):
    """The part of an Optuna trial that is used here."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...


def sampler_seed(seed: int, n_trials: int) -> int:
    """Return the sampler's seed after that many trials, so that a resumed search differs."""
    import numpy as np

    return int(np.random.SeedSequence((seed, n_trials)).generate_state(1)[0])


def sample_config(trial: Trial, base: TrainingConfig) -> TrainingConfig:
    """Sample learning rate, weight decay and smoothing, each on a logarithmic scale."""
    rate, decay = base.learning_rate, max(base.weight_decay, 1e-6)
    return replace(
        base,
        learning_rate=trial.suggest_float("learning_rate", rate / 4, rate * 4, log=True),
        weight_decay=trial.suggest_float("weight_decay", decay / 30, decay * 10, log=True),
        smoothing=trial.suggest_float("smoothing", 1.0, 50.0, log=True),
    )


def write_recipe(path: Path, recipe: Any) -> None:
    """Write a recipe as a TOML file that `cfnade train --recipe` reads."""
    import tomli_w

    from cfnade.utils.files import write_text

    tables = {
        "model": recipe.model,
        "training": recipe.training.to_dict(),
        "measured": recipe.measured,
    }
    content = {
        table: {name: value for name, value in values.items() if value is not None}
        for table, values in tables.items()
    }
    write_text(path, tomli_w.dumps({"side": recipe.side, **content}))


def _open_study(file: Path, name: str) -> Any:
    """Return the search that is saved in this file, or a new one."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=name, storage=f"sqlite:///{file}", load_if_exists=True
        )
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        raise TrainingError(
            f"{file}: is not a search that can be resumed ({str(error).splitlines()[0]}); delete "
            "it, or search in another folder"
        ) from error


def _valid_rmse(parts: Any, recipe: Any, n_threads: int | None) -> float:
    from cfnade.training.options import RunOptions
    from cfnade.training.plan import plan_side
    from cfnade.training.train import train

    plan = plan_side(recipe.side, recipe.model, recipe.training)
    result = train(parts, plan, RunOptions(n_threads=n_threads))
    return float(result.model.metadata["valid"]["rmse"])
