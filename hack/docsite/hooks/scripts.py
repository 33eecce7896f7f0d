"""The scripts that pages run beside those of the theme: diagrams, and search of a site that no server serves.

`make docs` installs them from npm, by the lock beside mkdocs.yml, so that no page loads anything from elsewhere: the
theme would take its own copies of both from a network. Where they are not installed, diagrams are shown as their text.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pymdownx.superfences import fence_code_format

SCRIPTS: Final = {
    "assets/javascripts/mermaid.js": "@mermaid-js/tiny/dist/mermaid.tiny.js",
    "assets/javascripts/iframe-worker.js": "iframe-worker/shim/index.js",
}
"""Where on the site a script is, and in which file of which package it comes."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have fences of mermaid become diagrams, and the search work in a directory, by the scripts that are installed."""
    if _installed():
        fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
        fences["custom_fences"] = [{"name": "mermaid", "class": "mermaid", "format": fence_code_format}]
    else:
        config.extra["polyfills"] = []
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the scripts to the site."""
    for uri, path in _installed().items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def _installed() -> dict[str, Path]:
    """Return the files of the scripts: of all or of none."""
    modules = Path(sys.prefix) / "docsite/node_modules"
    found = {uri: modules / name for uri, name in SCRIPTS.items()}
    return found if all(path.is_file() for path in found.values()) else {}
