"""The comparison of what managers request in the tests with what they may: that it fails a run when it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from support.manifests import ROOT
from support.rights import Recording

from trainmaster.controller.manager.parts import USER_AGENT
from trainmaster.devcluster.apiserver.filters.authorization import VARIABLE


def recording(directory: Path, *requests: tuple[str, str, str], program: str = USER_AGENT) -> Recording:
    """What a run leaves behind in which these requests were made."""
    lines = [
        {"program": program, "verb": verb, "group": "", "resource": resource, "name": name, "test": "test_x (call)"}
        for verb, resource, name in requests
    ]
    (directory / "1.requests").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return Recording(directory)


def test_a_request_that_no_right_covers_is_told_with_its_test(tmp_path: Path) -> None:
    """`update` is granted for one Secret alone; what the command line requests is not the manager's business."""
    covered = [("list", "configmaps", ""), ("patch", "secrets", "kubeflow-trainer-webhook-cert")]
    made = recording(tmp_path, *covered, ("update", "secrets", "other"), ("delete", "limitranges", "a"))
    assert made.missing() == ["delete limitranges a (test_x)", "update secrets other (test_x)"]
    theirs = recording(tmp_path, ("delete", "limitranges", "a"), program="trainmaster-run/1")
    assert theirs.missing() == []


def test_a_process_that_is_killed_may_leave_half_a_line(tmp_path: Path) -> None:
    recording(tmp_path, ("list", "configmaps", ""))
    with (tmp_path / "1.requests").open("ab") as file:
        file.write(b'\n{"program":"trainm')
    assert [str(right) for right in Recording(tmp_path).used()] == ["list configmaps"]


def test_a_right_that_no_request_used_is_told(tmp_path: Path) -> None:
    made = recording(tmp_path, ("list", "configmaps", ""))
    assert [str(right) for right in made.used()] == ["list configmaps"]
    idle = {str(right) for right in made.unused()}
    assert {"watch configmaps", "create secrets"} <= idle
    assert "list configmaps" not in idle


SUITE = """
import json, os, pathlib, pytest

def test_that_has_a_manager_request_something() -> None:
    line = {"program": "PROGRAM", "verb": "list", "group": "", "resource": "configmaps", "name": "", "test": "a (call)"}
    (pathlib.Path(os.environ["VARIABLE"]) / "1.requests").write_text(json.dumps(line))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "code"), [([], 1), (["-m", "not nightly"], 0), (["-k", "manager"], 0), (["suite/test_a.py"], 0)]
)
def test_a_whole_run_fails_for_a_right_that_no_request_used(tmp_path: Path, arguments: list[str], code: int) -> None:
    """What somebody selects is not the whole, and neither is the gate."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite/test_a.py").write_text(SUITE.replace("PROGRAM", USER_AGENT).replace("VARIABLE", VARIABLE))
    (tmp_path / "conftest.py").write_text(
        "from support.rights import RightsPlugin\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(RightsPlugin(config))\n"
    )
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = suite\npythonpath = {ROOT / 'tests'}\nmarkers = nightly\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others take longer to import than all of this
    run = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == code, run.stdout
    assert ("granted, and used by no test" in run.stdout) == bool(code)
    assert "1 passed" in run.stdout
