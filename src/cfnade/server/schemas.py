"""Requests and responses. Limits that depend on the model are checked by its routes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from itertools import pairwise
from typing import Annotated, Any, Literal, NotRequired, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model, model_validator
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from cfnade.inference.ranking_options import RankBy, RankingOptions
from cfnade.server.settings import (
    MAX_GENRES,
    MAX_ITEMS,
    MAX_ITEMS_TO_RATE,
    MAX_N,
    MAX_NEW_ITEM_RATINGS,
    MAX_NEW_ITEMS,
    MAX_RATINGS,
    MAX_SEARCH_RESULTS,
    MAX_TEXT,
    MAX_TOKEN_SECONDS,
)

Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Id = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | Text
ItemPath = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
# Lists fail fast, so that the errors of a body do not grow with it.
Ids = Annotated[list[Id], Field(max_length=MAX_ITEMS, fail_fast=True)]
Genre = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"^[^|]+$")]
Decades = Annotated[
    list[Annotated[int, Field(ge=0, le=9990, multiple_of=10)]],
    Field(min_length=1, max_length=MAX_GENRES, fail_fast=True),
]

_EXAMPLE: list[JsonValue] = [
    {"title": "Alien (1979)", "rating": 5},
    {"title": "Notting Hill (1999)", "rating": 2},
]
_USER_FIELDS = ("user_id", "ratings", "interactions")


def _example(*one_of: str, **example: JsonValue) -> ConfigDict:
    """Return the config of an example, and of fields of which exactly one is needed."""
    extra: dict[str, JsonValue] = {"examples": [example]} if example else {}
    if one_of:
        extra["oneOf"] = [{"required": [name]} for name in one_of]
    return ConfigDict(json_schema_extra=extra)


class RequestModel(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryModel(BaseModel):
    """Parameters of an address, which are texts."""

    model_config = ConfigDict(extra="forbid")


class RatingEntry(TypedDict):
    """A rating on the model's scale, of an item given by its id or by its title."""

    # A dictionary and no object: a history of hundreds is read in half the time.
    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        **_example("item", "title"), extra="forbid", strict=True
    )

    item: NotRequired[Id]
    title: NotRequired[Text]
    rating: Number


class UserRatingEntry(RequestModel):
    """A rating of a new item by a user of the training data."""

    user_id: Id
    rating: Number


class NewItem(RequestModel):
    """An item that the model does not know, under any id or title."""

    item: Id
    ratings: list[UserRatingEntry] = Field(
        min_length=1, max_length=MAX_NEW_ITEM_RATINGS, fail_fast=True
    )


class UserQuery(RequestModel):
    """A user of the training data by id, or a new user by ratings or interactions."""

    user_id: Id | None = None
    ratings: list[RatingEntry] | None = Field(None, max_length=MAX_RATINGS, fail_fast=True)
    interactions: list[Id] | None = Field(
        None,
        max_length=MAX_RATINGS,
        fail_fast=True,
        description="Ids or titles, for a model without ratings.",
    )

    @model_validator(mode="after")
    def _check_user(self) -> Self:
        if [self.user_id, self.ratings, self.interactions].count(None) != 2:
            raise ValueError("give exactly one of user_id, ratings and interactions")
        return self


class PredictionRequest(UserQuery):
    model_config = _example(*_USER_FIELDS, ratings=_EXAMPLE, items=["Blade Runner (1982)"])

    items: Ids = Field(min_length=1, description="Ids or titles.")
    new_items: list[NewItem] = Field(
        [],
        max_length=MAX_NEW_ITEMS,
        fail_fast=True,
        description="Items that the model does not know; `items` may name them.",
    )
    timestamp: Annotated[int, Field(gt=-(2**52), lt=2**52)] | None = Field(
        None, description="Seconds since 1970, for a model that uses timestamps."
    )


def _ranking_fields() -> dict[str, Any]:
    """Return the fields of RankingOptions, with the limits of a request."""
    hints = get_type_hints(RankingOptions, include_extras=True)
    limited = hints | {
        "threshold": Number | None,
        "min_ratings": Annotated[int, Field(ge=0, le=2**31)] | None,
        "candidate_items": Annotated[Ids, Field(min_length=1)] | None,
        "exclude_items": Ids | None,
        "genres": Annotated[list[Text], Field(min_length=1, max_length=MAX_GENRES, fail_fast=True)]
        | None,
    }
    (definition,) = ast.parse(inspect.getsource(RankingOptions)).body
    assert isinstance(definition, ast.ClassDef)
    descriptions = {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }
    fields: dict[str, Any] = {
        field.name: (
            limited[field.name],
            Field(field.default, description=descriptions[field.name]),
        )
        for field in dataclasses.fields(RankingOptions)
    }
    return fields | {
        "n": (int, Field(20, ge=1, le=MAX_N)),
        "decades": (
            Decades | None,
            Field(None, description="Items whose title has a year of any of these, such as 1990."),
        ),
    }


RankingFields: Any = create_model("RankingFields", **_ranking_fields())
"""RankingOptions with the limits of a request, and decades."""


class RecommendationRequest(UserQuery, RankingFields):  # type: ignore[misc]
    model_config = _example(*_USER_FIELDS, ratings=_EXAMPLE, n=20, genres=["Horror", "Sci-Fi"])


class UserRankingQuery(QueryModel, RankingFields):  # type: ignore[misc]
    """Options of a ranking for a user of the event store."""


class ExplanationRequest(UserQuery):
    model_config = _example(*_USER_FIELDS, ratings=_EXAMPLE, item="Blade Runner (1982)")

    item: Id = Field(description="Id or title.")
    target: Literal["rating", "interaction"] | None = Field(
        None, description="What to explain; null: the rating, where the model predicts ratings."
    )


class ItemsToRateRequest(UserQuery):
    model_config = _example(*_USER_FIELDS, ratings=_EXAMPLE, n=10)

    n: int = Field(10, ge=1, le=MAX_ITEMS_TO_RATE)
    exclude_items: Ids | None = Field(None, description="Ids or titles not to suggest.")


class TitleEntry(RequestModel):
    title: Text
    year: Annotated[int, Field(ge=0, le=9999)] | None = None


class MatchRequest(RequestModel):
    model_config = _example(items=[{"title": "The Matrix", "year": 1999}])

    items: list[TitleEntry] = Field(max_length=MAX_ITEMS, fail_fast=True)


class ItemSearchQuery(QueryModel):
    q: str = Field("", max_length=MAX_TEXT, description="Part of a title; empty: the most rated.")
    limit: int = Field(10, ge=1, le=MAX_SEARCH_RESULTS)


class SimilarItemsQuery(QueryModel):
    n: int = Field(20, ge=1, le=MAX_N)


class ItemRequest(RequestModel):
    model_config = _example(title="Alien: Romulus (2024)", genres=["Horror"])

    title: Text | None = None
    genres: list[Genre] = Field([], max_length=MAX_GENRES, fail_fast=True)


class StoredRatingRequest(RequestModel):
    model_config = _example(rating=4)

    rating: Number | None = Field(
        None, description="On the model's scale; left out for a model without ratings."
    )


class StoredRatingsRequest(RequestModel):
    model_config = _example(ratings=_EXAMPLE)

    ratings: list[RatingEntry] = Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)


class TokenRequest(RequestModel):
    model_config = _example(expires_in=900)

    expires_in: int = Field(900, ge=1, le=MAX_TOKEN_SECONDS, description="Seconds.")


# -- responses -----------------------------------------------------------------------------------


class Item(BaseModel):
    item: int | str
    title: str | None


class CatalogItem(Item):
    n_item_ratings: int = Field(description="Training ratings of the item.")


class GivenItems(BaseModel):
    """What a request names that the model does not know."""

    unknown_items: list[int | str]
    ignored: list[RatingEntry | int | str] = Field(
        description="Ratings or interactions with items that the model does not know."
    )


class Prediction(CatalogItem):
    """Null in a ranking by a model without ratings."""

    prediction: float | None
    std: float | None
    median: float | None
    interval: tuple[float, float] | None = Field(description="At least 80 % of the probability.")
    probabilities: list[float] | None = Field(description="One for each value of the scale.")
    baseline: list[float] | None = Field(
        description="The same for all users: how the item was rated; null for a new item."
    )


class PredictionResponse(GivenItems):
    predictions: list[Prediction]


class RecommendedItem(Prediction):
    rank: int
    score: float = Field(description="What the list is sorted by.")
    interaction_probability: float | None = Field(
        description="The probability to be the next interaction, of a ranking by interaction."
    )
    genres: list[str]


class Ranking(BaseModel):
    items: list[RecommendedItem]
    n_hidden_items: int = Field(description="Items that min_ratings hides.")
    min_ratings: int


class RecommendationResponse(Ranking, GivenItems):
    pass


class UserRecommendationResponse(Ranking):
    n_user_ratings: int = Field(description="Stored ratings that the list is computed from.")
    unknown_items: list[int | str]


class RatingContribution(Item):
    rating: float
    prediction_without: float = Field(description="The prediction without this rating.")
    difference: float


class LevelContribution(BaseModel):
    rating: float
    count: int = Field(description="Users who rated the item so.")
    prediction_without: float
    difference: float


class InteractionContribution(Item):
    rating: float | None
    prediction_without: float = Field(description="The probability without this interaction.")
    lift: float = Field(description="How many times more probable it makes the item.")


class ExplanationResponse(Item):
    prediction: Prediction | None = Field(description="Null if the interaction is explained.")
    interaction_probability: float | None
    contributions: (
        list[RatingContribution] | list[LevelContribution] | list[InteractionContribution]
    ) = Field(description="The strongest first.")
    ignored: list[RatingEntry | int | str]


class ItemToRate(CatalogItem):
    uncertainty_reduction: float | None = Field(
        description="The expected reduction; null: not known, and the most rated come first."
    )


class ItemsToRateResponse(GivenItems):
    items: list[ItemToRate] = Field(description="The best first; each counts on those before it.")
    uncertainty: float | None = Field(description="About the user; 1 for a user without ratings.")


class ItemSearchResponse(BaseModel):
    items: list[CatalogItem]
    query: str


class MatchResponse(BaseModel):
    matches: list[Item | None] = Field(description="In the order of the request; null if unsure.")


class SimilarItem(CatalogItem):
    rank: int
    similarity: float


class SimilarItemsResponse(Item):
    metric: Literal["lift", "cosine"] = Field(
        description="Lift: how many times more probable the item is after an interaction with "
        "this one; cosine: of the items' vectors."
    )
    items: list[SimilarItem]


class RegisteredItem(Item):
    genres: list[str]
    in_model: bool


class MapItem(CatalogItem):
    x: float
    y: float
    genres: list[str]


class ItemMapResponse(BaseModel):
    items: list[MapItem] = Field(description="The most rated; similar ones are close together.")


class Capabilities(BaseModel):
    ratings: bool = Field(description="Predicts ratings.")
    interactions: bool = Field(description="Predicts interactions.")
    new_users: bool = Field(description="Accepts the ratings or interactions of new users.")
    recommendations: bool = Field(description="Ranks items; a model of timestamps does not.")
    titles: bool
    stored_ratings: bool = Field(description="The service stores ratings at /users.")
    tokens: bool = Field(description="Users need tokens.")


class ModelLimits(BaseModel):
    ratings: int
    n: int
    items: int
    body_bytes: int


class Decade(BaseModel):
    decade: int
    n_items: int


class SampleRating(Item):
    rating: float | None


class SampleProfile(BaseModel):
    name: str
    ratings: list[SampleRating]


class ModelResponse(BaseModel):
    name: str
    version: str = Field(description="Of cfnade.")
    fingerprint: str
    loaded_at: str
    side: str
    capabilities: Capabilities
    scale: list[float] = Field(description="Empty without ratings.")
    n_items: int
    min_ratings: int
    limits: ModelLimits
    rank_by: list[RankBy] = Field(description="Criteria of rankings, the default one first.")
    genres: list[str]
    decades: list[Decade]
    item_name: str = Field(description="What one item is called, such as film.")
    sample_profiles: list[SampleProfile]


class HealthResponse(BaseModel):
    status: Literal["ok"]


class StoredRatingResponse(Item):
    rating: float | None
    timestamp: int = Field(description="Seconds since 1970.")


class ChangedRatingResponse(StoredRatingResponse):
    changed: bool = Field(description="Whether this request changed anything.")
    in_model: bool = Field(description="Whether the model knows the item.")


class ChangedRatingsResponse(BaseModel):
    ratings: list[ChangedRatingResponse]
    unknown_items: list[int | str]


class UserRatingsResponse(BaseModel):
    user_id: str
    in_training_data: bool
    ratings: list[StoredRatingResponse] = Field(description="The current ones, oldest first.")


class TokenResponse(BaseModel):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: int
