"""What tests of the store share: a store of each kind, and what a shop might keep in it."""

from __future__ import annotations

import itertools
from pathlib import Path
from urllib.parse import quote

import psycopg
from tests.support.postgres import PASSWORD, address

_numbers = itertools.count()


def fresh_database(server: str) -> str:
    """The address of a database of its own on a running server."""
    name = f"shop{next(_numbers)}"
    with psycopg.connect(address(server), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return f"postgresql://shop:{quote(PASSWORD, safe='')}@{server}/{name}"


def bytes_below(folder: Path) -> bytes:
    """All that lies in the files below a folder, and their names."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in files)
