"""The examples that are packages of their own, as if they were installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tomllib
from pathlib import Path

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


async def run_its_tests(example: Path, installed: Path, *arguments: str) -> tuple[int | None, str]:
    """Run the tests of a package where it is installed; returns the exit code and what was printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments),
        cwd=example,
        env={"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()
