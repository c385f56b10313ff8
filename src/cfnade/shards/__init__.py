"""Ratings cut by columns into 64 parts on disk, for training on more than one machine.

layout.py says what is in the folder and who owns which column; opened.py reads it. The others write
it in stages of independent tasks: stages.py says which, an engine (cfnade.engines) runs them.
"""

from cfnade.shards.opened import HeldCells, OwnColumns, Shards

__all__ = ["HeldCells", "OwnColumns", "Shards"]
