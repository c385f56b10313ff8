"""GET /metrics, read by Prometheus' own parser."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.given import Asking, TestClient, server_settings

from cfnade.exceptions import StoreUnavailableError
from cfnade.server.app import create_app
from cfnade.server.metrics import RequestMetrics, StoreCollector
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
    with asking(user_model, api_key="k") as client:
        key = {"x-api-key": "k"}
        for _ in range(3):
            client.post("/recommendations", json={"ratings": []}, headers=key)
        client.post("/recommendations", json={"odd": 1}, headers=key)
        client.post("/recommendations", json={"ratings": []})  # without the key
        client.head("/health")
        client.get("/page/app.js")
        for odd in ("/nothing", "/%F0%9F%8E%AC", "/page/none.js"):
            client.get(odd, headers=key)
        client.request("BREW", "/model", headers=key)
        samples = told(client, **key)
    assert requests(samples) == {
        ("POST", "/recommendations", "200"): 3,
        ("POST", "/recommendations", "422"): 1,
        ("POST", "/recommendations", "401"): 1,
        ("HEAD", "/health", "200"): 1,
        ("GET", "/page", "200"): 1,
        ("GET", "other", "404"): 2,
        ("GET", "/page", "404"): 1,
        ("other", "/model", "405"): 1,
    }
    path = ("path", "/recommendations")
    assert samples["cfnade_request_seconds_count", (path,)] == 5
    assert samples["cfnade_request_seconds_sum", (path,)] > 0
    assert samples["cfnade_request_seconds_bucket", (("le", "+Inf"), path)] == 5


def test_a_failure_nobody_expected_counts_as_one(
    asking: Asking, user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asking(user_model) as client:
        # What warms a model up, in a thread of its own, must not meet it.
        monkeypatch.setattr("cfnade.server.routers.inference.rank_items", lambda *_: 1 / 0)
        client.post("/recommendations", json={"ratings": []})
        assert requests(told(client)) == {("POST", "/recommendations", "500"): 1}


def test_the_model_tells_its_age_and_how_loading_went(user_model: Path) -> None:
    models = ModelRegistry(user_model)
    app = create_app(models, server_settings(user_model))
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
    models.model_dir = user_model / "nowhere"
    assert not models.reload()
    outcomes = {
        dict(labels)["outcome"]: value
        for (name, labels), value in told(client).items()
        if name == "cfnade_model_loads_total"
    }
    assert outcomes == {"loaded": 1, "failed": 1}


class Broken:
    """Stored ratings whose database is away."""

    requests: ClassVar = Counter({True: 3, False: 1})

    def event_count(self) -> float:
        raise StoreUnavailableError("away")

    def online_rmse(self) -> float:
        return 0.5


def test_a_store_that_is_away_hides_no_other_metric(caplog: pytest.LogCaptureFixture) -> None:
    metrics = RequestMetrics()
    metrics.registry.register(StoreCollector(Broken()))  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "cfnade.server"):
        samples = read(metrics.text().decode())
    assert samples == {
        ("cfnade_online_rmse", ()): 0.5,
        ("cfnade_user_requests_total", (("in_model", "true"),)): 3,
        ("cfnade_user_requests_total", (("in_model", "false"),)): 1,
    }
    assert "cfnade_store_events cannot be read" in caplog.text
