"""The errors that cfnade raises on purpose; anything else that escapes is a bug."""


class CfnadeError(ValueError):
    """Something given to cfnade cannot be used; the message says what, where and what to do."""


class DataError(CfnadeError):
    """A rating file, frame or cache that cannot be used."""


class ModelError(CfnadeError):
    """An argument or a batch that a model cannot take."""
