"""Programs of Debian packages, and what the Dockerfile says."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

UNPACKED = Path(__file__).resolve().parents[2] / ".cache/debian/bin"


def program(name: str) -> str:
    """Return the path of a program; where there is none, the test is skipped with the reason."""
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        pytest.skip(f"{name} is not installed: hack/debian_packages.sh {name}")
    return found


ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of the last stage."""

    environment: dict[str, str]
    user: str
    entrypoint: list[str]


def read_dockerfile(path: Path = DOCKERFILE) -> Dockerfile:
    """Read a Dockerfile, as far as ours goes."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    last = re.split(r"^FROM ", text, flags=re.MULTILINE)[-1]
    instructions = dict(line.split(maxsplit=1) for line in last.splitlines()[1:] if line.strip())
    return Dockerfile(
        environment=dict(pair.split("=", 1) for pair in instructions["ENV"].split()),
        user=instructions["USER"].strip(),
        entrypoint=json.loads(instructions["ENTRYPOINT"]),
    )
