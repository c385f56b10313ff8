"""Folders of earlier versions of the format, seen as the present one.

Versions 1 and 2 knew a model of one side, of both, or several of these: `architecture` had the
fields of one network, or {"user", "item", "features"}, or {"members": n, "of": either}. Up to
version 3 members counted equally; up to version 4 no model knew what is picked.
"""

from __future__ import annotations

from typing import Any

from cfnade.exceptions import ModelError
from cfnade.implicit.base import Arrays as Tables

_FIRST = 3
"""The first version with members and sides."""

_SINCE = {"shares": 4, "choice": 5}
_MOST_MEMBERS = 1000


def keys_of(keys: set[str], version: int) -> set[str]:
    """What model.json held in a version, given what it holds now."""
    later = {key for key, first in _SINCE.items() if version < first}
    return keys - later if version >= _FIRST else keys - later - {"members"} | {"architecture"}


def modern_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """The content of model.json as the present version has it."""
    manifest = {"shares": [], "choice": None} | manifest
    if manifest["version"] >= _FIRST:
        return manifest
    architecture = manifest.pop("architecture")
    count, one = architecture.get("members", 1), architecture.get("of", architecture)
    if not isinstance(count, int) or not 1 <= count <= _MOST_MEMBERS:
        raise ModelError(f"members (={count!r}) must be a number in 1..{_MOST_MEMBERS}")
    sides = {name: one[name] for name in ("user", "item") if name in one} or {manifest["side"]: one}
    if one.get("features"):
        fields = next(iter(sides.values()))
        sides["time"] = {
            "features": one["features"],
            "levels": fields["levels"],
            "shared": fields["shared"],
        }
    return manifest | {"members": [sides] * count, "several": "members" in architecture}


def modern_tables(tables: Tables, manifest: dict[str, Any]) -> Tables:
    """Weights and counts by their present names."""
    if manifest["version"] >= _FIRST:
        return tables
    side = manifest["side"]
    both = len(manifest["members"][0]) > 1
    counted = {"column_counts": "item" if side != "item" else "user", "row_counts": "user"}
    modern = {}
    for name, table in tables.items():
        if name in counted:
            modern[f"trained_on.{counted[name]}"] = table
            continue
        number, key = "0", name
        if manifest["several"]:
            _, number, key = name.split(".", 2)
        if not both:
            key = f"{side}.{key}"
        modern[f"{number}.{key.replace('when.', 'time.', 1)}"] = table
    return modern
