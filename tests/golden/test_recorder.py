"""The recorder itself, where it lies beside the checkout: the same cases, compared by the tool that recorded them.

It brings its own definitions and looks at Trainmaster from outside, so it proves that our copy of the cases and our way
of comparing are no easier than the original's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from support.golden import load_yaml
from support.stack import api_server, manager

from trainmaster.controller.kube.rest.resources import Resource

HERE = Path(__file__).parent
RECORDER = Path(os.environ.get("TRAINMASTER_GOLDEN_DIR", HERE.parents[2] / "shared" / "golden"))
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


@pytest.mark.golden
@pytest.mark.timeout(300)
@pytest.mark.skipif(not (RECORDER / "record.py").exists(), reason="the recorder is not beside this checkout")
async def test_the_recorder_agrees_with_our_copy_of_its_cases(tmp_path: Path) -> None:
    different = {entry["case"] for entry in load_yaml((HERE / "differences.yaml").read_text())["cases"]}
    claimed = {path.name for path in (HERE / "cases").glob("*.yaml") if path.stem not in different}
    recorded = sorted(claimed & {path.name for path in (RECORDER / "v2" / "build").glob("*.yaml")})
    assert recorded
    async with api_server(tmp_path, definitions=False) as stack:
        for path in sorted((RECORDER / "crds").glob("*.yaml")):
            await stack.client.apply(DEFINITIONS, load_yaml(path.read_text()), field_manager="tests")
        async with manager(stack.access):
            assert stack.cluster is not None
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(RECORDER / "record.py"),
                *("--kubeconfig", str(tmp_path / "cluster" / "kubeconfig")),
                *("compare", "build", "--quiet", "0.4", "--grace", "0.2", "--poll", "0.1", "--workers", "8"),
                *("--only", *recorded),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert output.decode().count("\nok ") + output.decode().startswith("ok ") == len(recorded)
