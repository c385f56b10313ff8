"""Arguments and options that several commands share.

An option has the name of the Python parameter, with hyphens. A repeatable option is in the
singular. Commands take a group of options by `**options: Unpack[Group]`, see `command.py`. Options
that were not given are None. Ranges and choices are checked by the option classes of the library,
so that they are defined once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import typer

from cfnade.exceptions import DataError

SOURCES = "File, folder, data set (ml-1m), URL, store:URL or - (stdin)."


def option(form: str, help_text: str, *, panel: str | None = None, **limits: Any) -> Any:
    """Return an option whose default is that of the parameter.

    Args:
        form: The metavar of its value ("N"), with a name if it is not that of the parameter
            ("-n N"), or a flag ("--refit").
        help_text: What it means, in one line.
        panel: Heading on the help page.
        **limits: `min` and `max` of options that no option class of the library checks.
    """
    names, _, metavar = form.rpartition(" ")
    if metavar.startswith("-"):
        return typer.Option(metavar, help=help_text, rich_help_panel=panel)
    declared = [names] if names else []
    return typer.Option(*declared, metavar=metavar, help=help_text, rich_help_panel=panel, **limits)


def argument(metavar: str, help_text: str) -> Any:
    """Return a positional argument, which is required unless its parameter has a default."""
    return typer.Argument(metavar=metavar, help=help_text, show_default=False)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are on the command line."""
    return {name: value for name, value in options.items() if value is not None}


Model = Annotated[Path, argument("MODEL", "Folder of a saved model.")]
Data = Annotated[str, argument("DATA", SOURCES)]
OptionalData = Annotated[str | None, argument("DATA", SOURCES)]
Item = Annotated[str, argument("ITEM", "Id or title of the item.")]
ItemCount = Annotated[int, option("-n N", "Number of items.", min=1)]
ParquetFile = Annotated[Path, argument("OUT", "Parquet file to write.")]
ItemName = Annotated[str | None, option("WORD", "What the page calls an item, such as book.")]
Json = Annotated[bool, option("--json", "Print JSON.")]
Threads = Annotated[
    int | None, option("--n-threads N", "CPU threads.  [default: all cores]", min=1)
]


# -- reading data ---------------------------------------------------------------------------------

_read = partial(option, panel="Reading the data (recognized if not given)")


class TableArguments(TypedDict, total=False):
    """Arguments of `load` for tables of any size."""

    user: Annotated[str | None, _read("COLUMN", "Users: name or position (from 0).")]
    item: Annotated[str | None, _read("COLUMN", "Items.")]
    rating: Annotated[str | None, _read("COLUMN", "Ratings.")]
    weight: Annotated[str | None, _read("COLUMN", "Counts of interactions.")]
    no_weight: Annotated[bool | None, _read("--no-weight", "Ignore counts.")]
    implicit: Annotated[
        bool | None, _read("--implicit", "Lines are interactions (clicks), not ratings.")
    ]
    separator: Annotated[str | None, _read("TEXT", 'Text between columns, such as ";".')]
    header: Annotated[
        bool | None, _read("--header/--no-header", "The first line names the columns.")
    ]
    encoding: Annotated[str | None, _read("NAME", "Text encoding, such as utf-16.")]
    skip_bad_lines: Annotated[
        bool | None, _read("--skip-bad-lines", "Skip and report lines that cannot be read.")
    ]
    scale: Annotated[str | None, _read("SCALE", 'Rating scale: "1-5" or "0.5-5/0.5".')]
    bins: Annotated[int | None, _read("N", "Bin continuous ratings into N levels.")]
    duplicates: Annotated[
        str | None, _read("RULE", "Repeated ratings: error, first, last or mean.")
    ]
    min_rating: Annotated[
        float | None, _read("RATING", "Ratings from here on become interactions.")
    ]


class LoadArguments(TableArguments, total=False):
    """All arguments of `load`."""

    time: Annotated[str | None, _read("COLUMN", "Timestamps.")]
    no_time: Annotated[bool | None, _read("--no-time", "Ignore timestamps.")]
    weighting: Annotated[
        str | None, _read("RULE", "Weight of a count c: linear (c) or log (1 + ln c).")
    ]
    item_features: Annotated[str | None, _read("FILE", "Table of items: ids, titles, genres.")]
    query: Annotated[str | None, _read("SQL", "Rows to select from a database URL.")]
    cache: Annotated[bool | None, _read("--cache/--no-cache", "Use the cached copy of the file.")]


def load_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `load` that the options on the command line stand for."""
    names = LoadArguments.__annotations__
    arguments = {name: value for name, value in given_options(options).items() if name in names}
    for name in ("time", "weight"):
        if arguments.pop(f"no_{name}", False):
            if name in arguments:
                raise DataError(f"--{name} and --no-{name} exclude each other; give one of them")
            arguments[name] = False
    for name in ("user", "item", "rating", "time", "weight"):
        if str(arguments.get(name, "")).isdecimal():
            arguments[name] = int(arguments[name])
    return arguments


# -- training -------------------------------------------------------------------------------------

_model = partial(option, panel="Model")
_train = partial(option, panel="Training")
_output = partial(option, panel="Output")

ModelFolder = Annotated[Path, _output("--out FOLDER", "Folder for the model.")]


class ArchitectureArguments(TypedDict, total=False):
    """Fields of the model."""

    ridge: Annotated[int | None, _model("N", "Dimensions of the ridge component.")]
    samples: Annotated[int | None, _model("N", "Gibbs samples of a factor analysis.")]
    hidden: Annotated[str | None, _model("N,...", "Hidden units of each layer.")]
    factors: Annotated[int | None, _model("N", "Rank of factored weights.")]
    ordinal_weight: Annotated[float | None, _model("W", "Weight of the ordinal cost (0 to 1).")]


class TrainingArguments(TypedDict, total=False):
    """Fields of `TrainingConfig`."""

    epochs: Annotated[int | None, _train("N", "Maximum number of epochs.")]
    learning_rate: Annotated[float | None, _train("RATE", "Step size of Adam.")]
    weight_decay: Annotated[float | None, _train("W", "L2 penalty.")]
    batch_rows: Annotated[int | None, _train("N", "Users or items in a batch.")]
    patience: Annotated[int | None, _train("N", "Stop N epochs after the best one.")]
    refit: Annotated[bool | None, _train("--refit", "Train again with the validation ratings.")]
    seed: Annotated[int | None, _train("N", "Random seed.")]


class RunArguments(ArchitectureArguments, TrainingArguments, total=False):
    """Everything that describes a model, its training and what is saved of it."""

    recipe: Annotated[str | None, _model("NAME", "Name of a recipe, or a TOML file.")]
    learn_interactions: Annotated[
        bool | None,
        _model(
            "--learn-interactions/--no-learn-interactions", "Also model which items users choose."
        ),
    ]
    n_seeds: Annotated[int | None, _train("N", "Average N models of successive seeds.")]
    init_model: Annotated[Path | None, _train("MODEL", "Start from the weights of a model.")]
    n_threads: Annotated[int | None, _train("N", "CPU threads.", min=1)]
    without_context: Annotated[
        bool | None, _output("--without-context", "Do not store the ratings in the model.")
    ]
    keep_state: Annotated[
        bool | None, _output("--keep-state", "Keep the training state of a finished run.")
    ]


Overwrite = Annotated[bool, _output("--overwrite", "Replace the model in the folder.")]
SaveEvery = Annotated[float, _output("SECONDS", "Time between saved states.", min=0)]
Resume = Annotated[bool, _output("--resume", "Continue an interrupted run.")]

# -- users and rankings ---------------------------------------------------------------------------

HistoryFile = Annotated[
    Path | None, option("--history FILE", "CSV or Parquet with a new user's ratings.")
]
TypedHistory = Annotated[
    list[str] | None, argument("ITEM=RATING", 'Ratings of a new user ("Alien=5"), or items alone.')
]

_rank = partial(option, panel="Ranking")
_filter = partial(option, panel="Filters")


class RankingArguments(TypedDict, total=False):
    """Fields of `RankingOptions`."""

    rank_by: Annotated[str | None, _rank("CRITERION", "interaction, prediction or threshold.")]
    balance: Annotated[float | None, _rank("B", "From likely (0) to liked (1) items.")]
    threshold: Annotated[float | None, _rank("RATING", "Lowest rating of a liked item.")]
    personalization: Annotated[float | None, _rank("W", "From average (0) to personal (10).")]
    diversity: Annotated[float | None, _rank("D", "From best (0) to most different (1) items.")]
    popularity_penalty: Annotated[float | None, _rank("P", "From likely (0) to rare (1) items.")]
    min_ratings: Annotated[int | None, _filter("N", "Hide items with fewer ratings.")]
    genres: Annotated[
        list[str] | None, _filter("--genre GENRE", "Only items of this genre (repeatable).")
    ]
    candidate_items: Annotated[
        list[str] | None, _filter("--candidate-item ITEM", "Only this item (repeatable).")
    ]
    exclude_items: Annotated[
        list[str] | None, _filter("--exclude-item ITEM", "Not this item (repeatable).")
    ]
    exclude_seen: Annotated[
        bool | None,
        _filter("--exclude-seen/--include-seen", "Hide or show items the user has rated."),
    ]


# -- large jobs -----------------------------------------------------------------------------------

_job = partial(option, panel="Large jobs")
Engine = Annotated[Literal["local", "ray", "spark"], _job("NAME", "local, ray or spark.")]
Workers = Annotated[int | None, _job("N", "Parallel tasks.  [default: 1; clusters: all]", min=1)]
OverwriteJob = Annotated[bool, _job("--overwrite", "Replace the output of another job.")]
