"""Calibration of predicted distributions: one for all users, and level preferences of each user.

This file imports nothing: a fitted model holds a `Calibration`, and `per_user` needs fitted models.
"""
