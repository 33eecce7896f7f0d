"""What a container says that could not be started: the words of a container runtime, then what helps here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

_NOT_FOUND: Final = "executable file not found in $PATH"
_NO_SUCH_FILE: Final = "no such file or directory"
_NO_IMAGES: Final = "images are not read here, containers run the programs of this machine"

_PACKAGES: Final = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "horovodrun": "horovod",
    "ray": "ray",
    "torchrun": "torch",
    "tune": "torchtune",
}
"""Programs that start training, and the packages that bring them."""


def start_error(problem: str, *, argv: Sequence[str], search_path: str, own: Path) -> str:
    """Give the termination message of a container whose first process could not be started.

    Args:
        problem: What the shim says.
        argv: The command with its arguments.
        search_path: PATH of the container.
        own: The directory of the kubelet; what is below it says nothing to people.
    """
    text = f"unable to start container process: {problem}"
    if problem.endswith(_NOT_FOUND):
        shown = [directory for directory in search_path.split(os.pathsep) if own not in Path(directory).parents]
        return f"{text}: {_remedy(argv[0], search_path)} (PATH is {os.pathsep.join(shown)})"
    if problem.endswith(_NO_SUCH_FILE):
        return f"{text}: {_NO_IMAGES}"
    return text


def _remedy(program: str, path: str) -> str:
    words = program.split()
    if len(words) > 1:
        return f"a command is a list of words: write {json.dumps(words[:3])[:-1]}{', ...' if words[3:] else ''}]"
    if package := _PACKAGES.get(program):
        return (
            f"{program} is not installed in the environment of the cluster: {sys.executable} -m pip install {package}"
        )
    alike = _most_alike(program, path)
    return f"did you mean {alike}? {_NO_IMAGES.capitalize()}" if alike else _NO_IMAGES


def _most_alike(program: str, path: str) -> str:
    """Find a program on the search path that may have been meant, and begins as this one does; empty if none."""
    found: set[str] = set()
    for directory in filter(None, path.split(os.pathsep)):
        try:
            with os.scandir(directory) as entries:
                found.update(entry.name for entry in entries if entry.name[:1] == program[:1])
        except OSError:  # a search path may name what does not exist
            continue
    return next(iter(get_close_matches(program, sorted(found), n=1, cutoff=0.75)), "")
