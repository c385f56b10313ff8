"""Metrics for Prometheus: requests, the model, the event store."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from cfnade.server.model_registry import ModelRegistry

if TYPE_CHECKING:
    from cfnade.server.user_ratings import UserRatings

_log = logging.getLogger("cfnade.server")

SHARED_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which several workers count together; the library reads it."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"}

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of lines


class RequestMetrics:
    """Counts of one process, or of all workers if they share a folder."""

    def __init__(self) -> None:
        self._counts = CollectorRegistry()
        self._requests = Counter(
            "cfnade_requests",
            "Requests answered.",
            ["method", "path", "status"],
            registry=self._counts,
        )
        self._seconds = Histogram(
            "cfnade_request_seconds",
            "Seconds from a request's headers to the end of its response.",
            ["path"],
            buckets=_BUCKETS,
            registry=self._counts,
        )
        self.registry = CollectorRegistry()
        """For further collectors, which are read at each request of /metrics."""

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one request; `path` is the template of its route."""
        method = method if method in _METHODS else "other"
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        counts = self._counts
        if SHARED_DIR in os.environ:
            counts = CollectorRegistry()
            MultiProcessCollector(counts)  # type: ignore[no-untyped-call]
        return generate_latest(counts) + generate_latest(self.registry)


class ModelCollector:
    """Age and fingerprint of the model, and how often loading succeeded."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        if self._models.ready:
            model, now = self._models.current(), time.time()
            yield GaugeMetricFamily(
                "cfnade_model_age_seconds",
                "Seconds since the model was saved.",
                max(now - model.saved_at, 0.0),
            )
            yield GaugeMetricFamily(
                "cfnade_model_loaded_seconds",
                "Seconds since this process loaded it.",
                max(now - model.loaded_at.timestamp(), 0.0),
            )
            info = GaugeMetricFamily(
                "cfnade_model_info", "1 for the model that is served.", labels=["fingerprint"]
            )
            info.add_metric([model.fingerprint], 1.0)
            yield info
        loads = CounterMetricFamily(
            "cfnade_model_loads", "Attempts to load a model, by outcome.", labels=["outcome"]
        )
        for outcome, count in self._models.loads.items():
            loads.add_metric([outcome], count)
        yield loads


class StoreCollector:
    """Events in the store, the online error, and requests of users unknown to the model."""

    def __init__(self, user_ratings: UserRatings) -> None:
        self._user_ratings = user_ratings

    def collect(self) -> Iterator[Metric]:
        gauges = [
            ("store_events", "Events in the store.", self._user_ratings.event_count),
            (
                "online_rmse",
                "Error of the predictions that were logged before the most recent ratings.",
                self._user_ratings.online_rmse,
            ),
        ]
        for name, description, read in gauges:
            try:
                value = read()
            except Exception:  # a store that is away must not hide the other metrics
                _log.exception("cfnade_%s cannot be read", name)
            else:
                if value is not None:
                    yield GaugeMetricFamily(f"cfnade_{name}", description, value)
        requests = CounterMetricFamily(
            "cfnade_user_requests",
            "Requests of users, by whether this process's model was trained on them.",
            labels=["in_model"],
        )
        for in_model, count in self._user_ratings.requests.items():
            requests.add_metric([str(in_model).lower()], count)
        yield requests
