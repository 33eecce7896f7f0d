"""Patterns in the navigation: `guides/*.md` stands for all pages of docs/guides that it does not name elsewhere.

So a new page is in the navigation by itself. Of several patterns that fit, the longest one has the page. Sections
without pages are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the pages in the place of the patterns."""
    config.nav = expanded(config.nav or [], {file.src_uri for file in files.documentation_pages()})
    return files


def expanded(nav: list[Any], pages: set[str]) -> list[Any]:
    """Return the navigation without patterns."""
    named = list(_named(nav))
    left = pages - set(named)
    found = {}
    for pattern in sorted((name for name in named if "*" in name), key=len, reverse=True):
        found[pattern] = sorted((page for page in left if _matches(page, pattern)), key=_order)
        left.difference_update(found[pattern])
    return list(_expanded(nav, found))


def _named(nav: list[Any]) -> Iterator[str]:
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            if isinstance(value, list):
                yield from _named(value)
            else:
                yield value


def _expanded(nav: list[Any], found: dict[str, list[str]]) -> Iterator[Any]:
    for item in nav:
        if isinstance(item, str) and item in found:
            yield from found[item]
        elif isinstance(item, dict):
            [(title, value)] = item.items()
            below = list(_expanded(value, found)) if isinstance(value, list) else value
            if below:
                yield {title: below}
        else:
            yield item


def _matches(page: str, pattern: str) -> bool:
    """Tell whether a page is in the folder of a pattern and has a name like it."""
    place, wanted = PurePosixPath(page), PurePosixPath(pattern)
    return place.parent == wanted.parent and place.match(wanted.name)


def _order(page: str) -> tuple[bool, str]:
    """The page of a folder itself is the first one."""
    return PurePosixPath(page).stem not in ("README", "index"), page
