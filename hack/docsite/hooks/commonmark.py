"""Lists and anchors of CommonMark, which the pages are written in and code hosts show, in the words of Python-Markdown.

What belongs to an item of a list is indented by the width of its marker in CommonMark (two or three columns), and by
four columns for each level in Python-Markdown, where an item takes an empty line between itself and a paragraph before.
What is in fences moves along with them, otherwise as it is.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from pymdownx.slugs import slugify

_MARKER: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)]) +(?=\S)")
_FENCE: Final = re.compile(r"`{3,}|~{3,}")
_STEP: Final = 4


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have headings get the anchors that code hosts give them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page as Python-Markdown is to read it."""
    return python_markdown(markdown)


def python_markdown(text: str) -> str:
    """Return CommonMark with the indentation that Python-Markdown wants."""
    written: list[str] = []
    columns: list[int] = []  # where the content of each list that we are in begins
    fence = ""
    shift = 0
    is_list = False  # whether the lines since the last empty one began as an item
    for line in text.split("\n"):
        content = line.lstrip(" ")
        indent = len(line) - len(content)
        if fence:
            written.append(" " * max(indent + shift, 0) + content if content else "")
            if content.startswith(fence) and not content.strip(fence[0]).strip():
                fence = ""
                is_list = False
            continue
        if not content:
            written.append("")
            continue
        marker = _MARKER.match(content)
        opened = _FENCE.match(content)
        starts_block = marker or opened or content.startswith(("#", "|", ">", "<"))
        if starts_block or not (written and written[-1]):  # otherwise the line goes on with its paragraph
            while columns and indent < columns[-1]:
                columns.pop()
        base = columns[-1] if columns else 0
        if not (written and written[-1]):
            is_list = marker is not None
        if marker and indent - base < _STEP:
            if written and written[-1] and not is_list:
                written.append("")
                is_list = True
            written.append(" " * (_STEP * len(columns)) + content)
            columns.append(indent + marker.end())
            continue
        shift = _STEP * len(columns) - base
        written.append(" " * max(indent + shift, 0) + content)
        if opened:
            fence = opened[0]
    return "\n".join(written)
