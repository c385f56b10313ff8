"""Write synthetic ratings in the shape of MovieLens 10M: python -m experiments.shape_ml10m FOLDER

They show that the recipe runs from file to score, with its time and memory. Half stars, 69,878
users, 10,677 items, ten million lines of `user::item::rating::seconds`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from cfnade.data.synthetic import synthetic_like


def write_like_ml10m(folder: Path, seed: int = 1, scale_down: float = 1) -> Path:
    """Write ratings.dat and movies.dat into the folder."""
    ratings = synthetic_like("ml-10m", seed, scale_down, times=True).ratings
    folder.mkdir(parents=True, exist_ok=True)
    cells = pl.DataFrame(
        {
            "user": ratings.user_ids[ratings.users],
            "item": ratings.item_ids[ratings.items],
            "rating": ratings.values,
            "time": ratings.times,
        }
    )
    lines = cells.select(pl.concat_str(pl.all(), separator="::").alias("line"))
    lines.write_csv(folder / "ratings.dat", include_header=False, quote_style="never")
    titles = [f"{item}::Film {item} (2000)::Drama" for item in ratings.item_ids.tolist()]
    (folder / "movies.dat").write_text("\n".join(titles) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write ratings in the shape of MovieLens 10M.")
    parser.add_argument("folder", type=Path)
    print(write_like_ml10m(parser.parse_args().folder))
