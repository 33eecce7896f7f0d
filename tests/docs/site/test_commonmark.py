"""Lists are on the site what they are for code hosts: pages are CommonMark, the site is made by Python-Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


class Outline(HTMLParser):
    """Items of lists, blocks of code and tables of a page, each with the lists around it and its first words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[list[str]] = []
        self._lists: list[str] = []
        self._open: list[int] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in {"ul", "ol"}:
            self._lists.append(tag)
        if tag in {"li", "pre", "table"}:
            self.found.append([f"{'/'.join(self._lists)} {tag}", ""])
            self._open.append(len(self.found) - 1)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"ul", "ol"}:
            self._lists.pop()
        if tag in {"li", "pre", "table"}:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            entry = self.found[self._open[-1]]
            entry[1] += re.sub(r"[^A-Za-z0-9]", "", data)


def outline(html: str) -> list[list[str]]:
    return [[place, words[:40]] for place, words in Outline(html).found]


@pytest.mark.parametrize("page", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_lists_code_and_tables_of_a_page_are_those_of_commonmark(page: Path, hooks: ModuleType) -> None:
    import markdown  # noqa: PLC0415 - only `make docs` installs it

    text = re.sub(r"<!--.*?-->\n?", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"^</?div.*$", "", text, flags=re.MULTILINE)
    extensions = ["tables", "pymdownx.superfences"]
    shown = markdown.markdown(hooks.commonmark.python_markdown(text), extensions=extensions)
    assert outline(shown) == outline(MarkdownIt("commonmark").enable("table").render(text))


def test_what_belongs_to_an_item_is_indented_for_python_markdown(hooks: ModuleType) -> None:
    text = "Text:\n- one\n\n  more\n  ```sh\n    code\n  ```\n  - two\n    goes on\n1. three\n\n   four\n\nfive\n"
    assert hooks.commonmark.python_markdown(text) == (
        "Text:\n\n- one\n\n    more\n    ```sh\n      code\n    ```\n\n"
        "    - two\n        goes on\n1. three\n\n    four\n\nfive\n"
    )
