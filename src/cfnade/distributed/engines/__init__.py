"""What runs independent tasks: this machine, Ray or Spark. The engines are not imported here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from annotated_types import Ge

from cfnade.exceptions import CfnadeError
from cfnade.utils.validation import check_choice, check_scalar

ENGINES = ("local", "ray", "spark")

Task = tuple[Any, ...]


class TaskEngine(Protocol):
    """Runs a function on many tasks, in any order, somewhere; a worker that dies is replaced."""

    workers: int

    def each(self, function: Callable[..., Any], tasks: Sequence[Task]) -> list[Any]:
        """function(*task) of every task, in the order of tasks; answers are small and JSON."""

    def close(self) -> None:
        """Leave the machine as it was."""


def open_engine(name: str, workers: int | None = None) -> TaskEngine:
    """The engine of that name, with so many tasks at a time."""
    check_choice("engine", name, ENGINES, error=CfnadeError)
    if workers is not None:
        check_scalar("workers", workers, int, Ge(1), error=CfnadeError)
    if name == "ray":
        from cfnade.distributed.engines.on_ray import OnRay

        return OnRay(workers)
    if name == "spark":
        from cfnade.distributed.engines.on_spark import OnSpark

        return OnSpark(workers)
    from cfnade.distributed.engines.on_this_machine import OnThisMachine

    return OnThisMachine(workers)


def told(function: Callable[..., Any], task: Task) -> dict[str, Any]:
    """What a task came to; its error as words, for engines wrap errors in pages of their own."""
    try:
        return {"answer": function(*task)}
    except CfnadeError as error:
        return {"error": str(error)}


def answers(found: Sequence[dict[str, Any]]) -> list[Any]:
    """The answers, or the first error."""
    for one in found:
        if "error" in one:
            raise CfnadeError(one["error"])
    return [one["answer"] for one in found]
