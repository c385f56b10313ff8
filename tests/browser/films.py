"""A small catalogue of two kinds of films, people who love one of them, and their models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from tests.support.raw_tables import raw_table

from cfnade import checkpoint
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.scale import parse_scale
from cfnade.data.splits import split
from cfnade.data.validate import build
from cfnade.training.implicit import implicit_plan
from cfnade.training.plan import TrainingPlan, plan_side
from cfnade.training.train import train

SPACE = [
    "Matrix, The (1999)",
    "Alien (1979)",
    "Blade Runner (1982)",
    "2001: A Space Odyssey (1968)",
    "Star Wars: Episode IV - A New Hope (1977)",
    "Terminator, The (1984)",
    "Solaris (Solyaris) (1972)",
    "Close Encounters of the Third Kind (1977)",
    "Brazil (1985)",
    "Twelve Monkeys (1995)",
    "Metropolis (1926)",
    "Fifth Element, The (1997)",
]
LOVE = [
    "Amélie (2001)",
    "Notting Hill (1999)",
    'Good Bye, "Miss" Daisy (1991)',
    "Casablanca (1942)",
    "When Harry Met Sally... (1989)",
    "Pretty Woman (1990)",
    "Sleepless in Seattle (1993)",
    "Roman Holiday (1953)",
    "Annie Hall (1977)",
    "Four Weddings and a Funeral (1994)",
    "Before Sunrise (1995)",
    "Bringing Up Baby (1938)",
]
TITLES = SPACE + LOVE
ITEM = {title: 11 * place + 11 for place, title in enumerate(TITLES)}
"""Ids with gaps: a place in a list is not an id."""
GENRES = {ITEM[title]: "Sci-Fi" for title in SPACE} | {ITEM[title]: "Romance" for title in LOVE}
GENRES[ITEM["Brazil (1985)"]] = "Comedy|Sci-Fi"
PEOPLE = 120


def ratings(
    scale: str, *, ids_are_titles: bool = False, hearts: bool = False, bare: bool = False
) -> Dataset:
    """Each person loves one kind and dislikes the other, with some noise.

    Where there are no ratings they pick what they love, and little else. Bare ones have no titles.
    """
    rng = np.random.default_rng(8)
    likes_space = rng.random(PEOPLE) < 0.5  # (people,)
    is_space = np.arange(len(TITLES)) < len(SPACE)  # (films,)
    liking = np.where(likes_space[:, None] == is_space, 0.85, 0.2)  # (people, films), 0 to 1
    liking = liking + rng.normal(0, 0.15, liking.shape)
    seen = rng.random(liking.shape) < (np.where(liking > 0.5, 0.6, 0.05) if hearts else 0.6)
    values = parse_scale(scale).array()
    levels = np.clip(np.rint(liking * (len(values) - 1)), 0, len(values) - 1).astype(int)
    people, films = np.nonzero(seen)
    raws = np.array([*ITEM.values()])[films]
    columns = raw_table(
        users=people + 1,
        items=pl.Series([TITLES[film] for film in films]) if ids_are_titles else raws,
        ratings=values[levels[seen]],
        times=rng.integers(900_000_000, 1_000_000_000, len(films)),
        titles={} if ids_are_titles or bare else {item: title for title, item in ITEM.items()},
        genres=GENRES if hearts else {},
    )
    if hearts:
        return build(columns, LoadOptions(implicit=True))
    return build(columns, LoadOptions(scale=scale))


def trained(
    folder: Path,
    scale: str = "1-5",
    side: str = "user",
    *,
    ids_are_titles: bool = False,
    time: bool = False,
) -> Path:
    settings = TrainingConfig(epochs=15, batch_rows=16, learning_rate=0.01, seed=1)
    data = split(ratings(scale, ids_are_titles=ids_are_titles), "paper:0")
    architecture = {"hidden": (16,), "time": time, "ridge": 4 if side == "user" else 0}
    done = train(data, plan_side(side, architecture, settings))
    checkpoint.save(done.model, folder)
    return folder


def with_picks(folder: Path) -> Path:
    """A model of stars that also knows what people pick, of films with genres."""
    settings = TrainingConfig(epochs=15, batch_rows=16, learning_rate=0.01, seed=1)
    rated = ratings("1-5")
    named = np.array([GENRES[item] for item in rated.item_ids.tolist()], object)
    data = split(rated.replace(genres=named), "paper:0")
    plan = implicit_plan(data.train, time_budget=0.02)
    architecture = {"hidden": (16,), "ridge": 4}
    done = train(data, plan_side("user", architecture, settings, implicit=plan))
    checkpoint.save(done.model, folder)
    return folder


def without_stars(folder: Path) -> Path:
    """A model of what people pick, and nothing else."""
    data = split(ratings("1-5", hearts=True), "paper:0")
    checkpoint.save(
        train(data, TrainingPlan(implicit=implicit_plan(data.train, time_budget=0.02))).model,
        folder,
    )
    return folder
