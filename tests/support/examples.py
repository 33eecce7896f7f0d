"""The examples that are packages of their own, as if they were installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def install(example: Path, directory: Path) -> None:
    """Put a package into a directory as pip would: its modules, and what says which entry points it has."""
    read = tomllib.loads((example / "pyproject.toml").read_text(encoding="utf-8"))
    project = read["project"]
    info = directory / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(points))
    for module in read["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]:
        shutil.copy(example / module, directory)


def module_of(path: Path) -> ModuleType:
    """Import a module of a package that is not installed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Models of pydantic look for the names of their fields' types there.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def start_its_tests(example: Path, installed: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start the tests of a package where it is installed; what they print goes to a file."""
    with output.open("wb") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=example,
            env={"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
