"""Adapters to other libraries: a thin module for each, which needs that library installed."""
