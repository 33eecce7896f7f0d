"""The documentation as a site: its hooks, and what `make docs` has built."""

import os
import sys
from importlib import import_module, util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCSITE = ROOT / "hack/docsite"


@pytest.fixture(scope="session")
def site() -> Path:
    """The directory of the built site."""
    directory = os.environ.get("TRAINMASTER_SITE")
    if not directory:
        pytest.skip("TRAINMASTER_SITE names no site: `make docs` builds and checks one")
    return Path(directory)


@pytest.fixture(scope="session")
def scripted_site(site: Path) -> Path:
    """A site with the scripts that npm installs."""
    if not (site / "assets/javascripts/mermaid.js").is_file():
        pytest.skip("the site was built without its scripts: npm did not install them")
    return site


@pytest.fixture(scope="session")
def hooks() -> ModuleType:
    """The folder of the hooks, as a package."""
    if util.find_spec("mkdocs") is None:
        pytest.skip("MkDocs is not installed: `make docs` does that")
    sys.path.insert(0, str(DOCSITE))
    try:
        for name in ("commonmark", "repository", "scripts"):
            import_module(f"hooks.{name}")
        return import_module("hooks")
    finally:
        sys.path.remove(str(DOCSITE))
