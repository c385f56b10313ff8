"""From a table of your own, with your own ids and scale, to predictions as a table.

python examples/own_ratings.py                # a made-up table of books
python examples/own_ratings.py ratings.csv    # yours: CSV, Parquet, … (see docs/how-to/own-data.md)
"""

from __future__ import annotations

import sys

import polars as pl

import cfnade


def made_up_table() -> pl.DataFrame:
    """What a shop may have: text ids, half stars, its own column names. pandas works as well."""
    drawn = cfnade.synthetic(300, 80, 9_000, seed=2, factors=2, scale="0.5-5/0.5").ratings
    return pl.DataFrame(
        {
            "reader": [f"reader-{i}" for i in drawn.user_ids[drawn.users]],
            "book": [f"book-{i}" for i in drawn.item_ids[drawn.items]],
            "stars": drawn.values,
        }
    )


def main(path: str | None = None) -> None:
    # Columns and scale are recognised; say them where they cannot be, as for the shop's here.
    if path is None:
        table = made_up_table()
        ratings = cfnade.load(table, user="reader", item="book", rating="stars", scale="0.5-5/0.5")
    else:
        ratings = cfnade.load(path)
    print(ratings)

    # fit() holds 5 % back to choose the best epoch by; refit then trains on everything.
    model = cfnade.CFNADE(
        side="user", hidden=(50,), batch_rows=64, epochs=30, learning_rate=0.004, refit=True
    ).fit(ratings)
    print(f"validation RMSE {model.history_[-1]['best_rmse']:.4f}")

    # Ids that the model has never met are answered with what is known in general, and marked:
    # n_user_ratings and n_item_ratings say how many ratings an answer rests on.
    stranger = "nobody" if isinstance(ratings.user_ids[0], str) else -1
    users = [ratings.user_ids[0], ratings.user_ids[1], stranger]
    answers = model.predict_frame(users, [ratings.item_ids[0]] * 3, unknown="mean")
    print(answers.select("user", "item", "prediction", "std", "n_user_ratings", "n_item_ratings"))
    unknown = answers.filter(pl.col("n_user_ratings") == 0)
    print(f"{len(unknown)} of {len(answers)} answers are about a user without ratings")

    print(model.recommend(users[:2], n=3).select("user", "rank", "item", "prediction", "std"))


if __name__ == "__main__":
    main(*sys.argv[1:2])
