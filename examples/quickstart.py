"""Train a model, see how good it is, ask it things, and keep it.

python examples/quickstart.py            # made-up ratings, a few seconds
python examples/quickstart.py ml-100k    # a published set by name, or a file of yours
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory

import numpy as np

import cfnade


def main(data: str | None = None) -> None:
    if data is None:
        ratings = cfnade.synthetic(400, 150, 20_000, seed=1, factors=2).ratings
        # Few ratings: a small model and small batches.
        model = cfnade.CFNADE(
            side="user", hidden=(100,), batch_rows=64, epochs=40, learning_rate=0.004
        )
    else:
        ratings = cfnade.load(data)
        model = cfnade.CFNADE(verbose=True)
    print(ratings)

    parts = cfnade.split(ratings, "paper:0")  # 10 % test, 5 % of the rest validation
    model.fit(parts)
    scores = model.evaluate(parts.test)
    spread = float(np.std(parts.test.values))
    print(f"test RMSE {scores.rmse:.4f} (always the mean rating: {spread:.4f})")

    user, item = ratings.user_ids[0], ratings.item_ids[:3]
    print("\nThe whole distribution of a rating, not just its mean:")
    print(model.predict_frame(user, item).drop("title"))

    print(f"\nFive items that user {user} has not rated:")
    print(model.recommend([user], n=5)["rank", "item", "title", "prediction", "std"])

    with TemporaryDirectory() as folder:
        model.save(folder)
        again = cfnade.CFNADE.load(folder)
        same = np.array_equal(again.predict(user, item), model.predict(user, item))
        print(f"\nsaved, loaded, same predictions: {same}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
