"""Links of the pages to what is no page lead to the repository."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]
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


@pytest.mark.parametrize(("named", "used"), [(None, HOST), ("", HOST), ("https://git/mine", "https://git/mine")])
def test_the_environment_names_the_repository(
    named: str | None, used: str, hooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINMASTER_REPOSITORY", raising=False)
    if named is not None:
        monkeypatch.setenv("TRAINMASTER_REPOSITORY", named)
    config = SimpleNamespace(extra={"repository": HOST}, site_url=None)
    assert hooks.repository.on_config(config).extra == {"repository": used}


@pytest.mark.parametrize("named", [None, "https://me.github.io/trainmaster/"])
def test_the_environment_names_the_site(named: str | None, hooks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_SITE_URL", raising=False)
    if named is not None:
        monkeypatch.setenv("TRAINMASTER_SITE_URL", named)
    config = SimpleNamespace(extra={"repository": HOST}, site_url=None)
    assert hooks.repository.on_config(config).site_url == named
