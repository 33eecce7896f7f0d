"""Pin what the Makefile and the image install; `--check` compares the pins with pyproject.toml.

    hack/requirements.txt        everything, as constraints: `pip install -c` takes these versions
    hack/image/requirements.txt  what the image of the controller is made of: the same versions, with hashes

Constraints cannot have hashes: pip then wants everything to be named with its version. What is delivered has them.

`--lowest` prints constraints for `make test-lowest`: the oldest versions that pyproject.toml allows `trainmaster`, and
the pins of what these do not need; what they do need is the newest that they take.

What only another platform or interpreter needs, by its marker, is not pinned: there, `make lock` has to be run again.
Existing pins stay as they are unless something rules them out, or `--upgrade` is given.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ALL = Path("hack/requirements.txt")
IMAGE = Path("hack/image/requirements.txt")

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[.*?\])?>=([^\s;,]+)")
_LOCAL_VERSION = re.compile(r"^(torch==[^\s+]+)\+\S+", re.MULTILINE)
_CUDA = re.compile(r"^(?:cuda-|nvidia-|triton==).*\n", re.MULTILINE)
"""Which build of PyTorch is right depends on the machine; those that need CUDA pin its packages themselves."""


def wanted() -> dict[Path, list[str]]:
    """Return the requirements of each file, as pyproject.toml states them."""
    document = _document()
    extras = document["project"]["optional-dependencies"]
    shared = [*document["project"]["dependencies"], *document["build-system"]["requires"]]
    groups = [each for group in document["dependency-groups"].values() for each in group if isinstance(each, str)]
    everything = [*shared, *(each for extra in extras.values() for each in extra), *groups]
    return {ALL: everything, IMAGE: [*shared, *extras["uvloop"]]}


def lowest() -> list[str]:
    """Return constraints by which pip takes the oldest dependencies of the project."""
    project = _document()["project"]
    extras = project["optional-dependencies"].values()
    needed = [*project["dependencies"], *(each for extra in extras for each in extra)]
    oldest = {found[1]: found[2] for each in needed if (found := _BOUND.match(each))}
    lines = [line.partition("# via ") for line in (ROOT / ALL).read_text(encoding="utf-8").splitlines()]
    pins = {found[1]: (pin.strip(), users.split(", ")) for pin, _, users in lines if (found := _PIN.match(pin))}
    free = set(oldest)
    while more := {name for name, (_, users) in pins.items() if name not in free and not free.isdisjoint(users)}:
        free |= more
    kept = [pin for name, (pin, _) in pins.items() if name not in free]
    return [*(f"{name}=={version}" for name, version in oldest.items()), *kept]


def compile_locks(*, upgrade: bool) -> None:
    """Write both files. The work is done in an empty directory, so that no path of this machine gets into them."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        for path, requirements in wanted().items():
            source, made = work / "pyproject.in", work / "pins.txt"
            constraints = [] if path == ALL else [f"-c {ALL.name}"]
            source.write_text("\n".join([*constraints, *requirements]) + "\n", encoding="utf-8")
            shutil.copy(ROOT / ALL, work)
            shutil.copy(ROOT / path, made)
            _compile(source, made, hashes=path == IMAGE, upgrade=upgrade)
            text = made.read_text(encoding="utf-8")
            (ROOT / path).write_text(_CUDA.sub("", _LOCAL_VERSION.sub(r"\1", text)), encoding="utf-8")


def _compile(source: Path, made: Path, *, hashes: bool, upgrade: bool) -> None:
    command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--strip-extras", "--allow-unsafe"]
    command += ["--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--annotation-style=line"]
    command += ["--generate-hashes"] if hashes else []
    command += ["--upgrade"] if upgrade else []
    environment = os.environ | {"CUSTOM_COMPILE_COMMAND": "make lock"}
    command += [f"--output-file={made.name}", source.name]
    subprocess.run(command, cwd=source.parent, env=environment, check=True)  # noqa: S603 - all words are written here


def problems() -> list[str]:
    """Return what pyproject.toml asks for and the files do not give."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - `--lowest` runs before anything is installed
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    found = []
    for path, requirements in wanted().items():
        pins = {canonicalize_name(name): version for name, version in _PIN.findall((ROOT / path).read_text("utf-8"))}
        for requirement in map(Requirement, requirements):
            if requirement.marker and not requirement.marker.evaluate():
                continue  # for another platform: pip-compile pins what the one that it runs on needs
            version = pins.get(canonicalize_name(requirement.name))
            if version is None or version not in requirement.specifier:
                found.append(f"{path}: {requirement} is not met; run `make lock`")
    return found


def _document() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def main() -> int:
    """Run the command; the exit status is 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a requirement is not pinned")
    parser.add_argument("--lowest", action="store_true", help="print constraints for the oldest dependencies")
    parser.add_argument("--upgrade", action="store_true", help="move every pin to the newest version")
    arguments = parser.parse_args()
    if arguments.lowest:
        print("\n".join(lowest()))
        return 0
    if not arguments.check:
        compile_locks(upgrade=arguments.upgrade)
    found = problems()
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
