"""Trained models as folders: `save` and `load`; docs/reference/file-formats.md has the files."""

from cfnade.checkpoint.load import load
from cfnade.checkpoint.save import drop_context, save

__all__ = ["drop_context", "load", "save"]
