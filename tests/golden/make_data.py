"""How the files in data/ were made; they are stored, so that this need not be run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FILES = Path(__file__).parent / "data"
USERS, ITEMS = 60, 40
GENRES = ["Comedy", "Drama", "Horror"]
SOUNDS = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]


def write(name: str, lines: list[str]) -> None:
    path = FILES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def title(number: int) -> str:
    word = (SOUNDS[number % 10] + SOUNDS[number % 10]).title()
    return f"Film {word} {number:02d}, The ({1950 + number})"


def main() -> None:
    rng = np.random.default_rng(2016)
    tastes, kinds = rng.standard_normal((USERS, 3)), rng.standard_normal((ITEMS, 3))
    popular = np.exp(-np.arange(ITEMS) / 20)
    chances = np.outer(np.exp(rng.normal(0, 0.5, USERS)), popular).ravel()
    cells = rng.choice(USERS * ITEMS, 1200, replace=False, p=chances / chances.sum())
    users, items = cells // ITEMS, cells % ITEMS
    liking = 3.4 + 0.6 * (tastes[users] * kinds[items]).sum(1) + rng.normal(0, 0.7, len(cells))
    times = 1_000_000_000 + rng.integers(0, 400_000, len(cells))
    stars = np.clip(np.round(liking), 1, 5).astype(int)
    rows = [*zip(users + 1, items + 101, stars, times, strict=True)]
    head = "userId,movieId,rating,timestamp"
    write("stars/ratings.csv", [head, *(f"{u},{i},{r},{t}" for u, i, r, t in rows)])
    films = [
        f'{number + 101},"{title(number)}",'
        + "|".join(GENRES[(number + step) % 3] for step in range(1 + (number % 5 == 0)))
        for number in range(ITEMS)
    ]
    write("stars/movies.csv", ["movieId,title,genres", *films])
    seen = set(cells.tolist())
    extra = [cell for cell in rng.permutation(USERS * ITEMS).tolist() if cell not in seen][:200]
    write(
        "stars/extra.csv",
        [
            head,
            *(
                f"{c // ITEMS + 1},{c % ITEMS + 101},{rng.integers(1, 6)},{1_000_500_000 + n}"
                for n, c in enumerate(extra)
            ),
        ],
    )
    some = rng.permutation(len(rows))[:700]
    halves = np.clip(np.round(2 * liking) / 2, 0.5, 5)
    write(
        "halves.tsv",
        [f"u{users[n]:02d}\tfilm-{items[n]}\t{halves[n]:.1f}" for n in some],
    )
    write(
        "clicks.csv",
        ["user,item,timestamp", *(f"{u},{i},{t}" for u, i, r, t in rows if r >= 3)],
    )
    counts = np.maximum(1, np.round(np.exp(liking - 2.5))).astype(int)
    write(
        "plays.csv",
        ["user,item,plays", *(f"{users[n] + 1},{items[n] + 101},{counts[n]}" for n in some)],
    )
    again = [(u, i, 1 + (r + 2) % 5, t + 500_000) for u, i, r, t in rows[:60]]
    write(
        "repeats.csv",
        ["user,item,rating,time", *(f"{u},{i},{r},{t}" for u, i, r, t in rows[:500] + again)],
    )
    pairs = [f"{u},{i}" for u in (1, 2, 3, 5, 8, 13, 60) for i in (101, 107, 113, 127, 140)]
    write("pairs.csv", ["user,item", *pairs])


if __name__ == "__main__":
    main()
