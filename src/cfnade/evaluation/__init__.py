"""Evaluation: rating metrics, ranking metrics, and scores of fitted models.

This file imports nothing: `calibration` needs the metrics, and `evaluate` needs calibration.
"""
