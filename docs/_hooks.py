"""What MkDocs runs while it builds the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: A folder of pages that are written by ``make bench``: as many as there are.
_MEASURED = "benchmarks/"


def on_config(config: Any) -> Any:
    """Put the pages of a folder where the navigation names it; leave it out where it has none."""
    found = []
    for entry in config.nav:
        if list(entry.values()) != [_MEASURED]:
            found.append(entry)
            continue
        pages = [path.relative_to(config.docs_dir) for path in sorted(Path(config.docs_dir, _MEASURED).glob("**/*.md"))]
        if pages:
            found.append({title: [page.as_posix() for page in pages] for title in entry})
    config.nav = found
    return config
