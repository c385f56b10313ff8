"""Accuracy for users who were not in training, beside baselines."""
