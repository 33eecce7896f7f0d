"""Who may see little is told all that follows from it, and in one line each what could not be looked at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import Finished, trainmaster
from support.enforcement import KINDS, RBAC_GROUP
from support.stack import Stack, api_server
from support.training import trainjob

from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.jsontext import load_json
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

pytestmark = pytest.mark.nightly

TEAM = "research"
TRAINER = "trainer.kubeflow.org"


@dataclass(frozen=True)
class Guest:
    """Somebody who has some rights in one namespace, and a job that does not run."""

    stack: Stack
    kubeconfig: Path

    async def may(self, *rights: tuple[str, str]) -> None:
        """Give rights to read, each as group and resource."""
        rules = [{"apiGroups": [group], "resources": [each], "verbs": ["get", "list"]} for group, each in rights]
        await self.make(KINDS["Role"], "guest", rules=rules)
        subject = {"kind": "ServiceAccount", "name": "guest", "namespace": TEAM}
        reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "guest"}
        await self.make(KINDS["RoleBinding"], "guest", subjects=[subject], roleRef=reference)

    async def make(self, resource: Resource, name: str, **fields: Any) -> JsonObject:
        metadata = {"name": name, "namespace": TEAM, **fields.pop("metadata", {})}
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
        made = await self.stack.client.create(resource, obj)
        if "status" in fields:
            path = {"status": fields["status"]}
            made = await self.stack.client.patch(resource, TEAM, name, path, subresource="status")
        return made

    async def explain(self, *options: str) -> Finished:
        words = ("explain", "digits", "-n", TEAM, "--kubeconfig", str(self.kubeconfig), *options)
        return await trainmaster(*words, cwd=self.kubeconfig.parent)


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Guest]:
    """There is a job of which rank 0 has failed; nobody works on the cluster."""
    async with api_server(tmp_path, rbac=True) as stack:
        await stack.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        account = KINDS["ServiceAccount"]
        kubeconfig = tmp_path / "guest.kubeconfig"
        found = Guest(stack, kubeconfig)
        await found.make(account, "guest")
        _, _, answer = await stack.client.raw("POST", account.path(TEAM, "guest", "token"), body=b'{"spec": {}}')
        document: JsonObject = load_yaml((tmp_path / "cluster/kubeconfig").read_bytes())
        document["users"][0]["user"] = {"token": load_json(answer)["status"]["token"]}
        kubeconfig.write_text(yaml.safe_dump(document))
        kubeconfig.chmod(0o600)
        job = trainjob("digits")
        job["metadata"]["namespace"] = TEAM
        made = await stack.client.create(TRAINJOBS, job)
        owner = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": "digits"}
        owner["uid"] = made["metadata"]["uid"]
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}}
        spec = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]}
        await found.make(JOBSETS, "digits", metadata={"ownerReferences": [owner]}, spec=spec)
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "digits",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": "0",
        }
        ended = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
        status = {"name": "node", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        failed = {"spec": template["spec"], "status": {"phase": "Failed", "containerStatuses": [status]}}
        await found.make(PODS, "digits-node-0-0-abcde", metadata={"labels": labels}, **failed)
        yield found


async def test_who_may_only_see_pods_learns_why_they_failed(guest: Guest) -> None:
    await guest.may((TRAINER, "trainjobs"), ("", "pods"))
    done = await guest.explain()
    assert (done.code, done.err) == (0, "")
    assert "1. ContainerFailed (certain)" in done.out
    assert "rank 0: container node failed with exit code 3" in done.out
    assert "  its log may not be read" in done.out
    assert done.out.partition("could not look at:\n")[2].splitlines() == [
        "  configmaps: you have no right to get them in namespace research",
        f"  events.events.k8s.io, jobs.batch, {JOBSETS.name}: you have no right to list them in namespace research",
        "  nodes: you have no right to list them",
        "  pods/log: you have no right to read the logs of pods in namespace research",
    ]


async def test_for_programs_it_is_a_list(guest: Guest) -> None:
    await guest.may((TRAINER, "trainjobs"))
    found = json.loads((await guest.explain("-o", "json")).out)
    assert {"pods", "jobsets.jobset.x-k8s.io", "configmaps"} <= {each["resource"] for each in found["unread"]}
    assert {each["why"] for each in found["unread"]} == {"forbidden"}
    assert not found["causes"], "of what may not be seen nothing follows"


async def test_who_may_not_see_the_job_itself_is_told_so(guest: Guest) -> None:
    done = await guest.explain()
    assert (done.code, done.out) == (1, "")
    assert "cannot get resource" in done.err
    assert "Traceback" not in done.err
