"""Update the paths in mutants.toml after a file or a folder has moved.

    git mv src/cfnade/sides src/cfnade/components
    python tests/mutants/rename.py src/cfnade/sides src/cfnade/components

Paths are relative to the project's root. `file` and `tests` of every entry change; snippets do not.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ENTRIES = Path(__file__).parent / "mutants.toml"
# One line of an entry: the key, the quote, and the paths between the quotes.
_LINE = re.compile(r"^(?P<key>file|tests) = (?P<quote>['\"])(?P<paths>.*)(?P=quote)$", re.MULTILINE)


def rename(text: str, old: str, new: str) -> tuple[str, int]:
    """Return the text of mutants.toml with one path replaced, and how many times it occurred."""
    old, new = old.rstrip("/"), new.rstrip("/")
    path = re.compile(rf"(?<!\S){re.escape(old)}(?=/|::|\s|$)")
    count = 0

    def replace_paths(line: re.Match[str]) -> str:
        nonlocal count
        paths, found = path.subn(lambda _: new, line["paths"])
        count += found
        return f"{line['key']} = {line['quote']}{paths}{line['quote']}"

    return _LINE.sub(replace_paths, text), count


def main() -> None:
    parser = argparse.ArgumentParser(description="Update the paths in mutants.toml after a move.")
    parser.add_argument("old", help="path of the file or folder before the move")
    parser.add_argument("new", help="path of the file or folder now")
    options = parser.parse_args()
    text, count = rename(ENTRIES.read_text(encoding="utf-8"), options.old, options.new)
    if count == 0:
        sys.exit(f"{ENTRIES.name} has no path {options.old!r}; give it relative to the root")
    ENTRIES.write_text(text, encoding="utf-8")
    print(f"{count} paths updated in {ENTRIES.name}")


if __name__ == "__main__":
    main()
