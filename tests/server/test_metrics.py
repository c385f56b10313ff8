"""GET /metrics, read by Prometheus' own parser."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.given import Asking, TestClient

from cfnade.server.app import create_app
from cfnade.server.metrics import Metrics
from cfnade.server.model_registry import ModelRegistry

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    """All samples by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(client: TestClient, **headers: str) -> Samples:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.text)


def requests(samples: Samples) -> dict[tuple[str, str, str], float]:
    """Counts by method, path and status."""
    return {
        (dict(labels)["method"], dict(labels)["path"], dict(labels)["status"]): value
        for (name, labels), value in samples.items()
        if name == "cfnade_requests_total"
    }


def test_every_request_is_counted_by_how_it_ended(asking: Asking, user_model: Path) -> None:
    with asking(user_model, key="k") as client:
        key = {"x-api-key": "k"}
        for _ in range(3):
            client.post("/recommend", json={"ratings": []}, headers=key)
        client.post("/recommend", json={"odd": 1}, headers=key)
        client.post("/recommend", json={"ratings": []})  # without the key
        client.head("/health")
        client.get("/page/app.js")
        for odd in ("/nothing", "/%F0%9F%8E%AC", "/page/none.js"):
            client.get(odd, headers=key)
        client.request("BREW", "/model", headers=key)
        samples = told(client, **key)
    assert requests(samples) == {
        ("POST", "/recommend", "200"): 3,
        ("POST", "/recommend", "422"): 1,
        ("POST", "/recommend", "401"): 1,
        ("HEAD", "/health", "200"): 1,
        ("GET", "/page/", "200"): 1,
        ("GET", "other", "404"): 2,
        ("GET", "/page/", "404"): 1,
        ("other", "/model", "405"): 1,
    }
    path = ("path", "/recommend")
    assert samples["cfnade_request_seconds_count", (path,)] == 5
    assert samples["cfnade_request_seconds_sum", (path,)] > 0
    assert samples["cfnade_request_seconds_bucket", (("le", "+Inf"), path)] == 5


def test_a_failure_nobody_expected_counts_as_one(
    asking: Asking, user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asking(user_model) as client:
        # What warms a model up, in a thread of its own, must not meet it.
        monkeypatch.setattr("cfnade.server.routers.inference.length_to_rank", lambda *_: 1 / 0)
        client.post("/recommend", json={"ratings": []})
        assert requests(told(client)) == {("POST", "/recommend", "500"): 1}


def test_the_model_tells_its_age_and_how_loading_went(user_model: Path) -> None:
    models = ModelRegistry(user_model)
    app = create_app(models)
    client = TestClient(app)
    early = told(client)  # before anything is loaded there is no age
    assert not any(name.startswith("cfnade_model_age") for name, _ in early)
    before = time.time()
    models.load()
    samples = told(client)
    saved = max(path.stat().st_mtime for path in user_model.rglob("model.json"))
    assert samples["cfnade_model_age_seconds", ()] == pytest.approx(before - saved, abs=60)
    assert 0 <= samples["cfnade_model_loaded_seconds", ()] < 60
    print_of = (("fingerprint", models.current().fingerprint),)
    assert samples["cfnade_model_info", print_of] == 1
    models.folder = user_model / "nowhere"
    assert not models.reload()
    outcomes = {
        dict(labels)["outcome"]: value
        for (name, labels), value in told(client).items()
        if name == "cfnade_model_loads_total"
    }
    assert outcomes == {"loaded": 1, "failed": 1}


def test_others_add_figures_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    metrics.add("shop_ratings", 'AppendResult, "all" of\nthem.', lambda: 7.5)
    metrics.add(
        "shop_queries", "By kind.", lambda: {"a": 1, 'b"\n': 2}, label="kind", kind="counter"
    )
    metrics.add("shop_late", "Not known yet.", lambda: None)
    metrics.add("shop_broken", "Fails.", lambda: float(os.fspath(Path("no number"))))
    with caplog.at_level(logging.ERROR, "cfnade.server"):
        samples = read(metrics.text().decode())
    assert samples == {
        ("shop_ratings", ()): 7.5,
        ("shop_queries_total", (("kind", "a"),)): 1,
        ("shop_queries_total", (("kind", 'b"\n'),)): 2,
    }
    assert "shop_broken cannot be told" in caplog.text
    with pytest.raises(ValueError, match="shop_ratings is told already"):
        metrics.add("shop_ratings", "Again.", lambda: 0)


def test_figures_are_not_for_everybody(asking: Asking, user_model: Path) -> None:
    with asking(user_model, key="k") as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"authorization": "Bearer k"}).status_code == 200
