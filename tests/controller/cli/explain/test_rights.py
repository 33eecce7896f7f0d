"""Who may see little is told all that follows from it, and in one line each what could not be looked at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import Finished, trainmaster
from support.failing_pods import show_failure
from support.kubeconfigs import kubeconfig_of
from support.objects import replicated_job
from support.samples import owner_reference
from support.service_accounts import allow
from support.stack import Stack, api_server
from support.training import trainjob

from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINJOBS

pytestmark = pytest.mark.nightly

TEAM = "research"
TRAINER = "trainer.kubeflow.org"


class Guest:
    """Somebody who has some rights in one namespace, and a job that does not run."""

    def __init__(self, stack: Stack, kubeconfig: str) -> None:
        self._stack, self._kubeconfig = stack, kubeconfig

    async def may(self, *rights: tuple[str, str]) -> None:
        """Give rights to read, each as group and resource."""
        rules = [{"apiGroups": [group], "resources": [each], "verbs": ["get", "list"]} for group, each in rights]
        await allow(self._stack.client, "guest", *rules, namespace=TEAM)

    async def explain(self, *options: str) -> Finished:
        words = ("explain", "digits", "-n", TEAM, "--kubeconfig", self._kubeconfig, *options)
        return await trainmaster(*words, cwd=Path(self._kubeconfig).parent)


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Guest]:
    """There is a job of which rank 1 has failed; nobody works on the cluster."""
    async with api_server(tmp_path, rbac=True) as stack:
        await stack.client.create(NAMESPACES, {"metadata": {"name": TEAM}})
        job = trainjob("digits")
        job["metadata"]["namespace"] = TEAM
        made = await stack.client.create(TRAINJOBS, job)
        spec = {"replicatedJobs": [replicated_job()]}
        metadata = {"name": "digits", "ownerReferences": [owner_reference(made)]}
        head = {"apiVersion": JOBSETS.api_version, "kind": "JobSet"}
        await stack.client.create(JOBSETS, {**head, "metadata": metadata, "spec": spec}, namespace=TEAM)
        await show_failure(stack.client, TEAM, "digits", message="")
        yield Guest(stack, await kubeconfig_of(stack, tmp_path, "guest"))


async def test_who_may_see_nothing_but_the_job_is_told_so(guest: Guest) -> None:
    done = await guest.explain()
    assert (done.code, done.out) == (1, ""), "not even the job itself"
    assert "cannot get resource" in done.err
    assert "Traceback" not in done.err
    await guest.may((TRAINER, "trainjobs"))
    found = json.loads((await guest.explain("-o", "json")).out)
    assert {"pods", "jobsets.jobset.x-k8s.io", "configmaps"} <= {each["resource"] for each in found["unread"]}
    assert {each["why"] for each in found["unread"]} == {"forbidden"}
    assert not found["causes"], "of what may not be seen nothing follows"


async def test_who_may_only_see_pods_learns_why_they_failed(guest: Guest) -> None:
    await guest.may((TRAINER, "trainjobs"), ("", "pods"))
    done = await guest.explain()
    assert (done.code, done.err) == (0, "")
    assert "1. ContainerFailed (certain)" in done.out
    assert "rank 1: container node failed with exit code 1" in done.out
    assert "  its log may not be read" in done.out
    assert done.out.partition("could not look at:\n")[2].splitlines() == [
        "  configmaps: you have no right to get them in namespace research",
        f"  events.events.k8s.io, jobs.batch, {JOBSETS.name}: you have no right to list them in namespace research",
        "  nodes: you have no right to list them",
        "  pods/log: you have no right to read the logs of pods in namespace research",
    ]
