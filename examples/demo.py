"""What `make demo` shows: train, score, look at one person, recommend to another.

    python examples/demo.py [FOLDER]

Trains a joint model of MovieLens 1M, and a user-based one that also models interactions, into
FOLDER (default: demo) and keeps them there: the second run only shows them, and `cfnade serve`
shows the second on a page. Without MovieLens it takes made-up ratings, and says so.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfnade import CfnadeError, checkpoint
from cfnade.cli.render import bars, print_recommendations
from cfnade.data.load import load
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.evaluation.evaluate import evaluate
from cfnade.inference.predictor import Predictor
from cfnade.recipes import load_recipe
from cfnade.training.implicit import implicit_plan
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.progress import ProgressCallback
from cfnade.training.train import train

PUBLISHED = [  # test RMSE on random 90/10 splits of MovieLens 1M, without time, from the papers
    ("PMF", 0.883),
    ("U-RBM", 0.881),
    ("U-AutoRec", 0.874),
    ("LLORMA-Global", 0.865),
    ("I-RBM", 0.854),
    ("U-CF-NADE-S, the paper", 0.850),
    ("BiasMF", 0.845),
    ("NNMF", 0.843),
    ("LLORMA-Local", 0.833),
    ("I-AutoRec", 0.831),
    ("I-CF-NADE-S, the paper", 0.830),
    ("I-CF-NADE-S with 2 layers, the paper", 0.829),
    ("CF-UIcA", 0.823),
    ("GLocal-K", 0.8227),
]
TASTE = {  # somebody who likes quiet science fiction and dislikes romance
    "Blade Runner (1982)": 5.0,
    "2001: A Space Odyssey (1968)": 5.0,
    "Alien (1979)": 4.0,
    "Star Wars: Episode IV - A New Hope (1977)": 4.0,
    "Notting Hill (1999)": 2.0,
    "You've Got Mail (1998)": 1.0,
}
console = Console(highlight=False)


def parts_to_use() -> tuple[Split, bool]:
    """MovieLens 1M cut as in the authors' code, or made-up ratings if it cannot be had."""
    try:
        return split(load("ml-1m"), "authors:1234"), True
    except CfnadeError as error:
        console.print(f"[yellow]MovieLens 1M cannot be had: {error}[/yellow]")
        console.print("[yellow]Going on with made-up ratings: the numbers mean nothing.[/yellow]")
        return split(synthetic(600, 370, 40_000, seed=1).ratings, "paper:0"), False


def model_of(parts: Split, name: str, folder: Path, *, lists: bool = False) -> Any:
    """Return the model of a recipe, trained now or earlier; with lists also of interactions."""
    out = folder / name
    if (out / "model.json").exists():
        console.print(f"{out}: trained before")
        return checkpoint.load(out)
    chosen = load_recipe(name)
    kind = "users and items together" if chosen.side == "both" else f"{chosen.side}-based"
    console.print(f"training {name}: {kind}, {chosen.training.epochs} epochs")
    implicit = implicit_plan(parts.train) if lists else None
    plan = plan_side(chosen.side, chosen.model, chosen.training, implicit=implicit)
    fitted = train(parts, plan, RunOptions(callbacks=[ProgressCallback()])).model
    checkpoint.save(fitted, out)
    return fitted


def show_score(fitted: Any, parts: Split, real: bool) -> None:
    scores = evaluate(fitted, parts.test)
    ours = (f"cfnade, {fitted.facts['seconds']:.0f} s of training on this machine", scores.rmse)
    what = "MovieLens 1M" if real else "made-up ratings"
    table = Table(box=None, header_style="dim", title=f"\nTest RMSE on {what}")
    table.add_column("")
    table.add_column("RMSE", justify="right")
    for name, value in sorted([*(PUBLISHED if real else []), ours], key=lambda row: -row[1]):
        style = "bold green" if name == ours[0] else ""
        table.add_row(
            name, f"{value:.3f}" if round(value, 3) == value else f"{value:.4f}", style=style
        )
    console.print(table)
    console.print(
        f"calibrated: NLL {scores.nll_raw:.3f} → {scores.nll:.3f} nats, "
        f"calibration error {scores.calibration_error_raw:.3f} → {scores.calibration_error:.3f}"
    )


def show_person(fitted: Any, parts: Split) -> None:
    """One user's test ratings beside what was predicted for them."""
    predictor, test = Predictor(fitted), parts.test
    counts = np.bincount(test.users, minlength=test.n_users)
    user = int(np.argmin(np.abs(counts - 12)))
    mine = np.flatnonzero(test.users == user)[:12]
    raw = test.user_ids[user]
    items = test.item_ids[test.items[mine]]
    frame = predictor.predict_frame([raw] * len(mine), items.tolist())
    table = Table(box=None, header_style="dim", title=f"\nWhat user {raw} gave, and what we said")
    for name in ("film", "gave", "expected", "1 … 5"):
        table.add_column(name, justify="left" if name == "film" else "right")
    for gave, row in zip(test.values[mine], frame.to_dicts(), strict=True):
        chances = [value for name, value in row.items() if name.startswith("p_")]
        label = Text(row["title"] or str(row["item"]))
        table.add_row(label, f"{gave:g}", f"{row['prediction']:.2f}", Text(bars(chances), "cyan"))
    console.print(table)


def show_stranger(fitted: Any) -> None:
    """Ten films for somebody who has never been seen: what they would pick, and like."""
    predictor, context = Predictor(fitted), fitted.context
    ids = context.item_ids.tolist()
    names = ids if context.titles is None else context.titles.tolist()
    place = dict(zip(names, ids, strict=True))
    history = {place[title]: stars for title, stars in TASTE.items() if title in place}
    if history:
        console.print("\nSomebody new gave: " + ", ".join(f"{t} {s:g}" for t, s in TASTE.items()))
    else:  # made-up ratings have no titles
        history = dict.fromkeys(ids[:5], context.scale.values[-1])
    print_recommendations(predictor.recommend(history=history, n=10), predictor.scale)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    parts, real = parts_to_use()
    console.print(parts.train.concat(parts.valid).concat(parts.test))
    if not real:
        folder = folder / "made-up"
    joint = model_of(parts, "ml-1m-both", folder)
    show_score(joint, parts, real)
    show_person(joint, parts)
    show_stranger(model_of(parts, "ml-1m-user", folder, lists=True))
    page = folder / "ml-1m-user"
    console.print(f"\nOn a page of its own: [bold]make serve[/bold], or cfnade serve {page}")


if __name__ == "__main__":
    main()
