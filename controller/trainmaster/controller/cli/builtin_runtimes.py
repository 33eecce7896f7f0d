"""The runtimes that come with Trainmaster, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGED: Final = Path(__file__).parent / "runtimes"
_CHECKOUT: Final = Path(__file__).parents[4] / "deploy" / "runtimes"


def built_in_names() -> list[str]:
    """Return their names."""
    return sorted(path.stem for path in built_in_directory().glob("*.yaml"))


def built_in_file(name: str) -> Path | None:
    """Return the file of one of them, if there is such a one."""
    return built_in_directory() / f"{name}.yaml" if name in built_in_names() else None


def built_in_directory() -> Path:
    """Return where they are: in a checkout they are read from where users of real clusters find them."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
