"""What the site does with links that lead out of it, and with pages that nobody placed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files of the repository, which a site does not have, become text and path."""
    return _OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2][3:].split('#')[0]}`)", markdown)


def on_config(config: Any) -> Any:
    """Pages that mkdocs.yml does not name are found under More."""
    placed = set(re.findall(r"\b\w+\.md\b", str(config.nav)))
    pages = sorted(page.name for page in Path(config.docs_dir).glob("*.md"))
    left = [page for page in pages if page not in placed]
    if left:
        config.nav.append({"More": left})
    return config
