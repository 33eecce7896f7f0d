"""The site as `make docs` has built it: it needs nothing but itself, be it served or opened from a directory."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.browser import browser_page

ROOT = Path(__file__).resolve().parents[3]
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
"""Elements whose attribute names something that the browser loads by itself."""
STYLE = re.compile(r"(?:url\(|@import\s+)['\"]?((?:https?:)?//[^'\")]+)")


class Sources(HTMLParser):
    """What a page loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in LOADED:
            self.found.append(values.get(LOADED[tag], ""))
        elif tag == "link" and not {"canonical", "next", "prev", "alternate"} & set(values.get("rel", "").split()):
            self.found.append(values.get("href", ""))
        self.found += STYLE.findall(values.get("style", ""))


def from_elsewhere(urls: list[str]) -> list[str]:
    return [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_there_is_a_page_for_each_document(site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    expected = {re.sub(r"README$", "index", each) for each in documents} | {"changelog", "contributing", "404"}
    assert {path.relative_to(site).with_suffix("").as_posix() for path in pages(site)} == expected


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {
        source: str(path.relative_to(site))
        for path in pages(site)
        for source in Sources(path.read_text(encoding="utf-8")).found
        if re.match(r"(?:[a-z]+:)?//", source)
    }
    assert loaded == {}


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = sorted(site.rglob("*.css"))
    assert styles
    assert [found for path in styles for found in STYLE.findall(path.read_text(encoding="utf-8"))] == []


def test_all_that_pages_load_is_there(site: Path) -> None:
    missing = {
        source: str(path.relative_to(site))
        for path in pages(site)
        if path.name != "404.html"  # it stands for any address, so it is made for the root of a server
        for source in Sources(path.read_text(encoding="utf-8")).found
        if source and not source.startswith("data:") and not (path.parent / source.partition("?")[0]).is_file()
    }
    assert missing == {}


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("resourceClaimsPerNode", "reference/trainer-v1alpha1.html"),
        ("schedulingPolicy", "reference/kubeflow-v1.html"),
        ("--on-interrupt", "reference/cli.html"),
        ("shutdownDelayDuration", "configuration.html"),
    ],
)
def test_the_search_knows_a_word_of_the_references(word: str, page: str, site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    assert any(each["location"].partition("#")[0] == page and word in each["text"] for each in index["docs"])


async def test_diagrams_are_drawn_without_a_network(scripted_site: Path, tmp_path: Path) -> None:
    """Each of every page; what its text gets wrong is an error of the script."""
    async with browser_page(tmp_path) as page:
        await page.emulate(width=1400, height=1000)
        for path in pages(scripted_site):
            if diagrams := path.read_text(encoding="utf-8").count('<pre class="mermaid">'):
                await page.open(f"file://{path}")
                drawn = "[...document.querySelectorAll('div.mermaid')].filter(it => it.clientHeight > 50).length"
                await page.until(f"{drawn} === {diagrams} || {len(page.errors)}")
                assert (page.errors, path.name) == ([], path.name)
        assert from_elsewhere(page.requests) == []
        assert any(url.endswith("/mermaid.js") for url in page.requests)


async def test_the_search_finds_without_a_server(scripted_site: Path, tmp_path: Path) -> None:
    async with browser_page(tmp_path) as page:
        await page.emulate(width=1400, height=1000)
        await page.open(f"file://{scripted_site}/index.html?q=numProcPerNode")
        await page.until("document.querySelectorAll('.md-search-result__item').length > 2")
        assert page.errors == []
        assert from_elsewhere(page.requests) == []


async def test_no_page_is_wider_than_a_phone(site: Path, tmp_path: Path) -> None:
    """Tables and code scroll by themselves: those that the commands and the options of the manager have are wide."""
    async with browser_page(tmp_path) as page:
        await page.emulate(width=390, height=800)
        wide = {}
        for name in ("index", "configuration", "differences", "guides/gpus", "reference/cli", "reference/kubeflow-v1"):
            await page.open(f"file://{site}/{name}.html")
            wide[name] = await page.evaluate("document.documentElement.scrollWidth")
        assert {name: width for name, width in wide.items() if width > 390} == {}
