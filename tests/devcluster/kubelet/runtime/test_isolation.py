"""The runtime imports the standard library and nothing of ours but itself: it starts fast and forks cheaply."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import trainmaster.devcluster
from trainmaster.devcluster.kubelet import runtime

pytestmark = pytest.mark.nightly

MODULES = sorted(module.name for module in pkgutil.iter_modules(runtime.__path__, f"{runtime.__name__}."))
ROOT = Path(trainmaster.devcluster.__path__[0]).parents[1]

IMPORT = """
import importlib, json, sys
before = set(sys.modules)
sys.path.append(sys.argv[1])
importlib.import_module(sys.argv[2])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_runtime_needs_no_other_package(module: str) -> None:
    """Without site-packages, as the supervisor runs: an import of anything else would fail or show up."""
    command = [sys.executable, "-I", "-S", "-c", IMPORT, str(ROOT), module]
    imported = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert module in imported
    above = {"trainmaster", "trainmaster.devcluster", "trainmaster.devcluster.kubelet", runtime.__name__}
    ours = {name for name in imported if name.partition(".")[0] == "trainmaster"}
    assert ours <= above | set(MODULES)
    foreign = {name.partition(".")[0] for name in set(imported) - ours}
    assert foreign <= sys.stdlib_module_names
    assert not foreign & {"asyncio", "pathlib", "subprocess"}, "what is slow to import"
