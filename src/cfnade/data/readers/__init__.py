"""Readers of files, databases and tables in memory; `files.read` finds out which one it takes."""
