"""A TrainJob by kubectl alone, as users do it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from support.kubectl import Kubectl
from support.training import python, runtime, trainjob

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
]


@pytest.fixture
def kubectl(cluster_home: Path, tmp_path: Path) -> Kubectl:
    return Kubectl(cluster_home / ".trainmaster" / "kubeconfig", tmp_path)


async def test_the_life_of_a_trainjob(kubectl: Kubectl, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"""
import os, time
print("first", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
print("last", flush=True)
"""
    job = trainjob("by-hand", on="by-hand", trainer={"command": python(script)})
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump_all([runtime("by-hand"), job]))

    selector = "jobset.sigs.k8s.io/jobset-name=by-hand"
    async with kubectl.watching("trainjobs") as watching:
        applied = await kubectl("apply", "--server-side", "-f", str(manifest))
        assert "trainjob.trainer.kubeflow.org/by-hand serverside-applied" in applied
        await kubectl("wait", "--for=create", "pod", "-l", selector, "--timeout=60s")
        await kubectl("wait", "--for=condition=Ready", "pod", "-l", selector, "--timeout=60s")
        (pod,) = (await kubectl("get", "pods", "-l", selector, "-o", "name")).split()
        async with kubectl.following("logs", "-f", pod) as following:
            assert await following.until("first") == [["first"]]
            active = "--for=jsonpath={.status.jobsStatus[0].active}=1"
            await kubectl("wait", active, "trainjob/by-hand", "--timeout=60s")
            header, row = (await kubectl("get", "trainjob", "by-hand")).splitlines()
            assert header.split() == ["NAME", "STATE", "ACTIVE", "AGE"]
            assert row.split()[:2] == ["by-hand", "node"]
            assert await kubectl("exec", "-i", pod, "--", "cat", stdin="typed\n") == "typed\n"
            assert "exit code 3" in await kubectl("exec", pod, "--", "sh", "-c", "exit 3", code=3)
            go.touch()
            assert await following.until("last") == [["first"], ["last"]]
            assert await following.ended() == 0
        assert "condition met" in await kubectl("wait", "--for=condition=Complete", "trainjob/by-hand", "--timeout=60s")
        ((name, state, *_),) = await kubectl.rows("trainjob", "by-hand")
        assert (name, state) == ("by-hand", "Complete")
        assert len(await watching.until("by-hand", "Complete")) > 1

    whole = yaml.safe_load(await kubectl("get", "trainjob", "by-hand", "-o", "yaml"))
    assert whole["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    assert whole["status"]["jobsStatus"][0]["succeeded"] == 1
    assert "managedFields" not in whole["metadata"]
    described = await kubectl("describe", "trainjob", "by-hand")
    assert "AllJobsCompleted" in described

    assert 'trainjob.trainer.kubeflow.org "by-hand" deleted' in await kubectl("delete", "trainjob", "by-hand")
    await kubectl("wait", "--for=delete", "jobset/by-hand", "--timeout=60s")
    assert "by-hand" not in await kubectl("get", "trainjobs,jobsets,jobs,pods,configmaps", "-o", "name")
