"""Tasks as a Spark job, on the master that Spark's own settings name, or on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cfnade.distributed.engines import Task, answers, told
from cfnade.exceptions import CfnadeError

_SLICES = 16  # for every worker


class OnSpark:
    """Spark, started here if nobody has."""

    def __init__(self, workers: int | None = None) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise CfnadeError(
                f"engine=spark: Spark is not installed ({error}); pip install 'cfnade[spark]'"
            ) from error
        self.workers = workers or os.cpu_count() or 1
        self._own = SparkSession.getActiveSession() is None
        self.session = SparkSession.getActiveSession() or start_spark(self.workers)

    def each(self, function: Callable[..., Any], tasks: Sequence[Task]) -> list[Any]:
        def run(number: int) -> str:
            return json.dumps(told(function, tasks[number]))

        if not tasks:
            return []
        slices = min(len(tasks), _SLICES * self.workers)  # each costs some tenths of a second
        numbers = self.session.sparkContext.parallelize(range(len(tasks)), slices)
        return answers([json.loads(one) for one in numbers.map(run).collect()])

    def close(self) -> None:
        if self._own:
            self.session.stop()


def start_spark(workers: int) -> Any:
    """A session by Spark's settings; without a master, here, where a task then has four tries."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers take any python3
    builder = SparkSession.builder.appName("cfnade").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if not os.environ.get("SPARK_MASTER") and "--master" not in os.environ.get(
        "PYSPARK_SUBMIT_ARGS", ""
    ):
        builder = builder.master(f"local[{workers},4]")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    elif master := os.environ.get("SPARK_MASTER"):
        builder = builder.master(master)
    try:
        session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise CfnadeError(
            f"engine=spark: Spark does not start ({str(error).splitlines()[0]}); is Java 17 or "
            "newer installed, and JAVA_HOME right?"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session
