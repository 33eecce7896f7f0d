"""RuntimeMissing, Refused, PluginFailed and QuotaExceeded, as manager, API server and controllers tell them."""

import json
from typing import Any

import pytest
from support.job_views import condition, event, job, jobset, moment, pytorchjob, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.runtime.api.constants import SNAPSHOT_KEY
from trainmaster.runtime.jsontree import JsonObject

QUOTA = (
    'Error creating: pods "demo-node-0-0-x" is forbidden: exceeded quota: team-quota, requested: pods=1, used: pods=4, '
    "limited: pods=4"
)


def runtime(name: str) -> JsonObject:
    return {"kind": "ClusterTrainingRuntime", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("RuntimeNotFound", 'ClusterTrainingRuntime "x" not found', Cause.RUNTIME_MISSING),
        ("RuntimeForbidden", "cannot be read", Cause.RUNTIME_MISSING),
        ("PluginFailed", "plugin acme failed in build: KeyError", Cause.PLUGIN_FAILED),
        ("PluginQuarantined", "plugin acme is quarantined", Cause.PLUGIN_FAILED),
        ("BuildRejected", "plugin acme: no budget", Cause.REFUSED),
        ("PolicyUnserved", "nobody serves the policy custom", Cause.REFUSED),
        ("ApplyFailed", 'admission webhook "deny.acme.io" denied the request: no', Cause.REFUSED),
        ("ApplyFailed", "exceeded quota: jobs, requested: count/jobsets=1", Cause.QUOTA_EXCEEDED),
        ("JobCreationFailed", "spec.template.spec.containers[0].image: Required value", Cause.REFUSED),
        ("TrainJobInvalid", "the TrainJob cannot be built: numNodes", Cause.REFUSED),
        ("RuntimePatchInvalid", "a runtime patch does not fit the runtime", Cause.REFUSED),
        ("NameTaken", 'JobSet "demo" exists and does not belong to this TrainJob', Cause.REFUSED),
        ("KindNotServed", "the cluster serves no podgroups.scheduling.volcano.sh", Cause.REFUSED),
        ("KindNotServed", "the cluster serves no jobsets.jobset.x-k8s.io", Cause.JOBSET_CONTROLLER_ABSENT),
        ("WorkloadGone", 'JobSet "demo" ran and is gone', Cause.TIME_TO_LIVE_EXPIRED),
    ],
)
def test_what_the_manager_says_stands_in_the_way_is_the_cause(reason: str, message: str, cause: Cause) -> None:
    blocked = condition("Blocked", reason, message, since=1)
    found = explain(view(trainjob(blocked), jobsets=[], pods=[])).findings
    assert found[0].cause is cause
    assert found[0].certainty is Certainty.CERTAIN
    assert found[0].since == moment(1)
    assert message in found[0].evidence[0].text
    assert found[0].what_next


@pytest.mark.parametrize(
    ("reason", "message", "advice"),
    [
        ("BuildRejected", "Pool b is closed: maintenance", "do what the message asks for, or wait for what it names"),
        ("PluginQuarantined", "plugin acme is quarantined after 3 failures in a row", "maybe with other jobs"),
        ("PolicyUnserved", "nobody serves the policy custom", "a plugin that serves the policy"),
        ("KindNotServed", "the cluster does not serve Pool", "what the message names is theirs to do"),
        ("RuntimeForbidden", "cannot be read", "the manager may not read the runtime"),
        ("ApplyFailed", "Trainmaster may not create jobsets; tell your administrator", "tell your administrator"),
    ],
)
def test_where_no_plugin_failed_nobody_is_sent_to_look_for_a_traceback(reason: str, message: str, advice: str) -> None:
    blocked = condition("Blocked", reason, message, since=1)
    found = explain(view(trainjob(blocked), jobsets=[], pods=[])).findings[0]
    assert advice in found.what_next[0]
    assert found.what_next[-1].startswith(("the job goes on by itself", "the job is tried again by itself"))
    assert "traceback" not in " ".join(found.what_next)


def test_a_runtime_that_does_not_exist_is_told_with_those_that_do() -> None:
    # A name that is near to that of a runtime is offered.
    there = [runtime("torch-distributed-v2"), runtime("xgboost-distributed")]
    (found,) = explain(view(runtimes=there, snapshots=[], jobsets=[], pods=[], leases=None, now=10)).findings
    assert found.cause is Cause.RUNTIME_MISSING
    assert found.what_next[0].startswith("did you mean 'torch-distributed-v2'?")
    assert str(found.evidence[0].object) == "ClusterTrainingRuntime torch-distributed"
    # Runtimes are listed where none is near.
    (found,) = explain(view(runtimes=[runtime("mpi")], snapshots=[], jobsets=[], pods=[], now=10)).findings
    assert "runtimes of this kind: mpi" in found.what_next
    # A runtime that is frozen is not missed.
    snapshot = {"kind": "ConfigMap", "metadata": {"name": "demo-runtime-snapshot", "namespace": "team"}}
    assert not explain(view(runtimes=[], snapshots=[snapshot], jobsets=[], pods=[], now=10)).findings
    # A runtime of a kind that nobody serves is missing.
    failed = condition("Failed", "TrainingRuntimeNotSupported", "unsupported runtime: Foo.acme.io")
    (found,) = explain(view(trainjob(failed), pods=[], jobsets=[])).findings
    assert (found.cause, found.evidence[0].text) == (Cause.RUNTIME_MISSING, "unsupported runtime: Foo.acme.io")


@pytest.mark.parametrize(
    ("note", "cause", "advice"),
    [
        (QUOTA, Cause.QUOTA_EXCEEDED, "kubectl describe resourcequota team-quota -n team"),
        ('Error creating: admission webhook "deny.acme.io" denied the request: no', Cause.REFUSED, "deny.acme.io"),
        ('Error creating: Internal error occurred: failed calling webhook "gone.acme.io": no endpoints', Cause.REFUSED,
         "gone.acme.io does not answer"),
        ('Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest"', Cause.REFUSED,
         "kubectl describe namespace team"),
        ('Error creating: pods "x" is forbidden: failed quota: team: must specify requests.cpu for: node',
         Cause.QUOTA_EXCEEDED, "say how much it needs: the quota counts requests.cpu"),
        ('pods "x" is forbidden: error looking up service account team/trainer: serviceaccount "trainer" not found',
         Cause.REFUSED, "kubectl create serviceaccount trainer -n team"),
        ('Error creating: pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi',
         Cause.REFUSED, "kubectl describe limitranges -n team"),
    ],
)  # fmt: skip
def test_pods_that_are_refused_are_told_by_events_of_their_job(note: str, cause: Cause, advice: str) -> None:
    events = [event("FailedCreate", note, kind="Job", name="demo-node-0", first=3, last=200, count=7)]
    found = explain(view(jobsets=[jobset()], jobs=[job()], pods=[], events=events)).findings[0]
    assert (found.cause, found.since) == (cause, moment(3))
    assert found.evidence[0].text == f"FailedCreate (7 times): {note}"
    assert any(advice in line for line in found.what_next)


def test_how_much_of_a_quota_is_used_by_now_is_told() -> None:
    used = {"hard": {"pods": "4", "cpu": "8"}, "used": {"pods": "3", "cpu": "1"}}
    quotas = [
        {"kind": "ResourceQuota", "metadata": {"name": "team-quota", "namespace": "team"}, "status": used},
        {"kind": "ResourceQuota", "metadata": {"name": "other", "namespace": "team"}, "status": used},
    ]
    events = [event("FailedCreate", QUOTA, kind="Job", name="demo-node-0")]
    found = explain(view(jobsets=[jobset()], jobs=[job()], pods=[], events=events, quotas=quotas)).findings[0]
    assert [(str(each.object), each.text) for each in found.evidence[1:]] == [
        ("ResourceQuota team-quota", "is used by now: pods: 3 of 4")
    ]


def test_a_refusal_counts_until_all_ranks_are_there() -> None:
    # A refusal that is over is no cause any more.
    events = [event("FailedCreate", QUOTA, kind="Job", name="demo-node-0")]
    pods = [running(rank, started=20) for rank in range(4)]
    found = explain(view(jobsets=[jobset()], jobs=[job()], pods=pods, events=events))
    assert not found.findings
    # A refused rank is the cause while the others run.
    found = explain(view(jobsets=[jobset()], jobs=[job()], pods=pods[:3], events=events))
    assert found.findings[0].cause is Cause.QUOTA_EXCEEDED


def test_refusals_are_put_together_and_rights_of_the_manager_are_no_fault_of_the_job() -> None:
    # A right that the manager lacks is no fault of the job.
    user = "system:serviceaccount:kubeflow:kubeflow-trainer-controller-manager"
    message = f'403 Forbidden: jobsets "demo" is forbidden: User "{user}" cannot patch resource "jobsets"'
    found = explain(view(trainjob(condition("Blocked", "ApplyFailed", message)), jobsets=[])).findings[0]
    assert found.cause is Cause.REFUSED
    assert "`trainmaster rbac` prints what the manager needs" in found.what_next[0]
    # Refusals that differ in the name of a pod are one.
    events = [
        event("FailedCreate", QUOTA.replace('-x"', f'-{suffix}"'), kind="Job", name="demo-node-0", first=first)
        for suffix, first in (("abcde", 3), ("fghij", 4), ("klmno", 6))
    ]
    found = explain(view(jobsets=[jobset()], jobs=[job()], pods=[], events=events)).findings[0]
    assert [each.text for each in found.evidence] == [f"FailedCreate (3 times): {events[-1].note}"]
    assert found.evidence[0].at == moment(6)


CREATED = "Created pod: demo-node-0-0-a"


def test_what_was_refused_until_the_deadline_was_over_is_why() -> None:
    failed = trainjob(condition("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline", since=30))
    known: dict[str, Any] = {"jobsets": [], "jobs": [], "pods": []}
    for note, cause in (
        (QUOTA, Cause.QUOTA_EXCEEDED),
        ('Error creating: pods "x" is forbidden: serviceaccount "a" not found', Cause.REFUSED),
    ):
        events = [
            event("SuccessfulCreate", CREATED, kind="Job", name="demo-node-0", first=2, warning=False),
            event("FailedCreate", note, kind="Job", name="demo-node-0", first=3, last=29),
        ]
        found = explain(view(failed, events=events, **known)).findings
        assert [each.cause for each in found] == [cause, Cause.DEADLINE_EXCEEDED]
    # What was refused once, and created later, is not why a job failed.
    failed = trainjob(condition("Failed", "FailedJobs", "jobset failed due to one or more job failures", since=60))
    events = [
        event("FailedCreate", QUOTA, kind="Job", name="demo-node-0", first=3),
        event("SuccessfulCreate", CREATED, kind="Job", name="demo-node-0", first=9, warning=False),
    ]
    (only,) = explain(view(failed, events=events, **known)).findings
    assert only.cause is Cause.UNKNOWN


def test_a_container_that_is_refused_and_that_the_job_does_not_have_is_somebody_elses_to_change() -> None:
    words = 'Error creating: pods "demo-worker-0" is forbidden: violates PodSecurity "restricted:latest": '
    told = words + 'runAsNonRoot != true (container "init-pytorch" must set securityContext.runAsNonRoot=true)'
    refusal = event("FailedCreatePod", told, kind="PyTorchJob")
    found = explain(view(pytorchjob(), pods=[], events=[refusal])).findings[0]
    assert found.cause is Cause.REFUSED
    assert found.what_next[0].startswith("ask your administrator: init-pytorch is not in the job")


@pytest.mark.parametrize(
    ("where", "advice"),
    [
        ("job", "see what "),
        (
            "runtime",
            "fetch is of the ClusterTrainingRuntime torch-distributed: change it there, or by spec.runtimePatc",
        ),
        ("plugin", "ask your administrator: fetch is neither in the job nor in its runtime; a plugin of the manager"),
        ("webhook", "ask your administrator: fetch is not in the job; a webhook does"),
    ],
)
@pytest.mark.parametrize(
    "refusal",
    [
        'violates PodSecurity "restricted:latest": runAsNonRoot != true (container "fetch" must set securityContext)',
        "minimum memory usage per Container is 64Mi, but request is 10Mi",
    ],
)
def test_of_an_init_container_that_is_refused_it_is_said_whose_it_is(where: str, advice: str, refusal: str) -> None:
    if where == "webhook" and "PodSecurity" not in refusal:
        advice = "see what the namespace allows"  # a LimitRange does not name the container
    fetch = {"name": "fetch", "resources": {"requests": {"memory": "10Mi"}}}
    workload = jobset()
    if where != "webhook":
        template = workload["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["spec"]["initContainers"] = [fetch]
    patches = [{"trainingRuntimeSpec": {"template": {"spec": {"initContainers": [fetch]}}}}] if where == "job" else []
    frozen = json.dumps({"spec": {"initContainers": [fetch]}}) if where == "runtime" else "{}"
    snapshot = {"kind": "ConfigMap", "metadata": {"name": "s", "namespace": "team"}, "data": {SNAPSHOT_KEY: frozen}}
    events = [
        event("FailedCreate", f'Error creating: pods "x" is forbidden: {refusal}', kind="Job", name="demo-node-0")
    ]
    known: dict[str, Any] = {"jobsets": [workload], "jobs": [job()], "snapshots": [snapshot], "pods": []}
    found = explain(view(trainjob(runtimePatches=patches), events=events, **known)).findings[0]
    assert found.what_next[0].startswith(advice)


def test_of_a_limit_range_that_no_container_of_a_v1_job_violates_it_is_said_who_adds_one() -> None:
    words = 'Error creating: pods "demo-worker-0" is forbidden: '
    words += "minimum memory usage per Container is 64Mi, but request is 10Mi"
    refusal = event("FailedCreatePod", words, kind="PyTorchJob")
    found = explain(view(pytorchjob(), pods=[], events=[refusal])).findings[0]
    assert found.what_next[0].startswith("ask your administrator: no container of the job asks for 10Mi of memory; ")
