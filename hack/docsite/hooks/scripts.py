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

MODULES: Final = Path(sys.prefix) / "docsite/node_modules"
SCRIPTS: Final = {
    "assets/javascripts/mermaid.js": MODULES / "@mermaid-js/tiny/dist/mermaid.tiny.js",
    "assets/javascripts/iframe-worker.js": MODULES / "iframe-worker/shim/index.js",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have fences of mermaid become diagrams, and the search work in a directory, by the scripts that are installed."""
    if all(path.is_file() for path in SCRIPTS.values()):
        fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
        fences["custom_fences"] = [{"name": "mermaid", "class": "mermaid", "format": fence_code_format}]
    else:
        config.extra["polyfills"] = []
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the scripts to the site."""
    for uri, path in SCRIPTS.items():
        if path.is_file():
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files
