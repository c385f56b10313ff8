"""Answers of a fitted model: queries, scores, fold-in and baseline."""
