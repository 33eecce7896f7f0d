"""Programs of Debian packages, as hack/debian_packages.sh provides them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

UNPACKED = Path(__file__).resolve().parents[2] / ".cache/debian/bin"


def program(name: str) -> str:
    """Return the path of a program; where there is none, the test is skipped with the reason."""
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        pytest.skip(f"{name} is not installed: hack/debian_packages.sh {name}")
    return found
