"""Ratings and interactions: data types, readers, splits, published and synthetic data sets.

`dataset.py` has the types, `load.py` the entry points. Nothing is imported here, so that each part
can be imported without the others.
"""
