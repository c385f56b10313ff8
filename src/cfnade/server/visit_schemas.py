"""What a first visit to the page asks for: what to rate next, and the map."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfnade.server.schemas import ALIEN, ASKERS, Asker, Id, Ignored, Named, Said, strict
from cfnade.server.settings import ASKED, ITEMS


class AskIn(Asker):
    model_config = strict(*ASKERS, ratings=[ALIEN], n=10)

    n: Annotated[int, Field(strict=True, ge=1, le=ASKED)] = 10
    without: list[Id] | None = Field(
        None, max_length=ITEMS, fail_fast=True, description="Never ask about these: ids or titles."
    )


class AskedItem(Named):
    ratings: int
    reduction: float | None = Field(
        description="By how much the answer is expected to reduce what is unknown of the person; "
        "null: the model does not say, and the best known come first."
    )


class AskOut(Said):
    items: list[AskedItem] = Field(description="The best first; each counts on those before it.")
    unknown: float | None = Field(description="What is unknown of the person; of a stranger, 1.")
    ignored: Ignored


class Placed(Named):
    x: float
    y: float
    ratings: int
    genres: list[str]


class MapOut(Said):
    items: list[Placed] = Field(description="The best known; like ones are near each other.")
