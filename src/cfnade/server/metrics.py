"""What the service counts, as Prometheus reads it at GET /metrics.

Requests and how long they took are counted here. Other parts add figures of their own, which are
read when somebody asks: `metrics.add("cfnade_store_ratings", "Ratings kept.", store.count)`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

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

_log = logging.getLogger("cfnade.server")

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which several workers count together; the library reads it."""
KIND = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"}

disable_created_metrics()  # type: ignore[no-untyped-call]  # when each count began: as many lines again, for nobody

Read = Callable[[], float | Mapping[str, float] | None]
"""A figure as it is now, or one for each value of a label; None where there is none yet."""


class Figure(NamedTuple):
    """A number that somebody else keeps."""

    name: str
    about: str
    read: Read
    label: str | None
    kind: Literal["gauge", "counter"]


class Metrics:
    """Counts of one process, or of all workers if they share a folder."""

    def __init__(self) -> None:
        self._counted = CollectorRegistry()
        self._requests = Counter(
            "cfnade_requests",
            "Requests answered.",
            ["method", "path", "status"],
            registry=self._counted,
        )
        self._seconds = Histogram(
            "cfnade_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            ["path"],
            buckets=_BUCKETS,
            registry=self._counted,
        )
        self._figures: list[Figure] = []

    def add(
        self,
        name: str,
        about: str,
        read: Read,
        *,
        label: str | None = None,
        kind: Literal["gauge", "counter"] = "gauge",
    ) -> None:
        """Tell one more figure. With a label, `read` gives a number for each of its values."""
        if any(figure.name == name for figure in self._figures):
            raise ValueError(f"the figure {name} is told already")
        self._figures.append(Figure(name, about, read, label, kind))

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """One request. Callers see to it that there are few different paths."""
        method = method if method in _METHODS else "other"
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        counted, told = self._counted, CollectorRegistry()
        if SHARED in os.environ:
            counted = CollectorRegistry()
            MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        told.register(self)
        return generate_latest(counted) + generate_latest(told)

    def collect(self) -> Iterator[Metric]:
        """The figures of others, as the library asks for them."""
        for figure in self._figures:
            try:
                value = figure.read()
            except Exception:  # one that fails must not hide the others
                _log.exception("the figure %s cannot be told", figure.name)
            else:
                yield _family(figure, value)


def _family(figure: Figure, value: float | Mapping[str, float] | None) -> Metric:
    make = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    labels = [] if figure.label is None else [figure.label]
    family = make(figure.name, figure.about, labels=labels)
    if isinstance(value, Mapping):
        for name, number in value.items():
            family.add_metric([name], number)
    elif value is not None:
        family.add_metric([], value)
    return family


def add_model_figures(metrics: Metrics, models: ModelRegistry) -> None:
    """How old the model is, which one it is, and how loading went."""

    def since(moment: Callable[[], float]) -> Read:
        return lambda: max(time.time() - moment(), 0.0) if models.ready else None

    metrics.add(
        "cfnade_model_age_seconds",
        "Seconds since the model was saved.",
        since(lambda: models.current().saved_at),
    )
    metrics.add(
        "cfnade_model_loaded_seconds",
        "Seconds since this process loaded the model.",
        since(lambda: models.current().loaded_at.timestamp()),
    )
    metrics.add(
        "cfnade_model_info",
        "1 for the model that answers.",
        lambda: {models.current().fingerprint: 1.0} if models.ready else None,
        label="fingerprint",
    )
    metrics.add(
        "cfnade_model_loads",
        "How often this process tried to load a model, by outcome.",
        lambda: dict(models.loads),
        label="outcome",
        kind="counter",
    )
