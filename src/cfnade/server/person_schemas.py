"""What comes in and goes out at the addresses of people."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfnade.inference.ranking_options import RankBy
from cfnade.server.auth import MOST_SECONDS
from cfnade.server.schemas import ALIEN, Given, Listed, Named, Number, Rated, Said, Text, strict
from cfnade.server.settings import BEST, GENRES, ITEMS

PersonId = Annotated[str, Field(min_length=1, max_length=300, description="Any id, as text.")]
ItemId = Annotated[str, Field(min_length=1, max_length=300, description="An id or a title.")]


class RatingIn(Given):
    model_config = strict(rating=4)

    rating: Number | None = Field(
        None, description="On the model's scale; left out for a model without ratings."
    )


class RatingsIn(Given):
    model_config = strict(ratings=[ALIEN])

    ratings: list[Rated] = Field(min_length=1, max_length=ITEMS, fail_fast=True)


class TokenIn(Given):
    model_config = strict(seconds=900)

    seconds: Annotated[int, Field(strict=True, ge=1, le=MOST_SECONDS)] = 900


class PersonListQuery(Given):
    n: int = Field(20, ge=1, le=BEST)
    rank: RankBy | None = None
    taste: float | None = Field(None, ge=0, le=1)
    min_ratings: int | None = Field(None, ge=0, le=2**31)
    genres: list[Text] | None = Field(None, max_length=GENRES, fail_fast=True)
    diversity: float = Field(0.0, ge=0, le=1)


class KeptOut(Named):
    rating: float | None
    at: int = Field(description="Seconds since 1970.")


class RatingOut(KeptOut):
    new: bool = Field(description="Whether this request changed anything.")
    known: bool = Field(description="Whether the model knows the item already.")


class RatingsOut(Said):
    ratings: list[RatingOut]
    unknown: list[Rated] = Field(description="What was not kept: its item is not known.")


class ForgottenOut(Said):
    person: str
    events: int = Field(description="How many were removed.")
    wiped: bool = Field(description="Whether the database's files hold none of their bytes.")


class PersonOut(Said):
    person: str
    known: bool = Field(description="Whether the model was trained on them.")
    ratings: list[KeptOut] = Field(description="What counts now, the earliest first.")


class PersonListOut(Said):
    items: list[Listed]
    hidden: int = Field(description="Unseen items that min_ratings hides.")
    min_ratings: int
    used: int = Field(description="How many of the person's ratings the list is made from.")


class TokenOut(Said):
    token: str
    seconds: int
