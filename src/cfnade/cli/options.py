"""Arguments and options that several commands share.

An option has the name of the Python parameter, with hyphens. A repeatable option is in the
singular.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cfnade.exceptions import DataError

SOURCES = "File, folder, data set (ml-1m), URL, store:URL or - (stdin)."
_SEED_MAX = 2**63 - 1

Model = Annotated[Path, typer.Argument(help="Folder of a saved model.", metavar="MODEL")]
Data = Annotated[str, typer.Argument(help=SOURCES, metavar="DATA")]
OptionalData = Annotated[
    str | None, typer.Argument(help=SOURCES, metavar="DATA", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Threads = Annotated[
    int | None,
    typer.Option("--n-threads", metavar="N", min=1, help="CPU threads.  [default: all cores]"),
]


def given_options(ctx: typer.Context, names: Collection[str]) -> dict[str, Any]:
    """Return the values of those options that are on the command line."""
    return {name: ctx.params[name] for name in names if name in ctx.params and is_given(ctx, name)}


def is_given(ctx: typer.Context, name: str) -> bool:
    """Return whether a parameter is on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


# -- reading data ---------------------------------------------------------------------------------

_read = partial(
    typer.Option, rich_help_panel="Reading the data (recognized if not given)", show_default=False
)
UserColumn = Annotated[
    str | None, _read("--user", metavar="COLUMN", help="Users: name or position (from 0).")
]
ItemColumn = Annotated[str | None, _read("--item", metavar="COLUMN", help="Items.")]
RatingColumn = Annotated[str | None, _read("--rating", metavar="COLUMN", help="Ratings.")]
TimeColumn = Annotated[str | None, _read("--time", metavar="COLUMN", help="Timestamps.")]
NoTime = Annotated[bool, _read("--no-time", help="Ignore timestamps.")]
WeightColumn = Annotated[
    str | None, _read("--weight", metavar="COLUMN", help="Counts of interactions.")
]
NoWeight = Annotated[bool, _read("--no-weight", help="Ignore counts.")]
Implicit = Annotated[
    bool, _read("--implicit", help="Lines are interactions (clicks), not ratings.")
]
Separator = Annotated[
    str | None, _read("--separator", metavar="TEXT", help='Text between columns, such as ";".')
]
Header = Annotated[
    bool | None, _read("--header/--no-header", help="The first line names the columns.")
]
Encoding = Annotated[
    str | None, _read("--encoding", metavar="NAME", help="Text encoding, such as utf-16.")
]
SkipBadLines = Annotated[
    bool, _read("--skip-bad-lines", help="Skip and report lines that cannot be read.")
]
ItemFeatures = Annotated[
    str | None,
    _read("--item-features", metavar="FILE", help="Table of items: ids, titles, genres."),
]
Query = Annotated[
    str | None, _read("--query", metavar="SQL", help="Rows to select from a database URL.")
]
RatingScale = Annotated[
    str | None, _read("--scale", metavar="SCALE", help='Rating scale: "1-5" or "0.5-5/0.5".')
]
Bins = Annotated[
    int | None,
    _read("--bins", metavar="N", min=2, max=255, help="Bin continuous ratings into N levels."),
]
Duplicates = Annotated[
    Literal["error", "first", "last", "mean"] | None,
    _read("--duplicates", metavar="RULE", help="Repeated ratings: error, first, last or mean."),
]
MinRating = Annotated[
    float | None,
    _read("--min-rating", metavar="RATING", help="Ratings from here on become interactions."),
]
Weighting = Annotated[
    Literal["linear", "log"] | None,
    _read("--weighting", metavar="RULE", help="Weight of a count c: linear (c) or log (1 + ln c)."),
]
Cache = Annotated[bool, _read(" /--no-cache", help="Do not use the cached copy of the file.")]

_COLUMNS = ("user", "item", "rating", "time", "weight")
READ_OPTIONS = (
    *_COLUMNS,
    *("implicit", "separator", "header", "encoding", "skip_bad_lines", "item_features", "query"),
    *("scale", "bins", "duplicates", "min_rating", "weighting", "cache"),
)
"""The arguments of `load`, in the order of the help."""


def load_arguments(ctx: typer.Context) -> dict[str, Any]:
    """Return the arguments of `load` that the options on the command line stand for."""
    arguments = given_options(ctx, READ_OPTIONS)
    for name in ("time", "weight"):
        if ctx.params.get(f"no_{name}"):
            if name in arguments:
                raise DataError(f"--{name} and --no-{name} exclude each other; give one of them")
            arguments[name] = False
    for name in _COLUMNS:
        if str(arguments.get(name, "")).isdecimal():
            arguments[name] = int(arguments[name])
    return arguments


# -- training -------------------------------------------------------------------------------------

_model = partial(typer.Option, rich_help_panel="Model", show_default=False)
_train = partial(typer.Option, rich_help_panel="Training", show_default=False)
_output = partial(typer.Option, rich_help_panel="Output", show_default=False)

RecipeName = Annotated[
    str | None, _model("--recipe", metavar="NAME", help="Name of a recipe, or a TOML file.")
]
Side = Annotated[
    str | None,
    _model("--side", metavar="SIDE", help="user, item, both or auto.  [default: auto]"),
]
LearnInteractions = Annotated[
    bool | None,
    _model(
        "--learn-interactions/--no-learn-interactions",
        help="Also model which items users choose.",
    ),
]
TimeBudget = Annotated[
    float | None,
    _model("--time-budget", metavar="MINUTES", help="Time for side auto.  [default: up to 40 s]"),
]
Ridge = Annotated[
    int | None, _model("--ridge", metavar="N", min=0, help="Dimensions of the ridge component.")
]
Samples = Annotated[
    int | None,
    _model("--samples", metavar="N", min=1, help="Gibbs samples of a factor analysis."),
]
Hidden = Annotated[
    str | None, _model("--hidden", metavar="N,...", help="Hidden units of each layer.")
]
Factors = Annotated[
    int | None, _model("--factors", metavar="N", min=1, help="Rank of factored weights.")
]
UseTimestamps = Annotated[
    bool, _model("--use-timestamps", help="Model effects of time; needs side both.")
]
OrdinalWeight = Annotated[
    float | None,
    _model("--ordinal-weight", metavar="W", min=0, max=1, help="Weight of the ordinal cost."),
]
SplitName = Annotated[
    str | None,
    _train("--split", metavar="NAME", help="How to split the data, such as paper:0 or all."),
]
Epochs = Annotated[
    int | None, _train("--epochs", metavar="N", min=0, help="Maximum number of epochs.")
]
LearningRate = Annotated[
    float | None, _train("--learning-rate", metavar="RATE", help="Step size of Adam.")
]
WeightDecay = Annotated[
    float | None, _train("--weight-decay", metavar="W", min=0, help="L2 penalty.")
]
BatchRows = Annotated[
    int | None, _train("--batch-rows", metavar="N", min=1, help="Users or items in a batch.")
]
Patience = Annotated[
    int | None,
    _train("--patience", metavar="N", min=1, help="Stop N epochs after the best one."),
]
Refit = Annotated[bool, _train("--refit", help="Train again with the validation ratings.")]
Seed = Annotated[
    int | None, _train("--seed", metavar="N", min=0, max=_SEED_MAX, help="Random seed.")
]
Seeds = Annotated[
    int | None,
    _train("--n-seeds", metavar="N", min=1, help="Average N models of successive seeds."),
]
Device = Annotated[
    str | None, _train("--device", metavar="NAME", help="cpu, or a torch device.  [default: cpu]")
]
TrainThreads = Annotated[int | None, _train("--n-threads", metavar="N", min=1, help="CPU threads.")]
InitModel = Annotated[
    Path | None, _train("--init-model", metavar="MODEL", help="Start from the weights of a model.")
]
Resume = Annotated[bool, _train("--resume", help="Continue an interrupted run.")]

ModelFolder = Annotated[
    Path, _output("--out", metavar="FOLDER", help="Folder to write the model to.")
]
Overwrite = Annotated[bool, _output("--overwrite", help="Replace the model in the folder.")]
SaveEvery = Annotated[
    float,
    _output(
        "--save-every", metavar="SECONDS", min=0, help="Time between saved states.  [default: 30]"
    ),
]
WithoutContext = Annotated[
    bool, _output("--without-context", help="Do not store the ratings in the model.")
]
KeepState = Annotated[
    bool, _output("--keep-state", help="Keep the training state of a finished run.")
]

ARCHITECTURE_OPTIONS = (
    *("ridge", "samples", "hidden", "factors", "use_timestamps", "ordinal_weight"),
)
TRAINING_OPTIONS = (
    *("epochs", "learning_rate", "weight_decay", "batch_rows", "patience", "refit", "seed"),
)
RUN_OPTIONS = (
    *("data", "recipe", "side", "split", "learn_interactions", "time_budget", "n_seeds"),
    *("device", "n_threads", "init_model", "without_context", "keep_state"),
)
"""Options of a training run, apart from those of the model and of its training."""

# -- users and rankings ---------------------------------------------------------------------------

OneUser = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="A user of the training data.")
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="ID", help="A user of the training data (repeatable)."),
]
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

_rank = partial(typer.Option, rich_help_panel="Ranking", show_default=False)
_filter = partial(typer.Option, rich_help_panel="Filters", show_default=False)
RankBy = Annotated[
    Literal["interaction", "prediction", "threshold"] | None,
    _rank("--rank-by", metavar="CRITERION", help="interaction, prediction or threshold."),
]
Balance = Annotated[
    float | None,
    _rank("--balance", metavar="B", min=0, max=1, help="From likely (0) to liked (1) items."),
]
Threshold = Annotated[
    float | None,
    _rank("--threshold", metavar="RATING", help="Least rating of a liked item."),
]
Personalization = Annotated[
    float | None,
    _rank("--personalization", metavar="W", min=0, max=10, help="From average (0) to personal."),
]
MinRatings = Annotated[
    int | None, _filter("--min-ratings", metavar="N", min=0, help="Hide items with fewer ratings.")
]
Genres = Annotated[
    list[str] | None,
    _filter("--genre", metavar="GENRE", help="Only items of this genre (repeatable)."),
]
CandidateItems = Annotated[
    list[str] | None,
    _filter("--candidate-item", metavar="ITEM", help="Only this item (repeatable)."),
]
ExcludeItems = Annotated[
    list[str] | None,
    _filter("--exclude-item", metavar="ITEM", help="Not this item (repeatable)."),
]
ExcludeSeen = Annotated[
    bool, _filter("--exclude-seen/--include-seen", help="Hide or show items the user has rated.")
]
Diversity = Annotated[
    float | None,
    _rank("--diversity", metavar="D", min=0, max=1, help="How different items should be."),
]
PopularityPenalty = Annotated[
    float | None,
    _rank("--popularity-penalty", metavar="P", min=0, max=1, help="How much to favor rare items."),
]
ItemCount = Annotated[int, typer.Option("-n", metavar="N", min=1, help="Number of items.")]

RANKING_OPTIONS = (
    *("rank_by", "balance", "threshold", "personalization", "min_ratings", "genres"),
    *("candidate_items", "exclude_items", "exclude_seen", "diversity", "popularity_penalty"),
)

# -- large jobs -----------------------------------------------------------------------------------

_engine = partial(typer.Option, rich_help_panel="Large jobs", show_default=False)
Engine = Annotated[
    Literal["local", "ray", "spark"],
    _engine("--engine", metavar="NAME", help="local, ray or spark.  [default: local]"),
]
Workers = Annotated[
    int | None,
    _engine("--workers", metavar="N", min=1, help="Parallel tasks.  [default: 1; clusters: all]"),
]
OverwriteJob = Annotated[bool, _engine("--overwrite", help="Replace the output of another job.")]
