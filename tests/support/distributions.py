"""Distributions that look installed, in a directory that is imported from, and tiny wheels that can be."""

import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import ModuleType

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


def build_wheel(directory: Path, name: str, version: str, *, source: str = "", script: str = "") -> Path:
    """Write a wheel with one module, which has `version` and the `source`; `script` is a console script: its `main`."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n{source}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(_record(*item) for item in files.items()) + f"{info}/RECORD,,\n")
    return path


def _record(file: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{file},sha256={digest},{len(text.encode())}\n"


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
