"""The navigation of the site: patterns stand for pages that it does not name."""

from __future__ import annotations

from types import ModuleType


def test_a_pattern_stands_for_the_pages_of_its_folder_that_are_named_nowhere(hooks: ModuleType) -> None:
    nav = [{"Guides": ["guides/README.md", {"Own": "guides/b.md"}, "guides/*.md"]}, {"More": ["*.md"]}]
    pages = {"guides/README.md", "guides/a.md", "guides/b.md", "guides/c/d.md", "later.md"}
    assert hooks.navigation.expanded(nav, pages) == [
        {"Guides": ["guides/README.md", {"Own": "guides/b.md"}, "guides/a.md"]},
        {"More": ["later.md"]},
    ]


def test_the_page_of_a_folder_comes_first(hooks: ModuleType) -> None:
    assert hooks.navigation.expanded(["runbooks/*.md"], {"runbooks/A.md", "runbooks/README.md"}) == [
        "runbooks/README.md",
        "runbooks/A.md",
    ]


def test_a_section_without_pages_is_left_out(hooks: ModuleType) -> None:
    assert hooks.navigation.expanded([{"Runbooks": ["runbooks/*.md"]}, "index.md"], {"index.md"}) == ["index.md"]


def test_of_two_patterns_the_longer_one_has_the_page(hooks: ModuleType) -> None:
    nav = [{"Rest": ["*.md"]}, "tracing.md*"]
    assert hooks.navigation.expanded(nav, {"tracing.md", "a.md"}) == [{"Rest": ["a.md"]}, "tracing.md"]
