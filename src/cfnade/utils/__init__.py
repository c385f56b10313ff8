"""Helpers that know nothing of recommendation: validation, files, caching, threads."""
