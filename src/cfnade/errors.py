"""The errors that cfnade raises on purpose; anything else that escapes is a bug."""


class CfnadeError(ValueError):
    """Something given to cfnade cannot be used; the message says what, where and what to do."""


class DataError(CfnadeError):
    """A rating file, frame or cache that cannot be used."""


class ModelError(CfnadeError):
    """An argument or a batch that a model cannot take."""


class TrainingError(CfnadeError):
    """Training cannot start, or had to stop."""


class CheckpointError(CfnadeError):
    """A checkpoint folder that cannot be written or trusted."""


class PredictionError(CfnadeError):
    """A question that the model at hand cannot answer."""


class StoreError(CfnadeError):
    """A store of ratings that cannot be used as it is."""


class StoreAwayError(StoreError):
    """A store that cannot be used now: locked, full, or out of reach; the same may work later."""
