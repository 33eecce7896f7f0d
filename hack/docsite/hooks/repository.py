"""What of the repository the site has: pages from outside of docs/, and links to everything that is no page.

Links are written for a checkout, where `../controller` is a folder. On the site they lead to the same place of the
repository, whose address is TRAINMASTER_REPOSITORY of the environment; without that only their text is left. A link to
nothing stays, and MkDocs tells of it. TRAINMASTER_SITE_URL is where the site is published, which its page for missing
addresses and its canonical links need.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
PAGES: Final = {"changelog.md": ROOT / "CHANGELOG.md", "contributing.md": ROOT / "CONTRIBUTING.md"}
"""Pages of the site that are files of the top level."""

_URIS: Final = {path: uri for uri, path in PAGES.items()}
_LINK: Final = re.compile(
    r"(?P<code>^ *(?P<fence>```+|~~~+).*?^ *(?P=fence)|(?P<tick>`+)(?!`).*?(?<!`)(?P=tick)(?!`))"
    r"|\]\((?P<target>[^)\s]+)\)",
    re.DOTALL | re.MULTILINE,
)
_NOWHERE: Final = "repository:"
_UNKNOWN: Final = re.compile(rf"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\({_NOWHERE}\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the addresses of the repository and of the site from the environment, if they are there."""
    config.extra["repository"] = os.environ.get("TRAINMASTER_REPOSITORY", "")
    config.site_url = os.environ.get("TRAINMASTER_SITE_URL") or config.site_url
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the top level."""
    for uri, path in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Return the page with links that lead somewhere on the site as well."""
    source = Path(page.file.abs_src_path or "").resolve()
    return rewrite(markdown, source, page.file.src_uri, config.extra["repository"])


def rewrite(markdown: str, source: Path, uri: str, repository: str) -> str:
    """Return a page with its links rewritten.

    Args:
        markdown: The page.
        source: The file that it comes from, which its links are relative to.
        uri: Where it is on the site, relative to docs/.
        repository: The address of the repository; empty if it is not known.
    """

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None:
            return found[0]
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        place = (source.parent / path).resolve()
        if place.is_relative_to(DOCS) and (place / "README.md").is_file():
            place = place / "README.md"  # code hosts show it for its folder
            path = f"{path.rstrip('/')}/README.md"
        if place in _URIS or (place.is_relative_to(DOCS) and not source.is_relative_to(DOCS)):
            page = _URIS.get(place) or place.relative_to(DOCS).as_posix()
            return f"]({os.path.relpath(page, PurePosixPath(uri).parent)}{mark}{anchor})"
        if place.is_relative_to(DOCS) or not place.is_relative_to(ROOT) or not place.exists():
            return f"]({path}{mark}{anchor})"
        if not repository:
            return f"]({_NOWHERE})"
        kind = "tree" if place.is_dir() else "blob"
        return f"]({repository}/{kind}/main/{place.relative_to(ROOT).as_posix()}{mark}{anchor})"

    return _UNKNOWN.sub(r"\1", _LINK.sub(link, markdown))
