"""Pin everything that the Makefile installs, in hack/requirements; `--check` compares the pins with pyproject.toml.

    runtime.txt    what `trainmaster` needs, and nothing else: the image of the controller is made of it
    build.txt      hatchling, which builds the wheel
    local.txt      what the extra `local` adds
    uvloop.txt     what the extra `uvloop` adds, which the image has
    tracing.txt    what the extra `tracing` adds
    postgres.txt   what the extra `postgres` adds
    dev.txt        for `make test`, `make check`, `make generate` and `make lock`
    types.txt      pyright, for `make check`
    deploy.txt     programs that render and check what is in deploy/, for `make test-nightly` and `make check`
    sdk.txt        client libraries of others, which `make test` runs against the embedded cluster
    examples.txt   what every script in examples/ imports
    frameworks.txt JAX, XGBoost and what else `make test-nightly` trains with
    torch.txt      PyTorch, and what it needs
    docs.txt       MkDocs, for `make docs`
    lowest.txt     the oldest versions that pyproject.toml allows `trainmaster`, for `make test-lowest`
    heavy.txt      TensorFlow and PaddlePaddle, with what runs the tests, for `make test-frameworks`

Each file pins versions and the hashes of all their files, so that it serves every platform, and but for the last two,
which have environments of their own, agrees with the ones above it. torch.txt has no hashes: which build of PyTorch is
right depends on the machine (a CPU build is another file than the one with CUDA, and comes from another index), and pip
wants hashes for everything or nothing. For the same reason it leaves out the CUDA packages, which the builds that need
them pin themselves.

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

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "hack/requirements"
GROUPS = {
    "dev": ("test", "check", "generate", "lock"),
    "types": ("types",),
    "deploy": ("deploy",),
    "sdk": ("sdk",),
    "examples": ("examples",),
    "frameworks": ("frameworks",),
    "torch": ("torch",),
    "docs": ("docs",),
}
"""Dependency groups of pyproject.toml by lock file; runtime.txt has the project's dependencies, build.txt those of its
build system, and extras have files of their names."""

_UNHASHED = {"torch"}
_LOWEST = "lowest"
_HEAVY = "heavy"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)
_LOCAL_VERSION = re.compile(r"^(torch==[^\s+]+)\+\S+", re.MULTILINE)
_CUDA = re.compile(r"^(?:cuda-|nvidia-|triton==).*\n", re.MULTILINE)


def wanted() -> dict[str, list[str]]:
    """Return the requirements of each lock file, as pyproject.toml states them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    extras = project["project"]["optional-dependencies"]
    installed = {"runtime": project["project"]["dependencies"], "build": project["build-system"]["requires"], **extras}
    requirements = {lock: list(needed) for lock, needed in installed.items()}
    for lock, names in GROUPS.items():
        requirements[lock] = [requirement for name in names for requirement in groups[name]]
    lowest_of_all = [lowest(requirement) for lock in installed for requirement in installed[lock]]
    requirements[_LOWEST] = [*lowest_of_all, *groups["test"], *groups["generate"]]
    all_installed = [requirement for lock in installed for requirement in installed[lock]]
    requirements[_HEAVY] = [*all_installed, *groups["test"], *groups["generate"], *groups[_HEAVY]]
    return requirements


def lowest(requirement: str) -> str:
    """Turn a requirement's lower bound into a pin."""
    return requirement.replace(">=", "==", 1)


def compile_locks(*, upgrade: bool) -> None:
    """Write all lock files. The work is done in an empty directory, so that no path of this machine gets into them."""
    LOCKS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        constraints: list[str] = []
        for lock, requirements in wanted().items():
            lines = [*(f"-c {name}.txt" for name in constraints if lock not in {_LOWEST, _HEAVY}), *requirements]
            (work / f"{lock}.in").write_text("\n".join(lines) + "\n", encoding="utf-8")
            output = work / f"{lock}.txt"
            if (LOCKS / output.name).exists():
                shutil.copy(LOCKS / output.name, output)
            _compile(lock, work, upgrade=upgrade)
            text = output.read_text(encoding="utf-8")
            if lock == "torch":
                text = _CUDA.sub("", _LOCAL_VERSION.sub(r"\1", text))
            (LOCKS / output.name).write_text(text, encoding="utf-8")
            constraints.append(lock)


def _compile(lock: str, work: Path, *, upgrade: bool) -> None:
    command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--strip-extras", "--allow-unsafe"]
    command += ["--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--annotation-style=line"]
    command += [] if lock in _UNHASHED else ["--generate-hashes"]
    command += ["--upgrade"] if upgrade else []
    environment = os.environ | {"CUSTOM_COMPILE_COMMAND": "make lock"}
    command += [f"--output-file={lock}.txt", f"{lock}.in"]
    subprocess.run(command, cwd=work, env=environment, check=True)  # noqa: S603 - all words are written here


def problems() -> list[str]:
    """Return what pyproject.toml asks for and the lock files do not give."""
    found = []
    for lock, requirements in wanted().items():
        path = LOCKS / f"{lock}.txt"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        pins = {canonicalize_name(name): version for name, version in _PIN.findall(text)}
        for requirement in map(Requirement, requirements):
            if requirement.marker and not requirement.marker.evaluate():
                continue  # for another platform: pip-compile pins what the one that it runs on needs
            version = pins.get(canonicalize_name(requirement.name))
            if version is None or version not in requirement.specifier:
                found.append(f"{path.relative_to(ROOT)}: {requirement} is not met; run `make lock`")
    return found


def main() -> int:
    """Run the command; the exit status is 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a requirement is not pinned")
    parser.add_argument("--upgrade", action="store_true", help="move every pin to the newest version")
    arguments = parser.parse_args()
    if not arguments.check:
        compile_locks(upgrade=arguments.upgrade)
    found = problems()
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
