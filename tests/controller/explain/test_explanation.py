"""`explain`: what is a cause of a state and what is over, Unknown, odd objects, and the order of findings."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.failing_pods import BACKING_OFF, container_status, pod, terminated
from support.job_views import NODES, at, condition, event, job, jobset, moment, pending, running, trainjob, view

from trainmaster.controller.explain.cause import TEXTS, Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, ObjectReference
from trainmaster.controller.explain.ranking import EXPLAINS, MOST_EVIDENCE, explains, ranked
from trainmaster.controller.explain.state import State
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.api.constants import VOLCANO_POD_ANNOTATION
from trainmaster.runtime.jsontree import JsonObject

ALL = [running(rank, started=10) for rank in range(NODES)]


def test_a_job_that_runs_or_is_new_or_complete_has_no_findings() -> None:
    found = explain(view(jobsets=[jobset()], jobs=[job()], pods=ALL, events=[], pod_groups=[], leases=[]))
    assert (found.state.state, list(found.findings), list(found.overcome)) == (State.RUNNING, [], [])
    # A job that has just been created has none either.
    found = explain(view(jobsets=[jobset()], pods=[pending(0)], now=20))
    assert (found.state.state, list(found.findings)) == (State.WAITING, [])
    # A complete job has no causes whatever happened before.
    failure = pod(0, containers=[container_status(terminated(1, at=20))], phase="Failed")
    found = explain(view(trainjob(condition("Complete", since=60)), jobsets=[jobset()], pods=[failure]))
    assert not found.findings


def test_a_job_that_waits_for_long_and_nobody_knows_why_says_what_its_pods_are_at() -> None:
    creating = pod(0, {"waiting": {"reason": "ContainerCreating"}}, phase="Pending") | {"spec": {"nodeName": "one"}}
    pulling = event("Pulling", 'Pulling image "train:1"', kind="Pod", name="demo-node-0-0-abcde", warning=False)
    (found,) = explain(view(jobsets=[jobset()], pods=[creating], events=[pulling])).findings
    assert (found.cause, found.certainty) == (Cause.UNKNOWN, Certainty.POSSIBLE)
    assert [each.text for each in found.evidence] == [
        "node 0: its containers are being created",
        'Pulling: Pulling image "train:1"',
    ]
    assert "kubectl describe pods -l jobset.sigs.k8s.io/jobset-name=demo -n team" in found.advice[0]


def test_what_a_running_job_has_overcome_is_no_cause_and_is_told() -> None:
    quota = "exceeded quota: team, requested: pods=1"
    told = condition("Blocked", "ApplyFailed", quota, since=3)
    found = explain(view(trainjob(told), jobsets=[jobset()], pods=ALL))
    assert not found.findings
    assert [each.cause for each in found.overcome] == [Cause.QUOTA_EXCEEDED]


def test_what_ended_an_earlier_attempt_is_overcome_though_its_pods_are_gone() -> None:
    note = (
        "attempt 0: rank 1 (pod demo-node-0-1-x, container node) failed at 2026-01-01T00:00:40Z with exit code 137 "
        "(OOMKilled: it needed more memory than its limit)"
    )
    restarted = jobset()
    restarted["status"]["restarts"] = 1
    pods = [running(rank, started=60, attempt=1) for rank in range(NODES)]
    found = explain(view(jobsets=[restarted], pods=pods, events=[event("ContainerFailed", note, first=41)]))
    assert (found.state.state, list(found.findings)) == (State.RUNNING, [])
    assert [each.cause for each in found.overcome] == [Cause.OUT_OF_MEMORY]
    assert any(each.text.startswith("ContainerFailed: attempt 0: rank 1") for each in found.timeline)


def test_a_job_that_is_deleted_and_held_says_by_what() -> None:
    job_ = trainjob()
    job_["metadata"] |= {"deletionTimestamp": at(100), "finalizers": ["acme.io/keep"]}
    (found,) = explain(view(job_, jobsets=[jobset()], pods=ALL)).findings
    assert found.evidence[0].text == "is deleted, and held by finalizers: acme.io/keep"
    assert found.advice[0].startswith("who set a finalizer has to remove it")


def test_the_container_that_failed_first_in_the_last_attempt_is_shown_with_its_last_lines() -> None:
    earlier = pod(3, containers=[container_status(terminated(1, at=5))], phase="Failed")
    first = pod(1, containers=[container_status(terminated(3, at=40))], phase="Failed", attempt=1)
    follows = pod(2, containers=[container_status(terminated(1, at=41))], phase="Failed", attempt=1)
    lines = ["Traceback (most recent call last):", "ValueError: no such file"]
    logs = {(first["metadata"]["uid"], "node"): lines}
    found = explain(view(jobsets=[jobset()], pods=[follows, earlier, first], logs=logs)).failed_container
    assert found is not None
    assert (found.pod, found.failure.exit_code, list(found.lines)) == (first, 3, lines)
    # The termination message stands in for a log that nobody read.
    ended = container_status(BACKING_OFF, last=terminated(1, message="one\ntwo"), restarts=3)
    found = explain(view(jobsets=[jobset()], pods=[pod(0, containers=[ended], phase="Running")])).failed_container
    assert found is not None
    assert list(found.lines) == ["one", "two"]


def named(kind: str, name: str, **fields: JsonObject) -> JsonObject:
    return {"kind": kind, "metadata": {"name": name}, **fields}


def rich_view() -> JobView:
    """A view in which nearly every finder has something to look at."""
    waiting = condition("QuotaReserved", "Pending", "no quota", status="False")
    blocked = condition("Blocked", "ApplyFailed", 'failed calling webhook "a.acme.io": x509: expired')
    webhook = {"name": "a.acme.io", "clientConfig": {"service": {"namespace": "acme", "name": "a"}}}
    labels = {"kubernetes.io/service-name": "a"}
    endpoints = {"endpoints": [{"conditions": {"ready": True}}]}
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1", "total": "1"}]}
    groups = {"resourceGroups": [{"flavors": [flavor]}]}
    cluster_queue = named("ClusterQueue", "c", spec=groups, status={"flavorsReservation": [flavor]})
    assigned = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
    admission = {"clusterQueue": "c", "podSetAssignments": [assigned]}
    holder = named("Workload", "h", status={"admission": admission})
    holder["metadata"]["ownerReferences"] = [{"kind": "PyTorchJob", "name": "h"}]
    restarts = container_status(BACKING_OFF, last=terminated(137, reason="OOMKilled"), restarts=2)
    held = pending(2, "0/1 nodes are available: 1 Insufficient cpu.")
    held["spec"] = {"schedulingGates": [{"name": "acme.io/budget"}]}
    held["metadata"]["annotations"] = {VOLCANO_POD_ANNOTATION: "demo"}
    group: JsonObject = {"kind": "PodGroup", "apiVersion": "scheduling.volcano.sh/v1beta1"}
    group |= {"metadata": {"name": "demo", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:01Z"}}
    group |= {"spec": {"minMember": 4, "queue": "q"}, "status": {"phase": "Pending", "conditions": [blocked]}}
    queue = named("Queue", "q", spec={"capability": {"cpu": "1"}}, status={"state": "Open"})
    workload = named("Workload", "w", spec={"queueName": "q"}, status={"conditions": [waiting]})
    lease = named("Lease", "l", spec={"holderIdentity": "x", "renewTime": "2026-01-01T00:04:59Z"})
    deployment = named("Deployment", "d", spec={"replicas": 1}, status={"availableReplicas": 1})
    for each in (lease, deployment):
        each["metadata"]["namespace"] = "k"
    return view(
        trainjob(blocked, suspend=True, activeDeadlineSeconds=5, ttlSecondsAfterFinished=5),
        runtimes=[named("ClusterTrainingRuntime", "torch-distributed")],
        snapshots=[],
        jobsets=[jobset(condition("Failed"), suspend=True)],
        jobs=[job(condition("Failed", "BackoffLimitExceeded"))],
        pods=[running(0), pod(1, containers=[restarts], phase="Running"), held],
        events=[event("FailedCreate", "exceeded quota: x", kind="Job", name="demo-node-0")],
        pod_groups=[group],
        workloads=[workload],
        queues=[queue, cluster_queue],
        quota_holders=[holder],
        webhooks=[{"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "a"}, "webhooks": [webhook]}],
        endpoint_slices=[{"metadata": {"name": "a-1", "namespace": "acme", "labels": labels}, **endpoints}],
        leases=[lease],
        managers=[deployment],
        jobset_controllers=[deployment],
    )


def _paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, below in members:
        # Every object and each condition has these; without its name nothing is an object.
        if key not in ("name", "uid", "metadata", "kind", "namespace"):
            yield (*path, key)
        yield from _paths(below, (*path, key))


def _without(node: Any, path: tuple[Any, ...]) -> Any:
    key, *rest = path
    if isinstance(node, dict):
        if rest:
            return {name: _without(each, tuple(rest)) if name == key else each for name, each in node.items()}
        return {name: each for name, each in node.items() if name != key}
    if rest:
        return [_without(each, tuple(rest)) if index == key else each for index, each in enumerate(node)]
    return [each for index, each in enumerate(node) if index != key]


OBJECTS = [
    each.name for each in fields(JobView) if isinstance(getattr(rich_view(), each.name), list) and each.name != "events"
]


@given(st.data())
def test_nothing_that_objects_may_lack_makes_it_raise(data: st.DataObject) -> None:
    """Older versions, other controllers, and definitions of others leave fields out."""
    found = rich_view()
    for _ in range(data.draw(st.integers(min_value=1, max_value=6))):
        name = data.draw(st.sampled_from(["object", *OBJECTS]))
        value = getattr(found, name)
        if paths := sorted(_paths(value), key=str):
            found = replace(found, **{name: _without(value, data.draw(st.sampled_from(paths)))})
    found = replace(found, is_deleted=data.draw(st.booleans()))
    assert explain(found).job.name == "demo"


@given(st.sets(st.sampled_from([*OBJECTS, "events"])))
def test_nothing_follows_from_what_nobody_looked_at(unread: set[str]) -> None:
    """A finding rests on what was read: with less of it there are the same findings, or fewer, or Unknown."""
    rich = rich_view()
    everything = {each.cause for each in (*explain(rich).findings, *explain(rich).overcome)} | {Cause.UNKNOWN}
    nothing: dict[str, Any] = dict.fromkeys(unread)
    less = explain(replace(rich, **nothing))
    assert {each.cause for each in (*less.findings, *less.overcome)} <= everything


def test_what_ended_an_earlier_attempt_is_no_cause_of_what_ended_the_last_one() -> None:
    failed = condition("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts", since=50)
    oom = container_status(terminated(137, at=49, reason="OOMKilled"))
    pods = [pod(rank, created=20, attempt=1, containers=[oom] if rank == 3 else None) for rank in range(NODES)]
    evicted = event("TaintManagerEviction", "Marking for deletion", kind="Pod", name="demo-node-0-2-gone", first=20)
    found = explain(view(trainjob(failed), jobsets=[jobset()], jobs=[], pods=pods, nodes=[], events=[evicted]))
    assert found.findings[0].cause is Cause.OUT_OF_MEMORY
    assert [each.cause for each in found.overcome] == [Cause.EVICTED]
    # Where nothing tells of the last attempt, that is the cause.
    pods = [pod(rank, created=20, attempt=1) for rank in range(NODES)]
    found = explain(view(trainjob(failed), jobsets=[jobset()], jobs=[], pods=pods, nodes=[], events=[evicted]))
    assert found.findings[0].cause is Cause.EVICTED


POD = ObjectReference("Pod", "team", "demo-node-0-0")


def finding(
    cause: Cause, certainty: Certainty = Certainty.CERTAIN, since: float | None = 5, text: str = "so it is"
) -> Finding:
    return Finding(cause, certainty, (Evidence(POD, text),), None if since is None else moment(since))


FINDINGS = st.builds(
    finding,
    st.sampled_from(Cause),
    st.sampled_from(Certainty),
    st.one_of(st.none(), st.integers(min_value=0, max_value=100)),
    st.sampled_from(["one", "other"]),
)


def causes(*found: Finding) -> list[Cause]:
    return [each.cause for each in ranked(found)]


def test_a_cause_comes_before_its_symptoms_however_sure_those_are() -> None:
    possible = finding(Cause.NAME_RESOLUTION_FAILED, Certainty.POSSIBLE, since=20)
    certain = finding(Cause.CONTAINER_FAILED, Certainty.CERTAIN, since=20)
    for order in permutations([certain, possible, finding(Cause.BACKOFF_LIMIT_EXCEEDED, since=60)]):
        assert causes(*order) == [Cause.NAME_RESOLUTION_FAILED, Cause.CONTAINER_FAILED, Cause.BACKOFF_LIMIT_EXCEEDED]


def test_a_limit_of_restarts_comes_after_whatever_used_it_up() -> None:
    """Also if that is a mere guess, and by the clock of its node came later."""
    for cause in (
        *(Cause.CONTAINER_FAILED, Cause.OUT_OF_MEMORY, Cause.INIT_CONTAINER_FAILED, Cause.EVICTED, Cause.PREEMPTED),
        *(Cause.NODE_LOST, Cause.NAME_RESOLUTION_FAILED, Cause.RENDEZVOUS_TIMEOUT, Cause.WORLD_SIZE_MISMATCH),
        Cause.DEADLINE_EXCEEDED,
    ):
        failed = finding(cause, Certainty.POSSIBLE, since=90)
        assert causes(finding(Cause.BACKOFF_LIMIT_EXCEEDED, since=30), failed) == [cause, Cause.BACKOFF_LIMIT_EXCEEDED]


def test_what_happened_later_explains_nothing_and_of_two_the_earlier_one_explains_the_other() -> None:
    assert causes(finding(Cause.OUT_OF_MEMORY, since=90), finding(Cause.CONTAINER_FAILED, since=20)) == [
        Cause.CONTAINER_FAILED,
        Cause.OUT_OF_MEMORY,
    ]
    # Of two that may explain each other the earlier one does. A rank that crashes leaves others in a rendezvous that
    # fails; and one that fails makes its rank crash.
    crashed, left_alone = finding(Cause.CONTAINER_FAILED, since=20), finding(Cause.RENDEZVOUS_TIMEOUT, since=320)
    assert causes(left_alone, crashed) == [Cause.CONTAINER_FAILED, Cause.RENDEZVOUS_TIMEOUT]
    alone, crashes = finding(Cause.RENDEZVOUS_TIMEOUT, since=20), finding(Cause.CONTAINER_FAILED, since=320)
    assert causes(crashes, alone) == [Cause.RENDEZVOUS_TIMEOUT, Cause.CONTAINER_FAILED]


def test_the_surer_one_comes_first_and_then_the_earlier_one() -> None:
    assert causes(finding(Cause.EVICTED, Certainty.LIKELY), finding(Cause.IMAGE_PULL_FAILED)) == [
        Cause.IMAGE_PULL_FAILED,
        Cause.EVICTED,
    ]
    assert causes(finding(Cause.VOLUME_PENDING, since=9), finding(Cause.IMAGE_PULL_FAILED, since=3)) == [
        Cause.IMAGE_PULL_FAILED,
        Cause.VOLUME_PENDING,
    ]


def test_what_several_finders_say_of_one_cause_is_put_together_within_bounds() -> None:
    quota = finding(Cause.QUOTA_EXCEEDED, Certainty.LIKELY, 9, "the quota says so")
    queue = finding(Cause.QUOTA_EXCEEDED, Certainty.CERTAIN, 20, "the queue says so")
    (merged,) = ranked([quota, queue])
    assert [each.text for each in merged.evidence] == ["the queue says so", "the quota says so"]
    assert (merged.certainty, merged.since) == (Certainty.CERTAIN, moment(9))
    # Evidence is bounded.
    many = [finding(Cause.UNSCHEDULABLE, text=f"pod {number}") for number in range(3 * MOST_EVIDENCE)]
    (merged,) = ranked(many)
    assert len(merged.evidence) == MOST_EVIDENCE


@given(st.lists(FINDINGS, max_size=12))
def test_every_cause_is_listed_once_and_the_first_is_explained_by_no_other(found: list[Finding]) -> None:
    order = ranked(found)
    assert sorted(each.cause for each in order) == sorted({each.cause for each in found})
    for number, each in enumerate(order):
        later = [other for other in order[number + 1 :] if explains(other, each)]
        # What is listed before something that explains it is in a circle with that.
        assert all(_reaches(each, other, order[number:]) for other in later)


def _reaches(start: Finding, end: Finding, among: Sequence[Finding]) -> bool:
    seen, front = {start.cause}, [start]
    while front:
        one = front.pop()
        for other in among:
            if other.cause not in seen and explains(one, other):
                seen.add(other.cause)
                front.append(other)
    return end.cause in seen


@given(st.lists(FINDINGS, max_size=8), st.randoms())
def test_the_order_in_which_finders_are_called_means_nothing(found: list[Finding], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis gives a Random
    assert [each.cause for each in ranked(shuffled)] == [each.cause for each in ranked(found)]


def test_every_cause_has_its_texts_and_a_question() -> None:
    assert set(TEXTS) == set(Cause)
    for cause in Cause:
        assert cause.questions
        assert cause.advice
        assert not cause.summary.endswith(".")
    assert not any(cause in symptoms for cause, symptoms in EXPLAINS.items()), "nothing explains itself"


def test_a_sidecar_that_outlives_the_container_that_trains_is_named() -> None:
    states = [("node", terminated(0, at=20)), ("mesh-proxy", {"running": {"startedAt": at(9)}})]
    meshed = pod(0, containers=[container_status(state, name=name) for name, state in states], phase="Running")
    found = explain(view(jobsets=[jobset(nodes=1)], jobs=[job()], pods=[meshed]))
    assert found.state.state is State.RUNNING
    (finding,) = found.findings
    assert (finding.cause, finding.evidence[0].at) == (Cause.SIDECAR_RUNNING, moment(20))
    assert finding.evidence[0].text.startswith(
        "rank 0: container node has ended with exit code 0, and mesh-proxy still runs"
    )
    assert finding.what_next[0].startswith("make mesh-proxy a native sidecar in the runtime")
    # What ends beside the training that goes on is no matter.
    states = [("node", {"running": {"startedAt": at(9)}}), ("setup", terminated(0))]
    helped = pod(0, containers=[container_status(state, name=name) for name, state in states], phase="Running")
    assert not explain(view(jobsets=[jobset(nodes=1)], jobs=[job()], pods=[helped])).findings


def test_the_limit_of_restarts_is_no_cause_beside_the_last_failure() -> None:
    """A job that was tried twice: what its first pod failed of has been overcome."""
    first = pod(0, terminated(1, at=5, message="ConnectionError: transient: S3 is down"), phase="Failed")
    last = pod(0, terminated(1, at=9, message="ValueError: the real bug"), phase="Failed", suffix="again", created=6)
    ended = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", since=10)
    told = trainjob(condition("Failed", "FailedJobs", "jobset failed due to one or more job failures", since=10))
    found = explain(view(told, jobsets=[jobset(nodes=1)], jobs=[job(ended, backoffLimit=1)], pods=[first, last]))
    assert [each.cause for each in found.findings] == [Cause.CONTAINER_FAILED]
    assert found.findings[0].evidence[1].text == "it said last: ValueError: the real bug"
    assert found.failed_container is not None
    assert (found.failed_container.failure.run, found.failed_container.lines) == (1, ("ValueError: the real bug",))
    assert not found.overcome
