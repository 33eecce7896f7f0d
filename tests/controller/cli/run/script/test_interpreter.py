"""What the Python of a cluster has."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from trainmaster.controller.cli.run.script.interpreter import installation_advice, is_this, missing_modules

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
