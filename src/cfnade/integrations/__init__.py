"""cfnade in other libraries' clothes: a thin module for each, which needs that library installed.

A module turns their data into `Ratings` and their questions into ours, and nothing else.
"""
