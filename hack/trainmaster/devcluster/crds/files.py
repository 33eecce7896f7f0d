"""Where the files of custom resource definitions are.

The definitions of TrainJobs and runtimes belong to `deploy/crds`, where users of real clusters find them. A built wheel
carries them beside those of JobSet and of the gang schedulers; in a checkout they are read from where they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGED: Final = Path(__file__).parent
_CHECKOUT: Final = Path(__file__).parents[4] / "deploy" / "crds"


def definition_file(name: str) -> Path:
    """Find the file of a definition."""
    for directory in (_PACKAGED, _CHECKOUT):
        if (directory / name).is_file():
            return directory / name
    raise FileNotFoundError(f"{name} is neither in {_PACKAGED} nor in {_CHECKOUT}; install trainmaster again")
