"""Notebooks as scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.controller.cli.run.script.errors import ProgramError
from trainmaster.controller.cli.run.script.notebook import Notebook, cell_of, convert_notebook


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
        "?str",
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
    )


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
        assert convert(own, "display(3)").text == f"# cell 1\n{own}\n\n# cell 2\ndisplay(3)\n"


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
