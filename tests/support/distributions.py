"""Distributions that look installed: their metadata and modules are in a directory that is imported from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest


class Distributions:
    """What is installed in a directory.

    Args:
        directory: Where to.
        monkeypatch: Takes it away again.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        monkeypatch.syspath_prepend(directory)

    def install(self, name: str, plugins: Mapping[str, str], *, version: str = "1.2", module: str = "") -> None:
        """Install a distribution.

        Args:
            name: Its name; that of its only module is the same, with underscores.
            plugins: Its plugins, each with its class: `{"cost-labels": "CostLabels"}`.
            version: Its version.
            module: What is in its module.
        """
        module_name = name.replace("-", "_")
        (self._directory / f"{module_name}.py").write_text(dedent(module))
        info = self._directory / f"{module_name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        points = "".join(f"{plugin} = {module_name}:{klass}\n" for plugin, klass in plugins.items())
        (info / "entry_points.txt").write_text(f"[trainmaster.plugins]\n{points}")
