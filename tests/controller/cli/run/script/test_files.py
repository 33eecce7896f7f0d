"""What a program takes along: files of its directory, notebooks as scripts, and what it imports."""

import json
import os
import socket
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from trainmaster.controller.cli.run.script.files import Files, collect_files
from trainmaster.controller.cli.run.script.imports import (
    Imports,
    imports_of,
    installation_advice,
    is_this,
    missing_modules,
)
from trainmaster.controller.cli.run.script.notebook import Notebook, cell_of, convert_notebook
from trainmaster.controller.cli.run.script.options import ProgramError


def write(root: Path, *paths: str, content: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


def collect(root: Path, *needed: str) -> Files:
    return collect_files(root, needed=[root / path for path in needed], made={})


def test_what_belongs_to_no_program_is_left_out_unless_it_imports_it(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/a.py", "lib/table.csv", ".env", ".git/config", "lib/__pycache__/a.cpython-311.pyc")
    write(tmp_path, "data/big.bin", "checkpoints/1.bin", "model.pt", "lib/deep/model.safetensors", "wandb/run.log")
    write(tmp_path, "mine/pyvenv.cfg", "mine/lib/torch.py", "pkg.egg-info/PKG-INFO")
    found = collect(tmp_path)
    assert sorted(found.files) == ["lib/a.py", "lib/table.csv", "train.py"]
    assert found.left_out == [
        *("checkpoints/", "data/", "lib/deep/model.safetensors", "mine/", "model.pt", "pkg.egg-info/", "wandb/")
    ]
    # What the program imports is taken wherever it is.
    write(tmp_path, "data/__init__.py", "data/loader.py")
    found = collect(tmp_path, "train.py", "data/__init__.py", "data/loader.py")
    assert sorted(found.files) == ["data/__init__.py", "data/loader.py", "lib/a.py", "lib/table.csv", "train.py"]


def test_the_ignore_file_has_the_last_word(tmp_path: Path) -> None:
    write(
        tmp_path, "train.py", "notes.txt", "keep.txt", "data/small.csv", "data/big.bin", ".env", "sub/x.tmp", "sub/y.py"
    )
    write(
        tmp_path, ".trainmasterignore", content="# a comment\n*.txt\n!keep.txt\n!data/\ndata/*.bin\n!.env\n/sub/*.tmp\n"
    )
    assert sorted(collect(tmp_path).files) == [".env", "data/small.csv", "keep.txt", "sub/y.py", "train.py"]


def test_only_regular_files_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    write(project, "train.py")
    write(tmp_path, "secret.txt")
    (project / "link.txt").symlink_to(tmp_path / "secret.txt")
    (project / "up").symlink_to(tmp_path)
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(project)  # names of sockets are short
        server.bind("socket")
        found = collect(project)
    assert sorted(found.files) == ["train.py"]
    assert found.left_out == [f"{name} (no regular file)" for name in ("link.txt", "pipe", "socket", "up")]


def test_contents_come_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, "a b/ä.txt", "a_b/x.txt", "a/b_x.txt", "run.sh")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "run.sh").chmod(0o755)
    found = collect(tmp_path)
    config_map = found.config_map("files", {"a": "b"})
    assert config_map["metadata"] == {"name": "files", "labels": {"a": "b"}}
    assert config_map["binaryData"] == {"binary": "/wA="}
    items = found.items()
    assert {item["path"] for item in items} == {"a b/ä.txt", "a_b/x.txt", "a/b_x.txt", "run.sh", "binary"}
    assert {item["key"] for item in items} == {*config_map["data"], "binary"}
    assert len({item["key"] for item in items}) == 5
    assert [item["path"] for item in items if item.get("mode") == 0o755] == ["run.sh"]


def test_what_is_too_large_is_told_with_the_largest_files(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.bin").write_bytes(bytes(number * 100 * 1024))
    with pytest.raises(ProgramError) as caught:
        collect(tmp_path)
    first, *largest, last = str(caught.value).splitlines()
    assert (
        first
        == f"the files in {tmp_path} are too large to be brought along: 3.5 MiB in 9 files, and a ConfigMap holds 1 MiB"
    )
    assert [line.split()[-1] for line in largest] == ["8.bin", "7.bin", "6.bin", "5.bin", "4.bin"]
    assert last.startswith(f"  what next: name what the program does not need in {tmp_path}/.trainmasterignore")


def test_a_name_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    try:
        (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("this file system has names that are text")
    found = collect(tmp_path)
    assert sorted(found.files) == ["train.py"]
    assert found.left_out == [r"'\udcff.txt' (a name that is no text)"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "theirs.txt")
    (tmp_path / "theirs.txt").chmod(0)
    with pytest.raises(ProgramError, match=r"theirs.txt: cannot be read: Permission denied; name it in"):
        collect(tmp_path)


def convert(*cells: Any, **fields: Any) -> Notebook:
    tree = {"nbformat": 4, "cells": [{"cell_type": "code", "source": each} for each in cells], **fields}
    return convert_notebook(json.dumps(tree).encode(), title="a.ipynb")


def run(notebook: Notebook) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(notebook.text, "notebook", "exec"), names)
    return names


def test_cells_follow_each_other_as_code() -> None:
    markdown = {"cell_type": "markdown", "source": "1 / 0"}
    tree = {"cells": [{"cell_type": "code", "source": ["x = 1\n", "y = x + 1"]}, markdown]}
    tree["cells"].append({"cell_type": "code", "source": "z = y + 1\n"})
    notebook = convert_notebook(json.dumps(tree).encode(), title="a.ipynb")
    names = run(notebook)
    assert (names["x"], names["y"], names["z"]) == (1, 2, 3)
    assert notebook.left_out == ()
    assert cell_of(notebook.text, notebook.text.splitlines().index("z = y + 1") + 1) == (3, 1)


def test_magics_become_comments_where_they_are_magics() -> None:
    notebook = convert(
        "%matplotlib inline\n!pip install x\nif True:\n    %time x = 1\nz = 3",
        'text = """\n%d items\n!not a command\n"""\nrest = (7\n% 4)',
        "%%time\ntimed = 1",
        "%%bash\nrm -rf nothing\nfi fi",
        "?str\nstr.join?\nrun??",
    )
    names = run(notebook)
    assert names["z"] == 3
    assert names["text"] == "\n%d items\n!not a command\n"
    assert (names["rest"], names["timed"]) == (3, 1)
    assert notebook.left_out == (
        "cell 1: %matplotlib inline",
        "cell 1: !pip install x",
        "cell 1: %time x = 1",
        "cell 3: %%time",
        "cell 4: %%bash",
        "cell 5: ?str",
        "cell 5: str.join?",
        "cell 5: run??",
    )


def test_an_error_is_printed_with_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also that which it was raised from, and in a notebook that begins with an import from the future."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    broken = "try:\n    half(0)\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error"
    notebook = convert("from __future__ import annotations", "def half(x):\n    return 1 / x", broken)
    script = tmp_path / "a.py"
    script.write_text(notebook.text)
    try:
        exec(compile(notebook.text, str(script), "exec"), {})
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    told = capsys.readouterr().err
    for place in ('cell 2", line 2, in half\n    return 1 / x', 'cell 3", line 2, in <module>\n    half(0)'):
        assert f'  File "a.ipynb, {place}\n' in told
    assert "cell 3\", line 4, in <module>\n    raise ValueError('no') from error\n" in told
    assert str(script) not in told


def test_what_jupyter_gives_its_cells_is_there_if_they_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = convert(
        "from __future__ import annotations\nx = 1",
        "display(x, 'a', display_id=True)\non_colab = 'google.colab' in str(get_ipython())",
        "display(3)",
    )
    assert run(notebook)["on_colab"] is False
    assert capsys.readouterr().out == "1\na\n3\n"
    assert notebook.text.count("def display") == 1
    assert cell_of(notebook.text, notebook.text.splitlines().index("display(3)") + 1) == (3, 1)
    assert "def display" not in convert("x = 'display'").text


def test_a_notebook_keeps_a_display_of_its_own() -> None:
    for own in ("def display(x): print('own', x)", "display = print", "from own import a as display"):
        assert convert(own, "display(3)").text.endswith(f"\n\n# cell 1\n{own}\n\n# cell 2\ndisplay(3)\n")


def test_what_is_no_notebook_is_refused() -> None:
    for content, told in (
        (b"{", "it is no notebook: "),
        (b"[]", "it is no notebook of version 4"),
        (b'{"worksheets": []}', "it is no notebook of version 4"),
        (b"\xff\xfe\x00", "it is no notebook: "),
        (b'{"cells": []}', "it has no cell with code"),
        (b'{"cells": [], "metadata": {"kernelspec": {"language": "julia"}}}', "it is a notebook of julia"),
        (b"[" * 100_000, "it is no notebook"),
    ):
        with pytest.raises(ProgramError, match=r"^a\.ipynb: ") as caught:
            convert_notebook(content, title="a.ipynb")
        assert told in str(caught.value)
    odd = b'{"cells": [1, {"cell_type": "code", "source": 7}, {"cell_type": []}]}'
    assert run(convert_notebook(odd, title="a.ipynb"))


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
