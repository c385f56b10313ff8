"""Train on MovieLens 1M, compare with published results, and show predictions.

    python examples/demo.py [FOLDER]

The model is saved in FOLDER (default: demo/model); the second run loads it. `make serve` shows it
on a page. Without MovieLens 1M, synthetic ratings are used.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cfnade
from cfnade import CFNADE, CfnadeError, Split

PUBLISHED = {  # test RMSE on random 90/10 splits of MovieLens 1M, without time, from the papers
    "PMF": 0.883,
    "U-AutoRec": 0.874,
    "I-RBM": 0.854,
    "U-CF-NADE, the paper": 0.850,
    "BiasMF": 0.845,
    "LLORMA-Local": 0.833,
    "I-AutoRec": 0.831,
    "I-CF-NADE, 2 layers, the paper": 0.829,
    "GLocal-K": 0.8227,
}
HISTORY = {  # of a new user who likes quiet science fiction and dislikes romance
    "Blade Runner (1982)": 5.0,
    "2001: A Space Odyssey (1968)": 5.0,
    "Alien (1979)": 4.0,
    "Star Wars: Episode IV - A New Hope (1977)": 4.0,
    "Notting Hill (1999)": 2.0,
    "You've Got Mail (1998)": 1.0,
}


def load_parts() -> tuple[Split, bool]:
    """Return the authors' split of MovieLens 1M and True, or synthetic ratings and False."""
    try:
        return cfnade.load_split("ml-1m", "authors:1234"), True
    except CfnadeError as error:
        print(f"MovieLens 1M is not available: {error}")
        print("Synthetic ratings are used instead; the figures have no meaning.")
        return cfnade.split(cfnade.synthetic(600, 370, 40_000, seed=1).ratings, "paper:0"), False


def print_scores(model: CFNADE, parts: Split, is_movielens: bool) -> None:
    """Print the test RMSE among published ones."""
    scores = model.evaluate(parts.test)
    rows = {**(PUBLISHED if is_movielens else {}), "cfnade, this run": scores.rmse}
    print("\nTest RMSE")
    for name, rmse in sorted(rows.items(), key=lambda row: -row[1]):
        print(f"  {name:<32}{rmse:.4f}")
    print(f"  calibration error {scores.calibration_error:.4f}, NLL {scores.nll:.4f} nats")


def print_user(model: CFNADE, parts: Split) -> None:
    """Print some test ratings of a user beside their predicted distributions."""
    test = parts.test
    user = int(np.argmin(np.abs(np.bincount(test.users) - 12)))
    rows = np.flatnonzero(test.users == user)[:12]
    items = test.item_ids[test.items[rows]].tolist()
    frame = model.predict_frame([test.user_ids[user]] * len(items), items)
    print(f"\nUser {test.user_ids[user]}: rating, prediction, probabilities of 1 … 5")
    for rating, row in zip(test.values[rows], frame.to_dicts(), strict=True):
        bars = (
            "▁▂▃▄▅▆▇█"[min(7, int(8 * value))]
            for name, value in row.items()
            if name.startswith("p_")
        )
        title = row["title"] or str(row["item"])
        print(f"  {rating:g}  {row['prediction']:.2f}  {''.join(bars)}  {title}")


def print_recommendations(model: CFNADE, is_movielens: bool) -> None:
    """Print recommendations for a new user, whom the model was not trained on."""
    history = HISTORY if is_movielens else dict.fromkeys(range(1, 6), 5.0)
    print("\nA new user: " + ", ".join(f"{item} {rating:g}" for item, rating in history.items()))
    for row in model.recommend(history=history, n=10).to_dicts():
        print(f"  {row['rank']:>2}  {row['prediction']:.2f}  {row['title'] or row['item']}")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/model")
    parts, is_movielens = load_parts()
    print(parts)
    if (folder / "model.json").exists():
        model = CFNADE.load(folder)
    else:
        model = CFNADE(verbose=True).fit(parts)
        model.save(folder)
    print_scores(model, parts, is_movielens)
    print_user(model, parts)
    print_recommendations(model, is_movielens)
    print(f"\nOn a page: cfnade serve {folder}")


if __name__ == "__main__":
    main()
