"""Recommend to a person whom the model has never met, from a few ratings, without training again.

    python examples/new_user.py            # made-up ratings
    python examples/new_user.py ml-1m      # a published set by name, or a file of yours

Only side="user" (the default) can do this: it predicts a person's rating from their other ratings.
"""

from __future__ import annotations

import sys

import polars as pl

import cfnade


def main(data: str | None = None) -> None:
    if data is None:
        ratings = cfnade.synthetic(400, 150, 20_000, seed=1, factors=2).ratings
        model = cfnade.CFNADE(
            side="user", hidden=(100,), batch_rows=64, epochs=40, learning_rate=0.004
        )
    else:
        ratings = cfnade.load(data)
        model = cfnade.CFNADE(verbose=True)
    model.fit(ratings)

    # Someone rates five well-known items: two very good, three very bad.
    counts = pl.Series(ratings.items).value_counts(sort=True)
    known = [ratings.item_ids[i] for i in counts[:5, 0]]
    low, high = ratings.scale.values[0], ratings.scale.values[-1]
    history = dict(zip(known, [high, high, low, low, low], strict=True))
    print("history:", {str(item): stars for item, stars in history.items()})

    best = model.recommend(history=history, n=5)
    print(best.select("rank", "item", "title", "prediction", "std"))

    item = best["item"][0]
    print(f"\nWhy item {item}? What each rating did to its prediction:")
    print(model.explain(history=history, item=item).drop("title"))

    # One more rating, and the list is another at once: nothing is trained.
    later = model.recommend(history=history | {item: low}, n=5)
    print("\nbefore:", best["item"].to_list())
    print(f"after giving item {item} the lowest rating:", later["item"].to_list())


if __name__ == "__main__":
    main(*sys.argv[1:2])
