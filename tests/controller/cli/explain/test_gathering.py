"""What a look at a cluster finds of controllers that are not at work, and how many requests a look takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.objects import replicated_job
from support.samples import owner_reference
from support.team import Team
from support.training import apply_runtime, runtime

from trainmaster.controller.cli.explain.gathering import gather
from trainmaster.controller.cli.jobs.lookup import find_job
from trainmaster.controller.cli.probes import CLAIMS
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import Explanation, explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject

LATER = timedelta(seconds=60)
NOW_ISH = timedelta(seconds=5)
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", namespaced=True)


@pytest.fixture
async def mine(both: tuple[Team, FaultyCluster]) -> Team:
    """A namespace of an API server on which nobody works."""
    team, _ = both
    await apply_runtime(team.client, runtime())
    return team


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The resources that are asked for, one for each request."""
    made: list[str] = []
    for verb in ("get", "list"):
        plain: Any = getattr(KubeClient, verb)

        async def counted(client: KubeClient, resource: Resource, *args: Any, plain: Any = plain, **more: Any) -> Any:
            made.append(resource.name)
            return await plain(client, resource, *args, **more)

        monkeypatch.setattr(KubeClient, verb, counted)
    return made


async def look(mine: Team, name: str, *, after: timedelta = LATER) -> Explanation:
    """Explain a job as it is, some time from now."""
    job = await find_job(mine.client, mine.name, name)
    return explain(await gather(mine.client, job, now=datetime.now(UTC) + after))


async def make(mine: Team, resource: Resource, name: str, *, namespace: str | None = None, **fields: Any) -> JsonObject:
    metadata = {"name": name, "namespace": namespace or mine.name, **fields.pop("metadata", {})}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
    return await mine.client.create(resource, obj)


async def make_jobset(mine: Team, job: JsonObject, of_pods: JsonObject | None = None) -> JsonObject:
    replicated = replicated_job()
    replicated["template"]["spec"]["template"]["metadata"] = of_pods or {}
    metadata = {"ownerReferences": [owner_reference(job, controller=True)]}
    return await make(mine, JOBSETS, job["metadata"]["name"], metadata=metadata, spec={"replicatedJobs": [replicated]})


def deployed(**labels: str) -> JsonObject:
    """The spec of a Deployment."""
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "m", "image": "m"}]}}
    return {"selector": {"matchLabels": labels}, "template": template}


async def test_without_a_manager_nobody_looks_at_a_job(mine: Team) -> None:
    await mine.submit("lonely", "true")
    assert not (await look(mine, "lonely", after=NOW_ISH)).findings, "a manager has its time"
    (found,) = (await look(mine, "lonely")).findings
    assert (found.cause, found.certainty) == (Cause.MANAGER_ABSENT, Certainty.CERTAIN)
    assert [each.text for each in found.evidence] == [
        "has no status, no snapshot and no JobSet",
        "there is no Deployment of a manager in any namespace",
        "exists in no namespace: nobody leads",
    ]
    # Where one is installed and does not run, it is named.
    await make(mine, DEPLOYMENTS, "kubeflow-trainer-controller-manager", spec=deployed(a="b"))
    (found,) = (await look(mine, "lonely")).findings
    assert found.evidence[1].text == f"in namespace {mine.name} has 0 of 1 replicas available"


async def test_of_jobs_of_kubeflow_org_the_training_operator_is_a_manager(mine: Team) -> None:
    await mine.submit_v1("PyTorchJob", "ddp", {"Worker": (1, ["true"])})
    (found,) = (await look(mine, "ddp")).findings
    assert (found.cause, found.evidence[0].text) == (Cause.MANAGER_ABSENT, "has no status and no pods")
    assert found.evidence[1].text == "there is no Deployment of a manager in any namespace"
    labels = {"control-plane": "kubeflow-training-operator"}
    await make(mine, DEPLOYMENTS, "training-operator", metadata={"labels": labels}, spec=deployed(**labels))
    (found,) = (await look(mine, "ddp")).findings
    assert found.evidence[1].text == f"in namespace {mine.name} has 0 of 1 replicas available"


async def test_a_leader_that_does_not_care_is_another_manager(mine: Team) -> None:
    await mine.submit("lonely", "true")
    renewed = (datetime.now(UTC) + LATER).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "go-manager", "leaseDurationSeconds": 15, "renewTime": renewed}
    await make(mine, LEASES, "trainer.kubeflow.org", spec=spec)
    (found,) = (await look(mine, "lonely")).findings
    assert (found.cause, found.certainty) == (Cause.ANOTHER_MANAGER_LEADS, Certainty.LIKELY)
    assert found.evidence[0].text == f"in namespace {mine.name} is held by go-manager"


async def test_a_jobset_that_nobody_looks_at_lacks_its_controller_if_it_is_that_of_the_job(mine: Team) -> None:
    job = await mine.submit("bare", "true")
    await make_jobset(mine, job)
    (found,) = (await look(mine, "bare")).findings
    assert (found.cause, found.certainty) == (Cause.JOBSET_CONTROLLER_ABSENT, Certainty.CERTAIN)
    assert [each.text for each in found.evidence] == [
        "has no status and no Jobs",
        "there is no Deployment of JobSet's controller in any namespace",
    ]
    job = await mine.submit("another", "true")
    await make_jobset(mine, {**job, "metadata": {"name": "another", "uid": "of-another"}})
    assert [each.cause for each in (await look(mine, "another")).findings] == [Cause.MANAGER_ABSENT]


async def test_a_job_that_is_complete_costs_half_a_dozen_requests(
    mine: Team, requests: list[str], both: tuple[Team, FaultyCluster]
) -> None:
    await mine.submit("done", "true")
    await mine.tell("done", "Complete")
    requests.clear()
    assert not (await look(mine, "done")).findings
    assert sorted(requests) == [
        "configmaps",
        "events.events.k8s.io",
        "jobs.batch",
        "jobsets.jobset.x-k8s.io",
        "pods",
        "trainjobs.trainer.kubeflow.org",
    ]
    # What may not be read is told of such a job as well.
    with both[1].faults.add(Refuse(403), resource="events"):
        found = await look(mine, "done")
    assert [each.what for each in found.unread] == ["events.events.k8s.io"]
    assert not found.findings


async def test_a_job_that_waits_costs_what_there_is_to_look_at(mine: Team, requests: list[str]) -> None:
    """No nodes without a pod that seeks one, no claims without a volume, no queues of Kueue without a label."""
    await mine.submit("lonely", "true")
    requests.clear()
    await look(mine, "lonely")
    assert {"nodes", "persistentvolumeclaims", "workloads.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"}.isdisjoint(
        requests
    )
    assert len(requests) <= 16


async def test_groups_of_pods_are_looked_for_where_pods_belong_to_one(mine: Team, requests: list[str]) -> None:
    groups = {"podgroups.scheduling.volcano.sh", "podgroups.scheduling.x-k8s.io"}
    for name, metadata, wanted in (
        ("alone", {}, set()),
        ("together", {"labels": {"scheduling.x-k8s.io/pod-group": "together"}}, groups),
        ("at-once", {"annotations": {"scheduling.k8s.io/group-name": "at-once"}}, groups),
    ):
        await make_jobset(mine, await mine.submit(name, "true"), metadata)
        requests.clear()
        await look(mine, name)
        assert groups & set(requests) == wanted


async def test_objects_of_a_namesake_that_was_deleted_do_not_count(mine: Team) -> None:
    """Events and a snapshot that are older than the job, and an event about a job whose name begins with its name."""
    await make(mine, CONFIGMAPS, "lonely-runtime-snapshot", data={"runtime": "{}"})
    event = Resource("", "v1", "Event", "events", namespaced=True)
    for number, kind, name in ((1, "TrainJob", "lonely-2"), (2, "Pod", "lonely-2-node-0-0-x")):
        about = {"kind": kind, "namespace": mine.name, "name": name, "uid": "another"}
        await make(mine, event, f"e{number}", involvedObject=about, reason="FailedCreate", type="Warning", message="no")
    await mine.submit("lonely", "true")
    job = await find_job(mine.client, mine.name, "lonely")
    view = await gather(mine.client, job, now=datetime.now(UTC))
    assert list(view.events or ()) == []


async def test_claims_that_were_not_asked_for_by_name_are_not_said_to_be_missing(
    mine: Team, requests: list[str]
) -> None:
    """Pods may have volumes of their own, whose claims are named after them, and many different ones."""
    await make_jobset(mine, await mine.submit("wide", "true"))
    for rank in range(12):
        volumes = [
            {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{rank}"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}},
        ]
        await make(mine, CLAIMS, f"data-{rank}", spec=CLAIM)
        await make(mine, CLAIMS, f"wide-node-0-{rank}-x-scratch", spec=CLAIM)
        labels = {"jobset.sigs.k8s.io/jobset-name": "wide"}
        spec = {"volumes": volumes, "containers": [{"name": "node", "image": "none"}]}
        await make(mine, PODS, f"wide-node-0-{rank}-x", metadata={"labels": labels}, spec=spec)
    requests.clear()
    found = next(each for each in (await look(mine, "wide")).findings if each.cause is Cause.VOLUME_PENDING)
    assert requests.count(CLAIMS.name) == 1
    assert all(each.text.startswith("it is Pending") for each in found.evidence)
