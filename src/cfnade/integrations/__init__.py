"""Adapters to other libraries. Each module needs that library installed."""
