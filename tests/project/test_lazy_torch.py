"""Answers need no torch, whose import takes longer than the rest of a first answer.

A loaded model consists of arrays that are mapped from its file; networks on the same memory are
made when training needs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.inference.cases import KINDS, make, make_kind
from tests.inference.implicit_cases import picked_model, rated_model

from cfnade.checkpoint import load, save
from cfnade.components.optimizers import member_network, network_arrays
from cfnade.components.registry import member_spec
from cfnade.fitted_model import FittedModel

MODELS: dict[str, Callable[[], FittedModel]] = {
    **{kind: lambda kind=kind: make_kind(kind) for kind in KINDS},  # type: ignore[misc]
    "factors": lambda: make("user-factors"),
    "items' factors": lambda: make("item-factors"),
    "samples": lambda: make("user-factors", samples=3),
    "neighborhood": lambda: make("neighborhood"),
    "factors and neighborhood": lambda: make("factors-neighborhood"),
    "ratings and picks": rated_model,
    "picks": picked_model,
}

ANSWER = """
import sys
from cfnade import CFNADE, load, load_split, split, synthetic

def answer(folder):
    model = CFNADE.load(folder)
    fitted, unknown = model.fitted_, {"unknown": "mean"}
    user, (item, other) = fitted.context.user_ids[1], fitted.context.item_ids[:2].tolist()
    stars = fitted.context.scale.values[-1]
    history = [item] if fitted.context.implicit else {item: stars}
    if fitted.needs_times:
        model.predict_frame([user, 999], [other, other], timestamp=50, **unknown)
        return
    users = [{"user": user}] + ([{"history": history}] if fitted.takes_histories else [])
    model.recommend(user, n=3)
    model.similar_items(item, n=3)
    for arguments in users:
        model.suggest_items_to_rate(**arguments, n=3)
        if fitted.predicts_ratings:
            model.explain(item=other, **arguments)
    if fitted.takes_histories:
        model.recommend(history=history, n=3)
    if fitted.predicts_ratings:
        histories = {999: history} if fitted.takes_histories else None
        model.predict_frame([user, 999], [other, other], histories=histories, **unknown)
        model.predict_frame([user] * 300, [other] * 300)

assert CFNADE(side="user", seed=3).get_params()["seed"] == 3
for folder in sys.argv[1:]:
    answer(folder)
    assert "torch" not in sys.modules, folder
"""

SERVE = """
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from cfnade.server.app import create_app
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.settings import ServerSettings

with TestClient(create_app(
    ModelRegistry(sys.argv[1]), ServerSettings(model_dir=sys.argv[1], allow_hosts=('*',))
)) as client:
    item = int(sys.argv[2])
    bodies = {"recommendations": {"n": 3}, "predictions": {"items": [item + 1]}}
    for path, body in bodies.items():
        for user in ({"user_id": int(sys.argv[3])}, {"ratings": [{"item": item, "rating": 5}]}):
            response = client.post("/" + path, json=user | body)
            assert response.status_code == 200, response.text
assert "torch" not in sys.modules
"""

COMMANDS = """
import json, sys
from cfnade.cli import main

for command in json.loads(sys.argv[1]):
    sys.argv = ["cfnade", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
    assert "torch" not in sys.modules, command
"""


def run(code: str, *arguments: Any, cwd: Path | None = None) -> None:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert process.returncode == 0, process.stderr


def test_every_kind_of_model_answers_without_torch(tmp_path: Path) -> None:
    for name, model in MODELS.items():
        save(model(), tmp_path / name)
    run(ANSWER, *(tmp_path / name for name in MODELS))


def test_commands_answer_without_torch(tmp_path: Path) -> None:
    save(rated_model(), tmp_path / "model")
    (tmp_path / "pairs.csv").write_text("user,item\n2,1\n77,3\n")
    commands = [
        "recommend model --user 2 --min-ratings 0",
        "recommend model 1=5 --min-ratings 0",
        "predict model pairs.csv",
        "similar model 1",
        "explain model 1 --user 2",
        "explain model 1 2=5 3=1",
    ]
    run(COMMANDS, json.dumps([command.split() for command in commands]), cwd=tmp_path)


def test_the_service_answers_without_torch(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    save(rated_model(), tmp_path)
    run(SERVE, tmp_path, 1, 2)


@pytest.mark.parametrize("name", MODELS)
def test_array_specs_match_networks(name: str) -> None:
    for member in MODELS[name]().members:
        specs = member_spec(member.to_dict())
        assert {key: (s.shape, s.dtype) for key, s in specs.items()} == {
            key: (array.shape, str(array.dtype)) for key, array in member.arrays().items()
        }
        for component in member.components.values():
            if not component.closed_form:
                trained = [key for key, _ in component.network.named_parameters()]
                assert sorted(trained) == sorted(component.trained)


def mapped_addresses(file: Path) -> list[range]:
    """Return the addresses at which this process has mapped the file."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if line.endswith(str(file.resolve()))]
    return [range(int(first, 16), int(end, 16)) for first, end in spans]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
@pytest.mark.parametrize("name", ["user", "user-ridge", "both", "neighborhood"])
def test_networks_share_the_memory_of_the_mapped_file(tmp_path: Path, name: str) -> None:
    save(MODELS[name](), tmp_path)
    file = tmp_path / "model.safetensors"
    before, fitted = file.read_bytes(), load(tmp_path)
    [member] = fitted.members
    tables = member.arrays()
    mapped = mapped_addresses(file)
    for table in tables.values():
        if table.size:
            first = table.__array_interface__["data"][0]
            assert any(first in addresses for addresses in mapped)
    network = member_network(member)
    for key, table in network_arrays(network).items():
        assert table.size == 0 or np.shares_memory(table, tables[key])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert file.read_bytes() == before  # copy on write
