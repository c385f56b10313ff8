"""Start Ray and Spark, or join what runs already. Neither is imported before it is asked for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from annotated_types import Ge

from cfnade.exceptions import CfnadeError
from cfnade.utils.validation import check_choice, check_scalar

ENGINES = ("local", "ray", "spark")
_TRIES = 4  # Ray gives up starting after half a minute, which a busy machine may need
_STORE = 256 << 20  # bytes of Ray's object store: what travels is small


def check_engine(engine: str, n_workers: int | None) -> None:
    """Raise for an unknown engine or a number of workers below 1."""
    check_choice("engine", engine, ENGINES, error=CfnadeError)
    if n_workers is not None:
        check_scalar("n_workers", n_workers, int, Ge(1), error=CfnadeError)


def _not_installed(engine: str, error: ImportError) -> CfnadeError:
    library, command = engine.capitalize(), f"pip install 'cfnade[{engine}]'"
    return CfnadeError(
        f"engine={engine}: {library} is not installed ({error}); {command}",
        field="engine",
        value=engine,
        reason=f"{library} is not installed; install it with: {command}",
    )


@contextmanager
def ray_session(n_workers: int | None = None) -> Iterator[Any]:
    """Yield the module ray, connected to the cluster of RAY_ADDRESS or started on this machine."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # or they starve on a busy machine
    try:
        import ray
    except ImportError as error:
        raise _not_installed("ray", error) from error
    if ray.is_initialized():
        yield ray
        return
    _start_ray(ray, n_workers)
    try:
        yield ray
    finally:
        ray.shutdown()


def _start_ray(ray: Any, n_workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not os.environ.get("RAY_ADDRESS"):
        processors = n_workers or max(1, (os.cpu_count() or 2) - 1)
        options |= {"num_cpus": processors + 1, "object_store_memory": _STORE}
        options["include_dashboard"] = False
    for attempt in range(_TRIES):
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray raises plain ones
            ray.shutdown()
            if attempt == _TRIES - 1:
                reason = str(error).strip().splitlines()[0]
                raise CfnadeError(f"engine=ray: Ray does not start ({reason})") from error


@contextmanager
def spark_session(n_workers: int | None = None) -> Iterator[Any]:
    """Yield the active Spark session, or one by Spark's own settings; without a master, here."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise _not_installed("spark", error) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    session = _start_spark(n_workers or os.cpu_count() or 1)
    try:
        yield session
    finally:
        session.stop()


def _start_spark(n_workers: int) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers take any python3
    builder = SparkSession.builder.appName("cfnade").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master := os.environ.get("SPARK_MASTER"):
        builder = builder.master(master)
    elif "--master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        builder = builder.master(f"local[{n_workers},4]")  # a task has four tries
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    try:
        session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise CfnadeError(
            f"engine=spark: Spark does not start ({str(error).splitlines()[0]}); is Java 17 or "
            "newer installed, and JAVA_HOME right?"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session
