"""Pictures of the site can be seen in full size."""

from __future__ import annotations

from types import ModuleType


def test_a_picture_leads_to_itself(hooks: ModuleType) -> None:
    html = '<p><img alt="Overview" src="images/a.png" /></p>'
    linked = '<p><a href="images/a.png"><img alt="Overview" src="images/a.png" /></a></p>'
    assert hooks.pictures.on_page_content(html) == linked


def test_a_picture_that_is_a_link_stays_one(hooks: ModuleType) -> None:
    html = '<p><a href="elsewhere.html"><img alt="Overview" src="images/a.png" /></a></p>'
    assert hooks.pictures.on_page_content(html) == html
