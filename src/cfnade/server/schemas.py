"""What comes in and goes out. Bounds that belong to the model at hand are checked by it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from cfnade.inference.ranking_options import RankBy
from cfnade.server.settings import (
    BEST,
    GENRES,
    HISTORY,
    ITEMS,
    NEW_ITEM_RATINGS,
    NEW_ITEMS,
    SEARCHED,
    TEXT,
)

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=TEXT)]
Whole = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
Id = Whole | Text
Share = Annotated[float, Field(strict=True, ge=0, le=1)]

ALIEN: dict[str, JsonValue] = {"title": "Alien (1979)", "rating": 5}
_HILL: dict[str, JsonValue] = {"title": "Notting Hill (1999)", "rating": 2}
ASKERS = ("ratings", "picked", "user")


def strict(*either: str, **example: JsonValue) -> ConfigDict:
    """Refuse misspelt names; exactly one of `either` is needed; an example to show."""
    extra: dict[str, JsonValue] = {"examples": [example]} if example else {}
    if either:
        extra["oneOf"] = [{"required": [name]} for name in either]
    return ConfigDict(extra="forbid", json_schema_extra=extra)


class Given(BaseModel):
    """What clients send. Lists fail fast, so that the errors of a body do not grow with it."""

    model_config = strict()


class Said(BaseModel):
    """What the service answers."""


class Rated(TypedDict):
    """A rating on the model's scale, of an item given by its id or by its title."""

    # A dictionary and no object: a history of hundreds is read in half the time.
    __pydantic_config__ = strict("item", "title")  # type: ignore[misc]

    item: NotRequired[Id]
    title: NotRequired[Text]
    rating: Number


class RatedBy(Given):
    """What a user of the training data said of a new item."""

    user: Id
    rating: Number


class NewItem(Given):
    """An item that the model has never met, under a name or id of its own."""

    item: Id
    ratings: list[RatedBy] = Field(min_length=1, max_length=NEW_ITEM_RATINGS, fail_fast=True)


class Asker(Given):
    """Who asks: a new person by what they rated or picked, or a user of the training data by id."""

    ratings: list[Rated] | None = Field(None, max_length=HISTORY, fail_fast=True)
    picked: list[Id] | None = Field(
        None,
        max_length=HISTORY,
        fail_fast=True,
        description="Ids or titles: for a model without ratings, in their place.",
    )
    user: Id | None = None


class PredictIn(Asker):
    model_config = strict(*ASKERS, ratings=[ALIEN, _HILL], items=["Blade Runner (1982)"])

    items: list[Id] = Field(
        min_length=1, max_length=ITEMS, fail_fast=True, description="Ids or titles."
    )
    new_items: list[NewItem] = Field(
        [],
        max_length=NEW_ITEMS,
        fail_fast=True,
        description="Items the model never met; items may name them.",
    )
    time: Annotated[int, Field(strict=True, gt=-(2**52), lt=2**52)] | None = Field(
        None, description="When, in seconds since 1970: for a model that knows time."
    )


class RecommendIn(Asker):
    model_config = strict(*ASKERS, ratings=[ALIEN, _HILL], n=20, genres=["Horror", "Sci-Fi"])

    n: Annotated[int, Field(strict=True, ge=1, le=BEST)] = 20
    rank: RankBy | None = Field(None, description="What best is; null: as GET /model says in rank.")
    taste: Share | None = Field(
        None,
        description="For interaction: 0 what people like you pick, 0.5 and like, 1 rate best.",
    )
    own: Annotated[float, Field(strict=True, ge=0, le=10)] | None = Field(
        None,
        description="For prediction: people's average plus so many times what is special to you.",
    )
    threshold: Number | None = Field(
        None, description="For threshold and interaction: what counts is P(rating ≥ this)."
    )
    exclude_seen: Annotated[bool, Field(strict=True)] = True
    min_ratings: Annotated[int, Field(strict=True, ge=0, le=2**31)] | None = Field(
        None, description="Hide items with fewer training ratings; null: the model's own rule."
    )
    items: list[Id] | None = Field(
        None,
        min_length=1,
        max_length=ITEMS,
        fail_fast=True,
        description="List these alone: ids or titles.",
    )
    without: list[Id] | None = Field(
        None, max_length=ITEMS, fail_fast=True, description="Never list these: ids or titles."
    )
    genres: list[Text] | None = Field(
        None,
        min_length=1,
        max_length=GENRES,
        fail_fast=True,
        description="List items of any of these genres.",
    )
    decades: list[Annotated[int, Field(strict=True, ge=0, le=9990, multiple_of=10)]] | None = Field(
        None,
        min_length=1,
        max_length=GENRES,
        fail_fast=True,
        description="List items whose title has a year of any of these decades, such as 1990.",
    )
    diversity: Share = Field(0.0, description="How much unlike each other the items should be.")


class ExplainIn(Asker):
    model_config = strict(*ASKERS, ratings=[ALIEN, _HILL], item="Blade Runner (1982)")

    item: Id = Field(description="Id or title.")
    of: Literal["rating", "pick"] | None = Field(
        None, description="What to explain; null: the rating, where the model knows ratings."
    )


class SimilarIn(Given):
    model_config = strict(item="Blade Runner (1982)")

    item: Id = Field(description="Id or title.")
    n: Annotated[int, Field(strict=True, ge=1, le=BEST)] = 20


class Film(Given):
    title: Text
    year: Annotated[int, Field(strict=True, ge=0, le=9999)] | None = None


class MatchIn(Given):
    model_config = strict(films=[{"title": "The Matrix", "year": 1999}])

    films: list[Film] = Field(max_length=ITEMS, fail_fast=True)


class ItemsQuery(Given):
    q: str = Field("", max_length=TEXT, description="Part of a title; empty: the most rated.")
    limit: int = Field(10, ge=1, le=SEARCHED)


# -- answers -------------------------------------------------------------------------------------


class Named(Said):
    item: int | str
    title: str | None


Ignored = Annotated[
    list[Rated | int | str], Field(description="Of ratings or picked: what is not known.")
]


class Distribution(Named):
    expected: float
    std: float
    median: float
    interval: tuple[float, float] = Field(description="At least 80 % of the probability.")
    probabilities: list[float] = Field(description="One for each value of the scale.")
    usual: list[float] | None = Field(
        description="The same for people in general: how the item was rated; null of a new item."
    )
    ratings: int = Field(description="How many training ratings the item has.")


class Listed(Named):
    """With null for what the model does not know: pick, or all that is said of the rating."""

    rank: int
    score: float = Field(description="What the list is sorted by.")
    pick: float | None = Field(description="The chance to be picked next, by picked.")
    expected: float | None
    std: float | None
    median: float | None
    interval: tuple[float, float] | None
    probabilities: list[float] | None
    usual: list[float] | None
    ratings: int = Field(description="How many people of the training data took it up.")
    genres: list[str]


class PredictOut(Said):
    predictions: list[Distribution]
    unknown: list[int | str] = Field(description="Items asked for that the model does not know.")
    ignored: Ignored


class RecommendOut(Said):
    items: list[Listed]
    hidden: int = Field(description="Unseen items that min_ratings hides.")
    min_ratings: int
    unknown: list[int | str] = Field(description="Of items and without: what is not known.")
    ignored: Ignored


class MovedBy(Named):
    rating: float
    without: float = Field(description="The expected rating if this one were not known.")
    change: float


class MovedByLevel(Said):
    rating: float
    count: int = Field(description="How many others rated the item so.")
    without: float
    change: float


class MovedPick(Named):
    rating: float | None
    without: float = Field(description="The chance to be picked if this were not known.")
    times: float = Field(description="How many times likelier it made the item.")


class ExplainOut(Named):
    prediction: Distribution | None = Field(description="null if the pick is explained.")
    pick: float | None = Field(description="The chance to be picked next, if that is explained.")
    moved: list[MovedBy] | list[MovedByLevel] | list[MovedPick] = Field(
        description="The strongest first."
    )
    ignored: Ignored


class Alike(Named):
    rank: int
    similarity: float
    ratings: int


class SimilarOut(Named):
    by: Literal["times", "cosine"] = Field(
        description="What similarity is: how many times likelier who picked the item picks this, "
        "or the cosine of vectors."
    )
    items: list[Alike]


class Found(Named):
    ratings: int


class ItemsOut(Said):
    items: list[Found]
    query: str


class MatchOut(Said):
    matches: list[Named | None] = Field(description="In the order asked; null: no sure match.")


class HealthOut(Said):
    status: Literal["ok"]


class ModelVersion(Said):
    name: str
    side: str
    levels: int
    items: int
    fingerprint: str
    loaded_at: str


class VersionOut(Said):
    cfnade: str
    python: str
    model: ModelVersion


class SampleRating(Named):
    rating: float | None


class Sample(Said):
    name: str
    ratings: list[SampleRating]


class Decade(Said):
    decade: int
    items: int


class LimitsOut(Said):
    history: int
    n: int
    items: int
    body_bytes: int


class ModelOut(Said):
    name: str
    side: str = Field(description="Whose ratings it reads, such as user, item or both.")
    ratings: bool = Field(
        description="Whether it predicts ratings; else people are given as picked."
    )
    picks: bool = Field(description="Whether it knows what people pick.")
    scale: list[float] = Field(description="Empty without ratings.")
    items: int
    titles: bool
    new_people: bool = Field(description="Whether it takes ratings of people it never saw.")
    lists: bool = Field(description="Whether it makes lists; a model that knows time does not.")
    people: bool = Field(description="Whether the service keeps what people say, at /people.")
    min_ratings: int
    limits: LimitsOut
    ranks: list[RankBy]
    rank: RankBy = Field(description="The rank of lists that ask for none.")
    genres: list[str] = Field(description="Those that lists may ask for.")
    decades: list[Decade] = Field(description="Those that lists may ask for, the latest first.")
    noun: str = Field(description="What one item is called, such as film.")
    samples: list[Sample]


class ProblemOut(Said):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    where: str | None = None
