"""The recorders themselves, where they lie beside the checkout: the same cases, compared by what recorded them.

They bring their own definitions and look at Trainmaster from outside, so they prove that our copies of the cases and
our ways of comparing are no easier than the originals'.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from support.golden import load_yaml
from support.jobs.differences import load_differences
from support.jobs.recorded import load_case
from support.stack import api_server, manager

from trainmaster.controller.kube.rest.resources import Resource

HERE = Path(__file__).parent
RECORDER = Path(os.environ.get("TRAINMASTER_GOLDEN_DIR", HERE.parents[2] / "shared" / "golden"))
SAMPLE = os.environ.get("TRAINMASTER_GOLDEN_V1", "029 034 057 063 075 079 110 117 122 125").split()
"""Numbers of cases of V1 jobs, of those in which no pod ends so soon that nobody may see it run."""

pytestmark = [pytest.mark.golden, pytest.mark.nightly]

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


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


@pytest.mark.timeout(600)
@pytest.mark.skipif(not (RECORDER / "record_v1.py").exists(), reason="the recorder is not beside this checkout")
async def test_the_recorder_of_v1_jobs_agrees_with_our_copy_of_its_cases(tmp_path: Path) -> None:
    """With the declared differences written into its cases, by flags of the original, over HTTPS.

    A case of each profile, and each of a sort of its own; all of them take minutes (see `support.jobs.launcher`).
    """
    tool = Path(shutil.copy(RECORDER / "record_v1.py", tmp_path))
    (tmp_path / "crds").symlink_to(RECORDER / "crds")
    (tmp_path / "v1").mkdir()
    differences = [each for each in load_differences(HERE / "v1-differences.yaml") if each.definitions != "ours"]
    paths = [path for number in SAMPLE for path in (HERE / "v1").glob(f"{number}-*.yaml")]
    for path in paths:
        case = load_case(path)
        expected = case.expected
        for difference in differences:
            expected = difference.applied(case, expected)
        (tmp_path / "v1" / path.name).write_text(yaml.safe_dump({**load_yaml(path.read_text()), "expect": expected}))

    async def record(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(tool), "--kubeconfig", str(tmp_path / "cluster" / "kubeconfig"), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "TMPDIR": str(tmp_path)},
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    async with api_server(tmp_path):
        await record("setup")
        launcher = f"{sys.executable} -m support.jobs.launcher"
        output = await record("compare", "--launcher", launcher, "--jobs", "8", "--hold", "0.4")
    assert output.count("\nok ") + output.startswith("ok ") == len(paths)
