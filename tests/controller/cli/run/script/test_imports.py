"""What a program imports, without running anything, and what of that the Python of a cluster has."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from trainmaster.controller.cli.run.script.imports import (
    Imports,
    imports_of,
    installation_advice,
    is_this,
    missing_modules,
)


def imports(root: Path, text: str, **files: str) -> Imports:
    for name, content in {"train": text, **files}.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return imports_of(root / "train.py", text, root=root)


def test_modules_beside_the_program_count_with_what_they_import(tmp_path: Path) -> None:
    found = imports(
        tmp_path,
        "import os, lib.model\nfrom lib import data as d\nfrom helpers import *\n",
        lib__model="from . import layers\nimport torch\n",
        lib__layers="from .deep.er import x\n",
        lib__deep__er="import numpy.linalg\n",
        lib__data="import lib.model, train\n",
        helpers="import jax\n",
        unused="import xgboost\n",
    )
    assert found.installed == {"torch": True, "numpy": True, "jax": True}
    names = ("train", "lib/model", "lib/layers", "lib/deep/er", "lib/data", "helpers")
    assert found.local == {tmp_path / f"{name}.py" for name in names}


def test_what_is_imported_under_a_condition_is_not_certainly_needed(tmp_path: Path) -> None:
    text = """
from typing import TYPE_CHECKING
try:
    import a
except ImportError:
    import b
if TYPE_CHECKING:
    import c
def main():
    import d
class E:
    import e, f
if True:
    import f
"""
    assert imports(tmp_path, text).installed == {"a": False, "b": False, "c": False, "d": True, "e": True, "f": True}


def test_a_directory_gives_way_to_what_is_installed(tmp_path: Path) -> None:
    # A directory without modules gives way to what is installed. `wandb/` is what wandb writes, beside the script.
    (tmp_path / "wandb").mkdir()
    assert imports(tmp_path, "import wandb\n").installed == {"wandb": True}
    # A directory gives way to a package that is installed.
    found = imports(tmp_path, "from pytest import raises\n", pytest__tests="")
    assert (found.installed, found.absent) == ({"pytest": True}, [])


def test_a_package_beside_the_program_is_never_to_be_installed(tmp_path: Path) -> None:
    """Whoever has taken its name on PyPI is a stranger."""
    for name in ("utils", "whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "utils" / "__init__.py").write_text("from .gone import y\n")
    (tmp_path / "whole" / "__init__.py").touch()
    imports(tmp_path, "", compiled__readme="")
    (tmp_path / "compiled" / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    found = imports(
        tmp_path,
        "from utils.common import x\nimport bare.net.deep\nfrom bare import head, there\nfrom whole import attribute\n"
        "from compiled.fast import f\ntry:\n    import utils.perhaps\nexcept ImportError:\n    pass\n",
        bare__there="",
        bare__net__other="",
    )
    assert found.absent == [
        "utils has no module common: utils/common.py does not exist",
        "bare.net has no module deep: bare/net/deep.py does not exist",
        "bare has no module head: bare/head.py does not exist",
        "utils has no module gone: utils/gone.py does not exist",
    ]
    assert not any(found.installed.values())


def test_modules_that_cannot_be_read_and_circles_are_no_obstacle(tmp_path: Path) -> None:
    found = imports(tmp_path, "import a, broken\n", a="import b", b="import a, torch", broken="def (")
    assert found.installed == {"torch": True}
    assert found.local == {tmp_path / f"{name}.py" for name in ("train", "a", "b", "broken")}
    # Imports that lead out of the directory are nobodys.
    assert imports(tmp_path, "from . import x\nfrom ...y import z\n").installed == {}
    # A program that is no python says where.
    with pytest.raises(SyntaxError) as caught:
        imports(tmp_path, "import os\nimport\n")
    assert caught.value.lineno == 2


NAMES = ["json", "pytest", "no_such_module_here"]


def test_this_interpreter_is_asked_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("subprocess.run")
    assert is_this(sys.executable)
    assert missing_modules(NAMES, python=sys.executable) == ["no_such_module_here"]
    # Modules are installed by the names of their packages.
    assert installation_advice(["sklearn", "torch"], python="/venv/bin/python") == (
        "/venv/bin/python -m pip install scikit-learn torch"
    )


@pytest.mark.nightly
def test_another_environment_is_asked_in_its_own_words(tmp_path: Path) -> None:
    """It has the same interpreter, and other modules."""
    venv.create(tmp_path / "other", symlinks=True)
    python = str(tmp_path / "other" / "bin" / "python")
    assert not is_this(python)
    assert missing_modules(NAMES, python=python) == ["pytest", "no_such_module_here"]


@pytest.mark.nightly
@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho no JSON\n", None])
def test_one_that_does_not_answer_misses_nothing(tmp_path: Path, content: str | None) -> None:
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
        python.chmod(0o755)
    assert missing_modules(NAMES, python=str(python)) == []
