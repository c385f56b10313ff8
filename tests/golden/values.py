"""Compute golden values with the package that PYTHONPATH names, and print them as JSON.

    PYTHONPATH=… python tests/golden/values.py before|now FOLDER [--quick] PART…

run.py starts this in a process of its own for each of the two packages.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.golden import inputs
from tests.golden.inputs import Model, Request

KEY = "0123456789abcdef0123456789abcdef"
Case = tuple[str, Any]
"""The name of a value, and the value: text must be equal, numbers nearly so."""


class Values:
    """One package, its models, and what they answer."""

    def __init__(self, adapter: Any, folder: Path, *, quick: bool) -> None:
        self.adapter, self.folder, self.quick = adapter, folder, quick
        given = os.environ.get("CFNADE_DATA")
        self.movielens = Path(given or "") / inputs.MOVIELENS
        self.has_movielens = given is not None and self.movielens.exists() and not quick
        self.trained = cache(self._trained)
        self.opened = cache(lambda name: adapter.opened(self.trained(name)))

    # -- data --------------------------------------------------------------------------------------

    def data(self) -> Iterator[Case]:
        """Fingerprints and splits."""
        named = {name: (name, options) for name, options in inputs.TABLES.items()}
        for name, (file, options) in (named | inputs.TABLES_AS).items():
            ratings = self.adapter.load(inputs.FILES / file, options)
            yield f"data {name} fingerprint", self.adapter.fingerprint(ratings)
            yield f"data {name} arrays", digests(self.adapter.columns(ratings))
        for name, splits in inputs.SPLITS.items():
            for split in splits:
                yield from self._split(inputs.FILES / name, name, split, inputs.TABLES[name])
        extra = f"file:{inputs.FILES / 'stars/extra.csv'}"
        yield from self._split(inputs.FILES / inputs.STARS, inputs.STARS, extra, {})
        made = self.adapter.synthetic(300, 200, 6000, 1)
        yield "data synthetic", digests(self.adapter.columns(made))
        made = self.adapter.synthetic_interactions(50, 40, 8, 1)
        yield "data synthetic interactions", digests(self.adapter.columns(made))
        if self.has_movielens:
            ratings = self.adapter.load(self.movielens, {})
            yield "data ml-100k fingerprint", self.adapter.fingerprint(ratings)
            yield "data ml-100k arrays", digests(self.adapter.columns(ratings))
            for split in inputs.MOVIELENS_SPLITS:
                yield from self._split(self.movielens, "ml-100k", split, {})

    def _split(
        self, path: Path, name: str, split: str, options: Mapping[str, Any]
    ) -> Iterator[Case]:
        fingerprint, parts = self.adapter.split(path, split, options)
        label = f"data {name} split {split.replace(str(inputs.FILES) + '/', '')}"
        yield f"{label} fingerprint", fingerprint
        for part, ratings in parts.items():
            yield f"{label} {part}", digests(self.adapter.columns(ratings))

    # -- training ----------------------------------------------------------------------------------

    def weights(self) -> Iterator[Case]:
        """What was trained: SHA-256 of every array, by whatever name, and other numbers."""
        for name in [*self._recipes(), *inputs.KINDS]:
            yield f"weights {name}", digests(self.adapter.weights(self.trained(name)))
            yield (
                f"learned {name}",
                self._answer(f"learned {name}", self.adapter.numbers(self.trained(name))),
            )

    def _recipes(self) -> dict[str, Model]:
        small = {f"small file {name}": one for name, one in inputs.RECIPES.items()}
        if not self.has_movielens:
            return small
        large = {
            f"ml-100k {name}": replace(one, data=str(self.movielens))
            for name, one in inputs.RECIPES.items()
        }
        return small | large

    def _trained(self, name: str) -> Path:
        """The folder of a model."""
        model = {**inputs.KINDS, **self._recipes()}[name]
        folder = self.folder / name.replace(" ", "-")
        command = ["train", str(inputs.FILES / model.data), "--out", str(folder)]
        options = model.options | {"threads": model.n_threads, "seed": 0}
        if isinstance(model.recipe, str):
            options["recipe"] = model.recipe
        elif model.recipe is not None:
            path = self.folder / f"{folder.name}.toml"
            path.write_text(toml(self.adapter.recipe(model.recipe)), encoding="utf-8")
            options["recipe"] = path
        for option, value in options.items():
            command += self.adapter.option(option, value)
        with self.adapter.fixed_blend(inputs.BLEND):
            self._run(command)
        return folder

    def _run(self, command: list[str]) -> str:
        code, out, err = self.adapter.run(command)
        if code != 0:
            sys.exit(f"cfnade {' '.join(command)}\n{err}")
        return str(out)

    # -- answers -----------------------------------------------------------------------------------

    def _answer(self, case: str, value: Any) -> Any:
        """A value with the names of before, as JSON holds it, without what changes with time."""
        return steady(self.adapter.answer(case, json.loads(json.dumps(value, default=plain))))

    def predictions(self) -> Iterator[Case]:
        """What models of each kind say about fixed pairs, and whom they recommend what."""
        models = inputs.KINDS | (self._recipes() if self.has_movielens else {})
        for name, model in models.items():
            for what, value in self._predictions(name, model):
                case = f"predictions {name} {what}"
                yield case, self._answer(case, value)
        import polars as pl

        frame = pl.read_csv(inputs.FILES / inputs.STARS).drop("timestamp")
        fitted = self.adapter.estimator(frame, 3)
        yield "predictions estimator", fitted.predict([8, 13], [101, 107]).tolist()

    def _predictions(self, name: str, model: Model) -> Iterator[Case]:
        ask, opened = self.adapter, self.opened(name)
        if name.startswith("implicit") and name != "implicit and ratings":
            yield "top", ask.top(opened, inputs.USERS[1:5], 5)
            yield "top of new", ask.top_of_new(opened, inputs.CLICKED, 5)
            return
        large = inputs.MOVIELENS in model.data
        users = inputs.MOVIELENS_USERS if large else inputs.USERS
        items = inputs.MOVIELENS_ITEMS if large else inputs.ITEMS
        pairs = [(user, item) for user in users for item in items]
        asked = [user for user, _ in pairs], [item for _, item in pairs]
        when = inputs.WHEN if model.times else None
        yield "probabilities", ask.probabilities(opened, *asked, when)
        yield "expected", ask.expected(opened, *asked, when)
        if model.times:
            return
        yield "top", ask.top(opened, users[1:3], 5)
        if name not in inputs.ITEM_BASED:
            history = dict(zip(items, inputs.HISTORY.values(), strict=False))
            yield "of new", ask.probabilities_of_new(opened, history, items)
            yield "top of new", ask.top_of_new(opened, history, 5)

    def http(self) -> Iterator[Case]:
        """Every route of the service, of models of several kinds."""
        for name, requests in inputs.SERVED.items():
            store = f"sqlite:///{self._store(name)}"
            with self.adapter.serving(self.trained(name), store, KEY) as client:
                for asked, request in requests.items():
                    case = f"http {name} {asked}"
                    yield case, self._answer(case, self._response(client, request))

    def _response(self, client: Any, request: Request) -> dict[str, Any]:
        method, path, body, query = self.adapter.request(
            request.method, request.path, request.body, request.query
        )
        headers = {"x-api-key": KEY}
        response = client.request(method, path, json=body, params=query, headers=headers)
        found: dict[str, Any] = {"status": response.status_code}
        if request.status_only:
            return found
        return found | {"answer": response.json() if response.content else None}

    def _store(self, name: str) -> Path:
        """A new store in a file."""
        path = self.folder / f"{name.replace(' ', '-')}.db"
        self._run(self.adapter.arguments(["store", "init", str(path)]))
        return path

    def cli(self) -> Iterator[Case]:
        """Every command with --json, and the file that `predict` writes."""
        store = self._store("commands")
        files = {"files": str(inputs.FILES), "store": str(store)}
        extra = str(inputs.FILES / "stars/extra.csv")
        self._run(self.adapter.arguments(["store", "import", str(store), extra]))
        commands = inputs.COMMANDS | ({} if self.quick else inputs.SLOW_COMMANDS)
        for name, (model, command) in commands.items():
            places = files | ({} if model is None else {"model": str(self.trained(model))})
            filled = [word.format_map(places) for word in self.adapter.arguments(command)]
            yield f"cli {name}", self._answer(f"cli {name}", json.loads(self._run(filled)))
        for name, options in inputs.PREDICTED.items():
            out, case = self.folder / f"{name.split()[0]}.csv", f"cli predict {name}"
            command = ["predict", str(self.trained(name)), str(inputs.FILES / "pairs.csv")]
            self._run(self.adapter.arguments([*command, "--out", str(out), *options]))
            with out.open(encoding="utf-8") as lines:
                rows = [
                    {key: number(text) for key, text in row.items()}
                    for row in csv.DictReader(lines)
                ]
            yield case, self._answer(case, rows)


PARTS = ("data", "weights", "predictions", "http", "cli")


def digests(arrays: Mapping[str, Any]) -> dict[str, int]:
    """How often each array occurs, by SHA-256 of its bytes, type and shape. Names do not count."""
    return dict(sorted(Counter(map(digest, arrays.values())).items()))


def digest(array: Any) -> str:
    plainly = np.asarray(array)
    if plainly.dtype.kind in "OUT":  # texts, in whatever type they are kept
        content = "\0".join(map(str, plainly.tolist())).encode()
        return f"{sha256(content).hexdigest()} texts {plainly.shape}"
    content = np.ascontiguousarray(plainly).tobytes()
    return f"{sha256(content).hexdigest()} {plainly.dtype} {plainly.shape}"


def steady(value: Any) -> Any:
    """A value without the fields that differ from run to run."""
    if isinstance(value, dict):
        fields = value.items()
        return {key: steady(one) for key, one in fields if not inputs.is_volatile(key, one)}
    if isinstance(value, list):
        return [steady(one) for one in value]
    return value.replace(str(inputs.FILES), "FILES") if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """What JSON does not know: arrays and their numbers."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def number(text: str | None) -> Any:
    try:
        return float(text or "")
    except ValueError:
        return text


def toml(content: Mapping[str, Any]) -> str:
    """A recipe as TOML, whose values JSON writes alike."""
    lines = [f"{key} = {json.dumps(one)}" for key, one in content.items() if key == "side"]
    for part in ("model", "training"):
        lines += [
            f"[{part}]",
            *(f"{key} = {json.dumps(one)}" for key, one in content[part].items()),
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    which, folder, *rest = sys.argv[1:]
    quick = "--quick" in rest
    adapter = importlib.import_module(f"tests.golden.{which}")
    values = Values(adapter, Path(folder), quick=quick)
    found = {part: dict(getattr(values, part)()) for part in PARTS if part in rest}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
