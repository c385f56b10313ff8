"""Many people at once, on any engine: a class that answers tables with tables, and jobs of it."""

from cfnade.scoring.batch_scorer import BatchScorer

__all__ = ["BatchScorer"]
