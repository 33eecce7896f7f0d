"""The build fails for what would lead nowhere on the site, with the configuration that `make docs` builds with."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("hooks")  # skips all where MkDocs is not installed

DOCSITE = Path(__file__).resolve().parents[3] / "hack/docsite"


def build(pages: dict[str, str], directory: Path) -> None:
    from mkdocs.commands.build import build as mkdocs_build  # noqa: PLC0415 - only `make docs` installs it
    from mkdocs.config import load_config  # noqa: PLC0415

    for name, text in {".nav.yml": "nav: [index.md]\n", **pages}.items():
        (directory / "pages").mkdir(exist_ok=True)
        (directory / "pages" / name).write_text(text)
    overridden: dict[str, Any] = {
        "docs_dir": str(directory / "pages"),
        "site_dir": str(directory / "site"),
        # All but the one that adds the pages of the top level, which need all others.
        "hooks": [str(DOCSITE / f"hooks/{name}.py") for name in ("commonmark", "scripts")],
    }
    mkdocs_build(load_config(str(DOCSITE / "mkdocs.yml"), strict=True, **overridden))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](missing.md)", "missing.md"),
        ("[a](index.md#missing)", "missing"),
        ("[a](../missing.py)", "missing.py"),
        ("[a](/index.html)", "/index.html"),
    ],
)
def test_dead_links_fail_the_build(text: str, complaint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from mkdocs.exceptions import Abort  # noqa: PLC0415

    with pytest.raises(Abort):
        build({"index.md": f"# Title\n\n{text}\n"}, tmp_path)
    assert any(complaint in record.getMessage() for record in caplog.records)


def test_a_page_that_the_navigation_lacks_fails_the_build(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from mkdocs.exceptions import Abort  # noqa: PLC0415

    with pytest.raises(Abort):
        build({"index.md": "# Title\n", "lost.md": "# Lost\n"}, tmp_path)
    assert any("lost.md" in record.getMessage() for record in caplog.records)


def test_without_its_scripts_the_site_shows_diagrams_as_text_and_loads_nothing_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # nothing is installed there
    build({"index.md": "# Title\n\n```mermaid\nflowchart LR\n    a --> b\n```\n"}, tmp_path)
    html = (tmp_path / "site/index.html").read_text()
    shown = [text for text in ("flowchart LR", 'class="mermaid"', "unpkg.com") if text in html]
    assert shown == ["flowchart LR"]
    assert not list((tmp_path / "site").rglob("iframe-worker.js"))


def test_what_is_right_is_built(tmp_path: Path) -> None:
    build({"index.md": "# Title\n\n[below](#part)\n\n## Part\n"}, tmp_path)
    assert (tmp_path / "site/index.html").is_file()
