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

Model = Annotated[Path, typer.Argument(help="Folder of a saved model.", metavar="MODEL")]
Data = Annotated[str, typer.Argument(help=SOURCES, metavar="DATA")]
OptionalData = Annotated[
    str | None, typer.Argument(help=SOURCES, metavar="DATA", show_default=False)
]
Item = Annotated[str, typer.Argument(help="Id or title of the item.", metavar="ITEM")]
ItemCount = Annotated[int, typer.Option("-n", metavar="N", min=1, help="Number of items.")]
ParquetFile = Annotated[Path, typer.Argument(help="Parquet file to write.", metavar="OUT")]
ItemName = Annotated[
    str | None, typer.Option(metavar="WORD", help="What the page calls an item, such as book.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Threads = Annotated[
    int | None,
    typer.Option("--n-threads", metavar="N", min=1, help="CPU threads.  [default: all cores]"),
]


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are on the command line."""
    return {name: value for name, value in options.items() if value is not None}


# -- reading data ---------------------------------------------------------------------------------

_read = partial(typer.Option, rich_help_panel="Reading the data (recognized if not given)")


class TableArguments(TypedDict, total=False):
    """Arguments of `load` for tables of any size."""

    user: Annotated[str | None, _read(metavar="COLUMN", help="Users: name or position (from 0).")]
    item: Annotated[str | None, _read(metavar="COLUMN", help="Items.")]
    rating: Annotated[str | None, _read(metavar="COLUMN", help="Ratings.")]
    weight: Annotated[str | None, _read(metavar="COLUMN", help="Counts of interactions.")]
    no_weight: Annotated[bool | None, _read("--no-weight", help="Ignore counts.")]
    implicit: Annotated[
        bool | None, _read("--implicit", help="Lines are interactions (clicks), not ratings.")
    ]
    separator: Annotated[
        str | None, _read(metavar="TEXT", help='Text between columns, such as ";".')
    ]
    header: Annotated[bool | None, _read(help="The first line names the columns.")]
    encoding: Annotated[str | None, _read(metavar="NAME", help="Text encoding, such as utf-16.")]
    skip_bad_lines: Annotated[
        bool | None, _read("--skip-bad-lines", help="Skip and report lines that cannot be read.")
    ]
    scale: Annotated[str | None, _read(metavar="SCALE", help='Rating scale: "1-5" or "0.5-5/0.5".')]
    bins: Annotated[int | None, _read(metavar="N", help="Bin continuous ratings into N levels.")]
    duplicates: Annotated[
        str | None, _read(metavar="RULE", help="Repeated ratings: error, first, last or mean.")
    ]
    min_rating: Annotated[
        float | None, _read(metavar="RATING", help="Ratings from here on become interactions.")
    ]


class LoadArguments(TableArguments, total=False):
    """All arguments of `load`."""

    time: Annotated[str | None, _read(metavar="COLUMN", help="Timestamps.")]
    no_time: Annotated[bool | None, _read("--no-time", help="Ignore timestamps.")]
    weighting: Annotated[
        str | None,
        _read(metavar="RULE", help="Weight of a count c: linear (c) or log (1 + ln c)."),
    ]
    item_features: Annotated[
        str | None, _read(metavar="FILE", help="Table of items: ids, titles, genres.")
    ]
    query: Annotated[str | None, _read(metavar="SQL", help="Rows to select from a database URL.")]
    cache: Annotated[
        bool | None, _read(" /--no-cache", help="Do not use the cached copy of the file.")
    ]


def load_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `load` that the options on the command line stand for."""
    names = LoadArguments.__annotations__
    arguments = {name: value for name, value in given(options).items() if name in names}
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

_model = partial(typer.Option, rich_help_panel="Model")
_train = partial(typer.Option, rich_help_panel="Training")
_output = partial(typer.Option, rich_help_panel="Output")

ModelFolder = Annotated[Path, _output("--out", metavar="FOLDER", help="Folder for the model.")]


class ArchitectureArguments(TypedDict, total=False):
    """Fields of the model."""

    ridge: Annotated[int | None, _model(metavar="N", help="Dimensions of the ridge component.")]
    samples: Annotated[int | None, _model(metavar="N", help="Gibbs samples of a factor analysis.")]
    hidden: Annotated[str | None, _model(metavar="N,...", help="Hidden units of each layer.")]
    factors: Annotated[int | None, _model(metavar="N", help="Rank of factored weights.")]
    ordinal_weight: Annotated[
        float | None, _model(metavar="W", help="Weight of the ordinal cost (0 to 1).")
    ]


class TrainingArguments(TypedDict, total=False):
    """Fields of `TrainingConfig`."""

    epochs: Annotated[int | None, _train(metavar="N", help="Maximum number of epochs.")]
    learning_rate: Annotated[float | None, _train(metavar="RATE", help="Step size of Adam.")]
    weight_decay: Annotated[float | None, _train(metavar="W", help="L2 penalty.")]
    batch_rows: Annotated[int | None, _train(metavar="N", help="Users or items in a batch.")]
    patience: Annotated[int | None, _train(metavar="N", help="Stop N epochs after the best one.")]
    refit: Annotated[
        bool | None, _train("--refit", help="Train again with the validation ratings.")
    ]
    seed: Annotated[int | None, _train(metavar="N", help="Random seed.")]


class RunArguments(ArchitectureArguments, TrainingArguments, total=False):
    """Everything that describes a model, its training and what is saved of it."""

    recipe: Annotated[str | None, _model(metavar="NAME", help="Name of a recipe, or a TOML file.")]
    learn_interactions: Annotated[bool | None, _model(help="Also model which items users choose.")]
    n_seeds: Annotated[
        int | None, _train(metavar="N", help="Average N models of successive seeds.")
    ]
    init_model: Annotated[
        Path | None, _train(metavar="MODEL", help="Start from the weights of a model.")
    ]
    n_threads: Annotated[int | None, _train(metavar="N", min=1, help="CPU threads.")]
    without_context: Annotated[
        bool | None, _output("--without-context", help="Do not store the ratings in the model.")
    ]
    keep_state: Annotated[
        bool | None, _output("--keep-state", help="Keep the training state of a finished run.")
    ]


Overwrite = Annotated[bool, _output("--overwrite", help="Replace the model in the folder.")]
SaveEvery = Annotated[float, _output(metavar="SECONDS", min=0, help="Time between saved states.")]
Resume = Annotated[bool, _output("--resume", help="Continue an interrupted run.")]

# -- users and rankings ---------------------------------------------------------------------------

HistoryFile = Annotated[
    Path | None,
    typer.Option("--history", metavar="FILE", help="CSV or Parquet with a new user's ratings."),
]
TypedHistory = Annotated[
    list[str] | None,
    typer.Argument(
        help='Ratings of a new user ("Alien=5"), or items alone.',
        metavar="ITEM=RATING",
        show_default=False,
    ),
]

_rank = partial(typer.Option, rich_help_panel="Ranking")
_filter = partial(typer.Option, rich_help_panel="Filters")


class RankingArguments(TypedDict, total=False):
    """Fields of `RankingOptions`."""

    rank_by: Annotated[
        str | None, _rank(metavar="CRITERION", help="interaction, prediction or threshold.")
    ]
    balance: Annotated[float | None, _rank(metavar="B", help="From likely (0) to liked (1) items.")]
    threshold: Annotated[
        float | None, _rank(metavar="RATING", help="Lowest rating of a liked item.")
    ]
    personalization: Annotated[
        float | None, _rank(metavar="W", help="From average (0) to personal (10).")
    ]
    diversity: Annotated[
        float | None, _rank(metavar="D", help="From best (0) to most different (1) items.")
    ]
    popularity_penalty: Annotated[
        float | None, _rank(metavar="P", help="From likely (0) to rare (1) items.")
    ]
    min_ratings: Annotated[int | None, _filter(metavar="N", help="Hide items with fewer ratings.")]
    genres: Annotated[
        list[str] | None,
        _filter("--genre", metavar="GENRE", help="Only items of this genre (repeatable)."),
    ]
    candidate_items: Annotated[
        list[str] | None,
        _filter("--candidate-item", metavar="ITEM", help="Only this item (repeatable)."),
    ]
    exclude_items: Annotated[
        list[str] | None,
        _filter("--exclude-item", metavar="ITEM", help="Not this item (repeatable)."),
    ]
    exclude_seen: Annotated[
        bool | None,
        _filter("--exclude-seen/--include-seen", help="Hide or show items the user has rated."),
    ]


# -- large jobs -----------------------------------------------------------------------------------

_job = partial(typer.Option, rich_help_panel="Large jobs")
Engine = Annotated[
    Literal["local", "ray", "spark"], _job(metavar="NAME", help="local, ray or spark.")
]
Workers = Annotated[
    int | None,
    _job(metavar="N", min=1, help="Parallel tasks.  [default: 1; clusters: all]"),
]
OverwriteJob = Annotated[bool, _job("--overwrite", help="Replace the output of another job.")]
