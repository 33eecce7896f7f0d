"""One state, one word, and one count of restarts, wherever they are shown: kubectl get, list, top, explain, the web."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.failing_pods import BACKING_OFF, TOLD, container_status, pod, terminated
from support.job_views import condition, jobset, moment, pending, pytorchjob, running, trainjob, view
from support.virtualtime import VirtualClock

from trainmaster.controller.cli.explain.text import lines_of, to_json
from trainmaster.controller.cli.history.tables import duration
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import rows_of, trouble_of
from trainmaster.controller.cli.printers import human_duration
from trainmaster.controller.container_failures import container_failures
from trainmaster.controller.diagnosis.first_failures import FirstFailures
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.state import WORDS, state_of
from trainmaster.controller.history.job_objects import record_of
from trainmaster.controller.job_fields import JobFields
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.web.jobs import Jobs
from trainmaster.devcluster.apiserver.registry.printers import custom_columns
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject

PYTORCHJOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
FAILED = condition("ContainerFailed", "ContainerFailed", TOLD)
STARTS: JsonObject = {"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}
READY: JsonObject = {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}


async def words(job: JsonObject, pods: Sequence[JsonObject]) -> dict[str, str]:
    """What is said of a job in each place; of kubectl only where it says anything."""
    is_trainjob = job["kind"] == "TrainJob"
    path = dict(TrainJob.__definition__.columns)["State"] if is_trainjob else ".status.conditions[-1:].type"
    column = custom_columns([{"name": "State", "type": "string", "jsonPath": path}])[-1]
    state = column.cell(job, datetime.now(UTC))
    known = view(job, pods=pods, jobsets=[jobset(nodes=1)])
    explanation = explain(known)
    (row,) = rows_of(
        [Job(job, TRAINJOBS if is_trainjob else PYTORCHJOBS)], pods=pods, jobsets=[jobset(nodes=1)], now=moment(300)
    )
    store = Store()
    store.put(job)
    informer = cast("Any", SimpleNamespace(store=store, has_synced=True))
    jobs = Jobs([(job["kind"], informer)], workloads=lambda _: (), reader=None, user_key="", clock=VirtualClock())
    (shown,) = (await jobs.listing(None, row.state)).jobs
    page = await jobs.job(job["kind"], "team", "demo", "uid-of-demo")
    assert page is not None
    return {
        **({"kubectl": str(state)} if state else {}),
        "list": row.state,
        "explain": next(lines_of(explanation, known)).split(": ")[1].split(" ")[0],
        "JSON": to_json(explanation, known)["state"]["name"],
        "web": shown.state,
        "page": page.state,
    }


CRASHED = pod(0, containers=[container_status(BACKING_OFF, last=terminated(7), restarts=3)], phase="Running")


@pytest.mark.parametrize(
    ("job", "pods", "word"),
    [
        pytest.param(trainjob(), [], "Waiting", id="nothing has become of it yet"),
        pytest.param(trainjob(status=STARTS), [pending()], "Waiting", id="its pod has no node"),
        pytest.param(trainjob(condition("Waiting"), status=STARTS), [pending()], "Waiting", id="and that is told"),
        pytest.param(trainjob(status=READY), [running()], "Running", id="it runs"),
        pytest.param(trainjob(FAILED, status=STARTS), [CRASHED], "ContainerFailed", id="its container crashes"),
        pytest.param(
            trainjob(FAILED, condition("Waiting"), status=STARTS), [CRASHED, pending(1)], "ContainerFailed", id="both"
        ),
        pytest.param(trainjob(condition("Blocked"), status=READY), [running()], "Blocked", id="blocked while it runs"),
        pytest.param(trainjob(condition("PluginSkipped"), status=READY), [running()], "PluginSkipped", id="skipped"),
        pytest.param(trainjob(condition("Suspended"), suspend=True), [], "Suspended", id="suspended"),
        pytest.param(trainjob(condition("Suspended", status="False")), [pending()], "Waiting", id="resumed"),
        pytest.param(trainjob(condition("Complete"), FAILED), [], "Complete", id="complete"),
        pytest.param(trainjob(condition("Failed"), FAILED), [], "Failed", id="failed"),
        pytest.param(pytorchjob(condition("Created")), [], "Created", id="V1 created"),
        pytest.param(pytorchjob(condition("Created"), condition("Running")), [], "Running", id="V1 runs"),
        pytest.param(pytorchjob(condition("Created"), condition("Restarting")), [], "Restarting", id="V1 restarts"),
        pytest.param(pytorchjob(condition("Created"), condition("Succeeded")), [], "Succeeded", id="V1 succeeded"),
    ],
)
async def test_a_job_is_in_one_state_wherever_one_looks(job: JsonObject, pods: list[JsonObject], word: str) -> None:
    said = await words(job, pods)
    assert said == dict.fromkeys(said, word)
    assert word in WORDS


def test_what_has_ended_keeps_its_word_when_it_is_deleted() -> None:
    assert record_of(trainjob(condition("Complete"))).state == "Complete"
    assert record_of(pytorchjob(condition("Succeeded"))).state == "Succeeded"
    assert record_of(trainjob(condition("Failed"))).state == "Failed"
    for job, result, word in (
        (trainjob(), "Succeeded", "Complete"),
        (pytorchjob(), "Succeeded", "Succeeded"),
        (trainjob(), "Failed", "Failed"),
        (trainjob(), "Deleted", "Deleted"),
        (trainjob(), "", "Deleted"),
    ):
        gone = replace(view(job), is_deleted=True, result=result)
        assert state_of(gone).word == word
        assert next(lines_of(explain(gone), gone)).split(": ")[1].split(" ")[0] == word


def test_list_and_history_tell_the_same_duration_whatever_restarts_there_were() -> None:
    """A pod tells of its last runs only, and goes when its job does."""
    ended = condition("Complete", since=90)
    resumed = condition("Suspended", status="False", since=30)
    for conditions, seconds in (([ended], 90), ([resumed, ended], 60)):
        job = trainjob(*conditions)
        for pods in ([CRASHED], []):
            (row,) = rows_of([Job(job, TRAINJOBS)], pods=pods, jobsets=[], now=moment(300))
            assert row.duration(moment(300)) == seconds
        assert duration(record_of(job, started=time_text(moment(80)))) == human_duration(seconds)
    (row,) = rows_of([Job(trainjob(FAILED), TRAINJOBS)], pods=[CRASHED], jobsets=[], now=moment(300))
    assert row.duration(moment(300)) == 300


def test_a_row_has_the_cause_that_explain_finds_in_the_pods_or_that_of_the_conditions() -> None:
    waits = pending(message="0/1 nodes are available: 1 Insufficient cpu.")
    unknown = Job(trainjob(), TRAINJOBS)
    (looked,) = rows_of([unknown], pods=[waits], jobsets=[jobset(nodes=1)], now=moment(20))
    (blind,) = rows_of([unknown], pods=None, jobsets=[], now=moment(20))
    assert (looked.cause, blind.cause) == ("Unschedulable", "")
    waits["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "demo"  # and tables read no PodGroups
    (of_gang,) = rows_of([unknown], pods=[waits], jobsets=[jobset(nodes=1)], now=moment(20))
    assert of_gang.cause == ""
    told_so = condition("Waiting", "Unknown", "0/1 nodes are available: 1 Insufficient cpu.")
    (after_a_while,) = rows_of(
        [Job(trainjob(told_so), TRAINJOBS)], pods=[waits], jobsets=[jobset(nodes=1)], now=moment(60)
    )
    assert after_a_while.cause == ""
    crashed = {**CRASHED, "metadata": {**CRASHED["metadata"], "ownerReferences": [{"kind": "ReplicaSet"}]}}
    (of_others,) = rows_of([unknown], pods=[crashed], jobsets=[jobset(nodes=1)], now=moment(20))
    assert (of_others.state, of_others.nodes, of_others.cause, of_others.restarts) == ("Waiting", 0, "", 0)
    told = [
        trainjob(condition("Failed", message="jobset failed"), FAILED),
        trainjob(condition("Suspended"), suspend=True),
    ]
    rows = rows_of([Job(each, TRAINJOBS) for each in told], pods=[], jobsets=[], now=moment(9))
    assert [row.cause for row in rows] == ["ContainerFailed", ""]


def test_who_ended_first_is_named_wherever_a_cause_is_told() -> None:
    lost = pod(0, terminated(message="RuntimeError: Connection closed by peer"), phase="Failed")
    known = view(trainjob(condition("Failed")), pods=[lost, pod(1, terminated(0), phase="Succeeded")])
    first = "rank 1 ended first, with exit code 0"
    trouble = trouble_of(Job(known.object, TRAINJOBS), pods=known.pods, jobset=None, now=known.now)
    (told,) = FirstFailures().add(container_failures(lost), {}, known)
    assert explain(known).findings[0].evidence[0].text == first
    assert trouble is not None
    assert trouble.text == first
    assert told.text.startswith(f"attempt 0: {first}; rank 0 (pod demo-node-0-0-abcde, container node) failed at ")
    gone = view(trainjob(condition("Failed", message=f"jobset failed; {told.text}")), pods=[])
    assert f"{first}; rank 0 (pod" in explain(gone).findings[0].evidence[0].text


async def test_why_a_v1_job_failed_its_pods_tell_and_nobody_else_guesses() -> None:
    """Its conditions say only that replicas have failed, of want of memory perhaps."""
    job = pytorchjob(
        condition("Failed", "PyTorchJobFailed", "PyTorchJob demo is failed because 1 Worker replica(s) failed.")
    )
    killed = pod(0, containers=[container_status(terminated(137, reason="OOMKilled"), name="pytorch")], phase="Failed")
    killed["metadata"]["namespace"] = "team"
    killed["metadata"]["ownerReferences"] = [{"kind": "PyTorchJob", "uid": job["metadata"]["uid"]}]
    killed["metadata"]["labels"] = {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "demo",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    (row,) = rows_of([Job(job, PYTORCHJOBS)], pods=[killed], jobsets=[], now=moment(300))
    assert row.cause == explain(view(job, pods=[killed])).findings[0].cause == "OutOfMemory"
    assert record_of(job).cause == "Unknown"
    assert [each.cause for each in explain(view(job)).findings] == ["Unknown"]


LATER = TOLD.replace("attempt 0", "attempt 1, restart 2")


@pytest.mark.parametrize(
    ("told", "restarted", "pods", "restarts"),
    [
        pytest.param("", 0, [running(0), running(1)], 0, id="none"),
        pytest.param(TOLD, 0, [CRASHED], 3, id="in place"),
        pytest.param("", 1, [running(0, attempt=1), running(1, attempt=1)], 1, id="as a whole: once, not per node"),
        pytest.param(
            "", 0, [pod(0, phase="Failed"), pod(1, phase="Failed"), running(0, suffix="b"), running(1, suffix="b")], 1,
            id="one crash ends both nodes",
        ),
        pytest.param(f"{TOLD}\n{LATER}", 1, [], 3, id="pods are gone"),
        pytest.param(f"jobset failed; {LATER}", 1, [], 3, id="and it has failed"),
        pytest.param(f"{TOLD}: attempt 9: I try again (really)", 0, [], 0, id="what a program says"),
    ],
)  # fmt: skip
def test_restarts_are_counted_in_one_way(told: str, restarted: int, pods: list[JsonObject], restarts: int) -> None:
    """The training as a whole, and in each attempt the node that was restarted most often."""
    job = trainjob(condition("ContainerFailed", message=told))
    made = jobset()
    made["status"]["restarts"] = restarted
    (row,) = rows_of([Job(job, TRAINJOBS)], pods=pods, jobsets=[made], now=moment(300))
    found = view(job, pods=pods, jobsets=[made])
    explanation = explain(found)
    assert (row.restarts, explanation.restarts, to_json(explanation, found)["restarts"]) == (
        restarts,
        restarts,
        restarts,
    )
    if not pods:
        assert record_of(job, [made]).restarts == JobFields(job).restarts(made) == restarts
