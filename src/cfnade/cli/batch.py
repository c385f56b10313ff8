"""`cfnade batch …`: answers for many users or pairs, as Parquet files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

from cfnade.cli import options
from cfnade.cli.command import Command, command_group, with_option_groups
from cfnade.cli.options import Json, Model, argument, option
from cfnade.cli.output_dir import locked_output_dir
from cfnade.cli.process import print_status
from cfnade.exceptions import PredictionError
from cfnade.utils.text import count_of

app = command_group(
    """Recommend, predict and evaluate for many users.

    The answers are Parquet files. Ray or Spark run the work on a cluster (--engine).

    \b
      cfnade batch recommend model --out recommendations
      cfnade batch predict model pairs/ --out predictions --workers 4
    """
)
Out = Annotated[Path, option("--out FOLDER", "Folder for the Parquet files.")]


@app.command(cls=Command)
@with_option_groups
def recommend(
    model: Model,
    users: Annotated[
        str | None, argument("USERS", "Table or folder: user; of new users items and ratings.")
    ] = None,
    *,
    out: Out,
    n: options.ItemCount = 10,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    overwrite: options.OverwriteJob = False,
    **ranking_options: Unpack[options.RankingArguments],
) -> None:
    """Recommend items to all users of a model or of a table.

    \b
      cfnade batch recommend model --out recommendations
      cfnade batch recommend model users.parquet --out recommendations -n 100
      cfnade batch recommend model users/ --out recommendations --engine ray
    """
    from cfnade.cli.recommend import ranking_arguments
    from cfnade.cli.user_input import load_predictor

    ranking = ranking_arguments(ranking_options, load_predictor(model))
    _run("recommend", model, users, out, engine, workers, overwrite, n=n, **ranking)


@app.command(cls=Command)
def predict(
    model: Model,
    pairs: Annotated[str, argument("PAIRS", "Table or folder of tables: columns user and item.")],
    *,
    out: Out,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    overwrite: options.OverwriteJob = False,
) -> None:
    """Predict the ratings of all pairs of a table or folder.

    \b
      cfnade batch predict model pairs/ --out predictions --workers 4
    """
    _run("predict", model, pairs, out, engine, workers, overwrite)


@app.command(cls=Command)
def evaluate(
    model: Model,
    data: Annotated[
        str, argument("DATA", "Table or folder of tables: columns user, item and rating.")
    ],
    *,
    out: Out,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    overwrite: options.OverwriteJob = False,
    as_json: Json = False,
) -> None:
    """Evaluate predictions of all ratings of a table or folder.

    \b
      cfnade batch evaluate model test/ --out scores --engine ray
    """
    scores = _run("evaluate", model, data, out, engine, workers, overwrite)["scores"]
    if as_json:
        print(json.dumps({"on": data, **scores}, indent=1))
    else:
        print("  ".join(f"{name} {scores[name]:.4f}" for name in ("rmse", "nll", "mae_of_medians")))


def _run(
    task: Literal["recommend", "predict", "evaluate"],
    model: Path,
    data: str | None,
    out: Path,
    engine: Literal["local", "ray", "spark"],
    workers: int | None,
    overwrite: bool,
    **ranking: Any,
) -> dict[str, Any]:
    from cfnade.distributed.batch_job import ALL, SUCCESS, predict_to_parquet

    if out.is_file():
        raise PredictionError(f"{out}: is a file; give a folder with --out")
    inputs: Any = ALL if data is None else [data]
    with locked_output_dir(out, ".lock", PredictionError, "is writing to it; wait until it ends"):
        summary = predict_to_parquet(
            *(model, inputs, out, task),
            engine=engine,
            n_workers=workers,
            overwrite=overwrite,
            **ranking,
        )
    size = f"{count_of(summary['rows'], 'row')} in {count_of(summary['parts'], 'Parquet file')}"
    print_status(f"{out}: {size}, {summary['seconds']:.1f} s; {SUCCESS} marks it as complete")
    return summary
