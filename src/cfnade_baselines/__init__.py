"""Baselines that CF-NADE is compared with, and `cfnade compare`.

Rating models implement `base.RatingPredictor`, top-n models `base.Recommender`. `registry` creates
them by name and imports each one's module and library on first use. In `cfnade` only the command
line imports this package.
"""
