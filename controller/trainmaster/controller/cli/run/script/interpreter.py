"""What the Python of an embedded cluster has: its pods run with the environment in which the cluster was started.

That need not be the environment of this command, so it is asked: this interpreter if it is the same one, else that one.
Nothing of what is looked for is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_ASK: Final = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""
_TIMEOUT: Final = 10.0

_DISTRIBUTIONS: Final = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "google": "",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""What modules are called on PyPI where that is another name; empty: that depends."""


def is_this(python: str) -> bool:
    """Whether a path is that of the interpreter that runs this; the same program in another environment is not."""
    there, here = Path(python).absolute(), Path(sys.executable).absolute()
    return there.parent == here.parent and there.resolve() == here.resolve()  # it has several names in each


def missing_modules(names: Sequence[str], *, python: str) -> list[str]:
    """Return which modules are not installed for an interpreter; none if it cannot be asked."""
    if not names:
        return []
    if is_this(python):
        return [name for name in names if name not in sys.modules and find_spec(name) is None]
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that runs the cluster of this user
            [python, "-P", "-c", _ASK, *names], check=True, capture_output=True, timeout=_TIMEOUT, text=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return [name for name in names if name in found]


def installation_advice(modules: Sequence[str], *, python: str) -> str:
    """Return the command that installs modules for an interpreter."""
    names = [name for name in (_DISTRIBUTIONS.get(module, module) for module in modules) if name]
    return f"{python} -m pip install {' '.join(names)}" if names else f"install it for {python}"
