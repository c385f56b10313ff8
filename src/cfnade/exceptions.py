"""Errors that cfnade raises deliberately. Any other exception that escapes is a bug."""

from __future__ import annotations

import os


class CfnadeError(ValueError):
    """Base class of all errors of cfnade. The message states the fault, its place and the remedy.

    Attributes:
        field: Name of the option, argument or column that is wrong, if the error is about one.
        value: The rejected value.
        path: File or folder that is wrong.
        line: Line number in that file, from 1.
        reason: What is wrong with the value, without its name: "must be at least 0".
    """

    def __init__(
        self,
        message: str = "",
        *,
        field: str | None = None,
        value: object = None,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.path = path
        self.line = line
        self.reason = reason


class DataError(CfnadeError):
    """Input data or a cache file cannot be used."""


class ModelError(CfnadeError):
    """A model does not accept an argument or a batch."""


class TrainingError(CfnadeError):
    """Training cannot start or had to stop."""


class CheckpointError(CfnadeError):
    """A model folder cannot be written, or its content does not match its checksums."""


class PredictionError(CfnadeError):
    """The model cannot answer a query."""


class StoreError(CfnadeError):
    """An event store cannot be used as it is."""


class StoreUnavailableError(StoreError):
    """An event store is locked, full or unreachable; the same operation may succeed later."""
