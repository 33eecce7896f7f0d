"""What is read of a cluster, what is found of controllers that are not at work, and how many requests that takes."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.failing_pods import container_status, pod, terminated
from support.job_views import at, view
from support.job_views import event as parsed
from support.objects import replicated_job
from support.samples import owner_reference
from support.team import Team
from support.training import apply_runtime, runtime

from trainmaster.controller.cli.explain import failed_logs
from trainmaster.controller.cli.explain.gathering import gather
from trainmaster.controller.cli.explain.reader import MOST, Reader, newest_of_each_kind, read_events
from trainmaster.controller.cli.explain.text import lines_of
from trainmaster.controller.cli.follow.pod_logs import LogLines
from trainmaster.controller.cli.jobs.lookup import find_job
from trainmaster.controller.cli.probes import CLAIMS, NODES, POD_GROUPS
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import Explanation, explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.controller.explain.view import JobView, WhyUnread
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotConnected, NotFound, Unauthorized
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject


class Client:
    """Answers every request with the same, or in pages without end."""

    def __init__(self, answer: KubeError | JsonObject | None) -> None:
        self.answer = answer
        self.requests = 0

    async def list(self, *_: Any, limit: int, **__: Any) -> JsonObject:
        self.requests += 1
        if isinstance(self.answer, KubeError):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return {"items": [{"metadata": {"name": "x"}}] * limit, "metadata": {"continue": "more"}}

    async def get(self, *_: Any) -> JsonObject:
        self.requests += 1
        if isinstance(self.answer, KubeError):
            raise self.answer
        return {"metadata": {"name": "x"}}


def reader(answer: KubeError | JsonObject | None) -> Reader:
    return Reader(cast("KubeClient", Client(answer)), "team")


@pytest.mark.parametrize(
    ("error", "why", "text"),
    [
        (Forbidden(status=403), WhyUnread.FORBIDDEN, "you have no right to list them in namespace team"),
        (NotConnected("GET https://a/b: refused"), WhyUnread.FAILED, "GET https://a/b: refused"),
    ],
)
async def test_what_cannot_be_read_is_unknown_and_noted_once(error: KubeError, why: WhyUnread, text: str) -> None:
    found = reader(error)
    assert await found.read_all(PODS) is None
    assert await found.read(PODS, "x") is None
    assert [(each.what, each.why, each.text) for each in found.unread] == [("pods", why, text)]


async def test_what_a_cluster_may_lack_is_no_fault() -> None:
    # A kind that a cluster may lack has no objects there.
    found = reader(NotFound(status=404))
    assert await found.read_all(POD_GROUPS[0]) == []
    assert not found.unread
    assert await found.read_all(JOBSETS, is_optional=False) is None
    assert [each.why for each in found.unread] == [WhyUnread.NOT_SERVED]
    assert "https://jobset.sigs.k8s.io" in found.unread[0].text
    # An object that does not exist is none of the list.
    assert await reader(NotFound(status=404)).read(PODS, "x") == []
    objects = await reader({}).read(PODS, "x")
    assert objects is not None
    assert [(each["kind"], each["apiVersion"]) for each in objects] == [("Pod", "v1")]


async def test_where_something_may_not_be_read_is_told() -> None:
    found = reader(Forbidden(status=403))
    await found.read_all(PODS, everywhere=True)
    await found.read_all(NODES)
    assert {each.what: each.text for each in found.unread} == {
        "pods": "you have no right to list them in all namespaces",
        "nodes": "you have no right to list them",
    }
    with pytest.raises(Unauthorized):
        await reader(Unauthorized(status=401)).read_all(PODS)


async def test_what_is_read_is_bounded() -> None:
    found = reader(None)
    assert len(await found.read_all(PODS) or ()) == MOST
    assert found.unread[0].text == f"there are more than {MOST} of them; the first were read"
    assert found.has_more(PODS)
    assert not found.has_more(NODES)


CORE_EVENTS = Resource("", "v1", "Event", "events", namespaced=True)
LATER = timedelta(seconds=60)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten events are more than anybody reads."""
    monkeypatch.setattr("trainmaster.controller.cli.explain.reader.MOST", 10)


async def say(mine: Team, number: int, kind: str, name: str, reason: str) -> None:
    # The server keeps events by name, and controllers name them after what they are about.
    metadata = {"name": f"{name}.{number:03}", "namespace": mine.name}
    about = {"kind": kind, "namespace": mine.name, "name": name, "uid": f"uid-of-{name}"}
    told = {"involvedObject": about, "reason": reason, "type": "Warning", "message": "so it is"}
    await mine.client.create(CORE_EVENTS, {"apiVersion": "v1", "kind": "Event", "metadata": metadata, **told})


async def look(mine: Team, job: JsonObject, **known: Any) -> tuple[set[tuple[str, str]], list[str]]:
    """The events of a job as name and reason, and what could not be read."""
    reader = Reader(mine.client, mine.name)
    found = await read_events(reader, JobView(job, now=datetime.now(UTC) + LATER, **known))
    return {(each.about.name, each.reason) for each in found or ()}, [each.text for each in reader.unread]


@pytest.mark.usefixtures("few")
async def test_the_events_of_a_job_are_found_behind_those_of_others(quiet: tuple[Team, FaultyCluster]) -> None:
    mine, _ = quiet
    job = await mine.submit("wide", "true")
    for number in range(15):
        await say(mine, number, "Pod", "another-node-0-0-x", "FailedScheduling")
    await say(mine, 1, "TrainJob", "wide", "ContainerFailed")
    await say(mine, 2, "JobSet", "wide", "JobCreationFailed")
    await say(mine, 3, "Job", "wide-node-0", "FailedCreate")
    await say(mine, 4, "Pod", "wide-node-0-1-x", "BackOff")
    await say(mine, 5, "Pod", "wide-node-0-0-gone", "Preempted")
    known = [{"kind": "Pod", "metadata": {"name": "wide-node-0-1-x", "uid": "uid-of-wide-node-0-1-x"}}]
    jobs = [{"kind": "Job", "metadata": {"name": "wide-node-0", "uid": "uid-of-wide-node-0"}}]
    found, unread = await look(mine, job, pods=known, jobs=jobs)
    assert found == {
        ("wide", "ContainerFailed"),
        ("wide", "JobCreationFailed"),
        ("wide-node-0", "FailedCreate"),
        ("wide-node-0-1-x", "BackOff"),
        ("wide-node-0-0-gone", "Preempted"),
    }
    assert unread == [
        "there are more than 10 of them in the namespace; those about the job and some of its pods were read"
    ]


async def test_of_a_namespace_with_few_events_one_request_is_enough(quiet: tuple[Team, FaultyCluster]) -> None:
    """A second one would be refused."""
    mine, cluster = quiet
    job = await mine.submit("wide", "true")
    await say(mine, 1, "TrainJob", "wide", "ContainerFailed")
    with cluster.faults.add(Refuse(403), resource="events", nth=2):
        assert await look(mine, job) == ({("wide", "ContainerFailed")}, [])


def test_what_many_pods_say_does_not_push_out_what_is_said_of_the_job() -> None:
    of_job = parsed("JobCreationFailed", kind="JobSet", first=1)
    of_pods = [parsed("FailedScheduling", kind="Pod", name=f"demo-node-0-{n}-x", first=2 + n) for n in range(2000)]
    assert newest_of_each_kind([of_job, *of_pods]) == [of_job, *of_pods[-500:]]


OF_TORCHRUN = "E1123 09:22:45.690000 27321 torch/distributed/elastic/multiprocessing/api.py:1002] "


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The containers whose logs are asked for, as pod/container."""
    asked: list[str] = []

    async def read_log(_: Reader, pod: JsonObject, container: str, **__: Any) -> LogLines:
        asked.append(f"{pod['metadata']['name']}/{container}")
        lines = LogLines()
        for line in (
            "KeyError: 'input_ids'",
            f"{OF_TORCHRUN}failed (exitcode: 1) local_rank: 0 (pid: 27540) of binary: /venv/bin/python",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        ):
            lines.feed(f"{at(5)} {line}\n".encode())
        return lines

    monkeypatch.setattr(Reader, "read_log", read_log)
    return asked


async def test_what_torchrun_adds_does_not_push_out_what_the_program_said(asked: list[str]) -> None:
    failed = pod(1, containers=[container_status(terminated(1, at=40))], phase="Failed")
    found = await failed_logs.read_failed_logs(Reader(cast("KubeClient", None), "team"), view(pods=[failed]))
    lines = found["logs"][failed["metadata"]["uid"], "node"]
    assert lines[0] == "KeyError: 'input_ids'"
    assert lines[1].startswith(OF_TORCHRUN)
    assert len(lines) == 2


async def test_of_init_containers_that_run_one_is_read(asked: list[str]) -> None:
    status = [container_status({"running": {"startedAt": at(5)}}, name="wait-for-data")]
    pods = [pod(rank, containers=[], phase="Pending", initContainerStatuses=status) for rank in range(3)]
    for each in pods:
        each["status"]["containerStatuses"] = []
    found = await failed_logs.read_failed_logs(Reader(cast("KubeClient", None), "team"), view(pods=pods))
    assert asked == [f"{pods[0]['metadata']['name']}/wait-for-data"]
    assert list(found["logs"]) == [(pods[0]["metadata"]["uid"], "wait-for-data")]


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


async def gathered(mine: Team, name: str, *, after: timedelta = LATER) -> Explanation:
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
    assert not (await gathered(mine, "lonely", after=NOW_ISH)).findings, "a manager has its time"
    (found,) = (await gathered(mine, "lonely")).findings
    assert (found.cause, found.certainty) == (Cause.MANAGER_ABSENT, Certainty.CERTAIN)
    assert [each.text for each in found.evidence] == [
        "has no status, no snapshot and no JobSet",
        "there is no Deployment of a manager in any namespace",
        "exists in no namespace: nobody leads",
    ]
    # Where one is installed and does not run, it is named.
    await make(mine, DEPLOYMENTS, "kubeflow-trainer-controller-manager", spec=deployed(a="b"))
    (found,) = (await gathered(mine, "lonely")).findings
    assert found.evidence[1].text == f"in namespace {mine.name} has 0 of 1 replicas available"


async def test_of_jobs_of_kubeflow_org_the_training_operator_is_a_manager(mine: Team) -> None:
    await mine.submit_v1("PyTorchJob", "ddp", {"Worker": (1, ["true"])})
    (found,) = (await gathered(mine, "ddp")).findings
    assert (found.cause, found.evidence[0].text) == (Cause.MANAGER_ABSENT, "has no status and no pods")
    assert found.evidence[1].text == "there is no Deployment of a manager in any namespace"
    labels = {"control-plane": "kubeflow-training-operator"}
    await make(mine, DEPLOYMENTS, "training-operator", metadata={"labels": labels}, spec=deployed(**labels))
    (found,) = (await gathered(mine, "ddp")).findings
    assert found.evidence[1].text == f"in namespace {mine.name} has 0 of 1 replicas available"


async def test_a_leader_that_does_not_care_is_another_manager(mine: Team) -> None:
    await mine.submit("lonely", "true")
    renewed = (datetime.now(UTC) + LATER).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "go-manager", "leaseDurationSeconds": 15, "renewTime": renewed}
    await make(mine, LEASES, "trainer.kubeflow.org", spec=spec)
    (found,) = (await gathered(mine, "lonely")).findings
    assert (found.cause, found.certainty) == (Cause.ANOTHER_MANAGER_LEADS, Certainty.LIKELY)
    assert found.evidence[0].text == f"in namespace {mine.name} is held by go-manager"


async def test_a_jobset_that_nobody_looks_at_lacks_its_controller_if_it_is_that_of_the_job(mine: Team) -> None:
    job = await mine.submit("bare", "true")
    await make_jobset(mine, job)
    (found,) = (await gathered(mine, "bare")).findings
    assert (found.cause, found.certainty) == (Cause.JOBSET_CONTROLLER_ABSENT, Certainty.CERTAIN)
    assert [each.text for each in found.evidence] == [
        "has no status and no Jobs",
        "there is no Deployment of JobSet's controller in any namespace",
    ]
    job = await mine.submit("another", "true")
    await make_jobset(mine, {**job, "metadata": {"name": "another", "uid": "of-another"}})
    assert [each.cause for each in (await gathered(mine, "another")).findings] == [Cause.MANAGER_ABSENT]


async def test_a_job_that_is_complete_costs_half_a_dozen_requests(
    mine: Team, requests: list[str], both: tuple[Team, FaultyCluster]
) -> None:
    await mine.submit("done", "true")
    await mine.tell("done", "Complete")
    requests.clear()
    assert not (await gathered(mine, "done")).findings
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
        found = await gathered(mine, "done")
    assert [each.what for each in found.unread] == ["events.events.k8s.io"]
    assert not found.findings


async def test_a_job_that_waits_costs_what_there_is_to_look_at(mine: Team, requests: list[str]) -> None:
    """No nodes without a pod that seeks one, no claims without a volume, no queues of Kueue without a label."""
    await mine.submit("lonely", "true")
    requests.clear()
    await gathered(mine, "lonely")
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
        await gathered(mine, name)
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


async def test_claims_that_nobody_asked_for_by_name_are_not_called_missing(mine: Team, requests: list[str]) -> None:
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
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "wide-node-0", "uid": "1"}]
        metadata = {"labels": labels, "ownerReferences": owners}
        await make(mine, PODS, f"wide-node-0-{rank}-x", metadata=metadata, spec=spec)
    requests.clear()
    found = next(each for each in (await gathered(mine, "wide")).findings if each.cause is Cause.VOLUME_PENDING)
    assert requests.count(CLAIMS.name) == 1
    assert all(each.text.startswith("it is Pending") for each in found.evidence)


async def test_a_pod_that_has_the_labels_of_a_job_and_is_not_its_own_is_left_out(mine: Team) -> None:
    await make_jobset(mine, await mine.submit("plain", "true"))
    labels = {"jobset.sigs.k8s.io/jobset-name": "plain"}
    await make(mine, PODS, "debug", metadata={"labels": labels}, spec={"containers": [{"name": "c", "image": "none"}]})
    found = await gather(mine.client, await find_job(mine.client, mine.name, "plain"), now=datetime.now(UTC))
    state, left_out, *_ = [line for line in lines_of(explain(found), found) if "nothing is wrong" not in line]
    assert state.endswith("(0 of 1 pods run)")
    assert left_out == "  left out: debug: not of this job, although with its labels: who made it has to change these"
