"""Answers from a fitted model: predictions, top-n lists, explanations."""
