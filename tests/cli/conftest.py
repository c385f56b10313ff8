"""Commands run in this process: as at a shell, but without importing torch for each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cfnade.cli import main
from cfnade.cli.run_config import RunConfig
from cfnade.data.synthetic import synthetic


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error in one line, without the frames that are drawn around messages."""
        return " ".join(self.err.replace("│", " ").split())


Shell = Callable[..., Done]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["cfnade", *map(str, arguments)])
        log = logging.getLogger("cfnade")
        before = list(log.handlers)
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            log.handlers[:] = before
        said = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 1, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def ratings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 people and 40 films with titles: enough to train a tiny model in a moment."""
    folder = tmp_path_factory.mktemp("ml")
    films = "".join(f'{i},"Film {i:02d}, The ({1950 + i})",Drama\n' for i in range(40))
    (folder / "movies.csv").write_text("movieId,title,genres\n" + films)
    return _written(folder / "ratings.csv", "userId,movieId,rating,timestamp", str)


@pytest.fixture(scope="session")
def titles_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same ratings with titles in place of ids, as a copy of MovieLens 1M has them."""
    path = tmp_path_factory.mktemp("titles") / "ratings.csv"
    named = {0: "Blade Runner (1982)", 1: "Alien (1979)", 2: "Aliens (1986)"}
    return _written(
        path, "user,item,rating,time", lambda i: f'"{named.get(i, f"Film {i:02d} ({1950 + i})")}"'
    )


def _written(path: Path, header: str, item: Callable[[int], str]) -> Path:
    made = synthetic(60, 40, 1200, seed=5).ratings
    rows = zip(made.users.tolist(), made.items.tolist(), made.values.tolist(), strict=True)
    lines = [f"{u},{item(i)},{v:g},{10**9 + 86_400 * n}" for n, (u, i, v) in enumerate(rows)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def trained(path: Path, out: Path, side: str, **model: object) -> Path:
    """Train once through the library: the command itself has its own tests."""
    import json
    from dataclasses import replace

    from cfnade import checkpoint
    from cfnade.config import TrainingConfig
    from cfnade.data.load import load_split
    from cfnade.training.plan import plan_side
    from cfnade.training.train import train

    parts = load_split(path, "paper:0", cache=False)
    settings = TrainingConfig(epochs=4, batch_rows=16, learning_rate=5e-3)
    done = train(parts, plan_side(side, {"hidden": (12,), **model}, settings))
    config = RunConfig(data=str(path), split="paper:0", recipe="default", side=side)
    facts = json.loads(json.dumps(done.model.metadata | {"run_config": config.to_json()}))
    checkpoint.save(replace(done.model, metadata=facts), out)
    return out


@pytest.fixture(scope="session")
def user_model(ratings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(ratings_file, tmp_path_factory.mktemp("models") / "user", "user")


@pytest.fixture(scope="session")
def item_model(ratings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(ratings_file, tmp_path_factory.mktemp("models") / "item", "item")


@pytest.fixture(scope="session")
def titles_model(titles_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(titles_file, tmp_path_factory.mktemp("models") / "titles", "user")


@pytest.fixture(scope="session")
def timed_model(ratings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that needs to know when."""
    return trained(ratings_file, tmp_path_factory.mktemp("models") / "timed", "both", time=True)
