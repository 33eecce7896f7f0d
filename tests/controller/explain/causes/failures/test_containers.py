"""Containers that failed, each with its cause: exit codes, reasons, and the last words of libraries."""

from typing import Any

import pytest
from support.pod_views import THEN, ended, event, pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.containers import failed_containers
from trainmaster.controller.explain.findings import Certainty, Finding
from trainmaster.controller.job_fields import MADE_BY_RUN
from trainmaster.runtime.jsontree import JsonObject

LIMITED = {"containers": [{"name": "node", "image": "i", "resources": {"limits": {"memory": "2Gi"}}}]}


def failed(rank: int, exit_code: int, message: str = "", **more: Any) -> JsonObject:
    spec = more.pop("spec", None)
    return pod(rank, phase="Failed", spec=spec, **ended(exit_code, message=message, **more))


def only(*pods: JsonObject, **known: Any) -> Finding:
    (finding,) = failed_containers(view(*pods, **known))
    return finding


def test_the_exit_code_the_rank_and_the_last_words() -> None:
    finding = only(pod(0, phase="Running"), failed(1, 3, "Traceback (most recent call last):\nValueError: no data\n"))
    assert (finding.cause, finding.certainty) == (Cause.CONTAINER_FAILED, Certainty.CERTAIN)
    assert [each.text for each in finding.evidence] == [
        "rank 1: container node failed with exit code 3",
        "it said last: ValueError: no data",
    ]
    assert finding.what_next == ["read its log: trainmaster logs t --rank 1 -n ns"]


def test_only_the_last_attempt_and_rank_counts() -> None:
    # A rank whose pod was replaced is one and not another.
    again = failed(1, 3)
    again["metadata"] |= {"name": "t-node-0-1-again", "uid": "again"}
    text = only(failed(1, 3), again).evidence[0].text
    assert text.startswith("rank 1: container node failed with exit code 3")
    # Only the last attempt counts.
    old, new = failed(0, 3), failed(1, 4)
    new["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = "1"
    assert "exit code 4, attempt 1" in only(old, new).evidence[0].text


@pytest.mark.parametrize(
    ("exit_code", "reason"), [(128, "StartError"), (128, "ContainerCannotRun"), (127, "Error"), (126, "Error")]
)
def test_a_program_that_is_not_there(exit_code: int, reason: str) -> None:
    finding = only(failed(0, exit_code, 'exec: "torchrum": executable file not found in $PATH', reason=reason))
    assert finding.cause is Cause.CONTAINER_FAILED
    assert "trainer.command" in finding.what_next[0]
    needs = event("Pod", "t-node-0-0", "RuntimeIncomplete", "it needs torchrun: python -m pip install torch")
    finding = only(failed(0, exit_code, 'exec: "torchrun": not found', reason=reason), events=[needs])
    assert finding.what_next == ["it needs torchrun: python -m pip install torch"]


def test_what_is_advised_of_a_job_that_run_has_made_are_options() -> None:
    made = {**view().object, "metadata": {**view().metadata, "labels": MADE_BY_RUN}}
    finding = only(failed(0, 137, reason="OOMKilled", spec=LIMITED), job=made)
    assert finding.what_next[0].startswith(
        "raise the limit of memory (--memory-limit of trainmaster run): it is 2Gi, 4Gi"
    )
    finding = only(failed(0, 127), job=made)
    assert finding.what_next[0].endswith("what trainmaster run was given to run, and its --image")


def test_a_module_that_is_missing_has_one_remedy_where_the_command_is_known() -> None:
    missing = failed(0, 1, "Traceback (most recent call last):\nModuleNotFoundError: No module named 'einops'")
    (advice,) = only(missing, installation="pip install einops").what_next
    remedy = "correct the name einops, or install the package that has it"
    assert advice == f"{remedy} for the Python of this cluster: pip install einops"
    assert only(missing).what_next[0].startswith(remedy)


@pytest.mark.parametrize(
    ("exit_code", "words", "spec"),
    [
        (137, "", LIMITED),
        (1, "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.", None),
        (1, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n  exitcode  : -9 (pid: 42)", None),
    ],
    ids=["137 and a limit", "loader of data", "torchrun"],
)
def test_what_was_probably_killed_for_want_of_memory(exit_code: int, words: str, spec: JsonObject | None) -> None:
    finding = only(failed(0, exit_code, words, spec=spec))
    assert (finding.cause, finding.certainty) == (Cause.OUT_OF_MEMORY, Certainty.LIKELY)


def test_a_kill_without_any_trace_of_memory_and_the_memory_of_a_gpu_are_failures_like_others() -> None:
    # A kill without any trace of memory is a failure like others.
    finding = only(failed(0, 137))
    assert finding.cause is Cause.CONTAINER_FAILED
    assert "often for want of memory" in finding.evidence[0].text
    # mpirun ends with the signal that killed a rank, in another container.
    finding = only(
        failed(0, 137, "mpirun noticed that process rank 3 with PID 0 on node w1 exited on signal 9 (Killed)")
    )
    assert finding.cause is Cause.CONTAINER_FAILED
    assert finding.evidence[1].text == "it said last: mpirun says: signal 9 ended rank 3 on node w1"
    # The memory of a gpu is another one.
    finding = only(failed(0, 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert finding.cause is Cause.CONTAINER_FAILED
    assert "a GPU has too little memory" in finding.what_next[0]


def test_the_peers_of_a_rank_without_memory_come_after_it() -> None:
    peer = failed(0, 1, "torch.distributed.DistNetworkError: Connection reset by peer")
    findings = list(failed_containers(view(peer, failed(1, 137, reason="OOMKilled", at="2026-11-23T11:50:00Z"))))
    assert [(each.cause, each.certainty) for each in findings] == [
        (Cause.OUT_OF_MEMORY, Certainty.CERTAIN),
        (Cause.CONTAINER_FAILED, Certainty.POSSIBLE),
    ]
    assert len(findings[1].evidence) == 2, "which rank it lost is known"


def test_an_init_container_or_an_initializer() -> None:
    # An init container and its last words.
    init = {"initContainers": [{"name": "fetch", "image": "i"}], "containers": [{"name": "node", "image": "i"}]}
    status = {
        "initContainerStatuses": ended(1, message="cannot reach the bucket", container="fetch")["containerStatuses"]
    }
    finding = only(pod(0, spec=init, **status))
    assert finding.cause is Cause.INIT_CONTAINER_FAILED
    assert finding.evidence[1].text == "it said last: cannot reach the bucket"
    assert "kubectl logs t-node-0-0 -c fetch -n ns" in finding.what_next[0]
    # An initializer of data or model.
    initializer = failed(0, 1, "RepositoryNotFoundError: 404 Client Error", container="dataset-initializer")
    initializer["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "dataset-initializer"
    finding = only(initializer)
    assert finding.cause is Cause.INIT_CONTAINER_FAILED
    assert "storageUri" in finding.what_next[0]


def test_the_words_of_a_library_count_wherever_they_are_unless_another_exception_follows() -> None:
    # A warning before another exception is no cause.
    words = "W socket.cpp: The client socket has failed to connect to (t-node-0-0.t, 29500), retrying\nKeyError: 'loss'"
    assert only(failed(0, 1, words)).cause is Cause.CONTAINER_FAILED
    # The last lines of a log tell where the message does not.
    finding = only(
        failed(0, 1), logs={("t-node-0-0", "node"): ["socket.gaierror: [Errno -2] Name or service not known"]}
    )
    assert finding.cause is Cause.NAME_RESOLUTION_FAILED


def test_how_many_ranks_were_there_and_which_host_is_unknown() -> None:
    joined = only(failed(0, 1, "DistStoreError: Timed out after 301 seconds waiting for clients. 3/4 clients joined."))
    assert joined.what_next[0].startswith("3 of 4 ranks were there")
    peer = only(failed(1, 1, "ssh: Could not resolve hostname t-node-0-1.t: Name or service not known"))
    assert "t-node-0-1.t is the name of a rank" in peer.what_next[0]
    outside = only(failed(1, 1, "ssh: Could not resolve hostname huggingface.co: Name or service not known"))
    assert "may reach huggingface.co" in outside.what_next[0]
    unknown = "gaierror: [Errno -2] t-node-0-0.t: Name or service not known"
    on_node = only(failed(1, 1, unknown, spec={"hostNetwork": True}))
    assert on_node.what_next[0].startswith("set dnsPolicy: ClusterFirstWithHostNet")
    other = {"metadata": {"name": "t"}, "spec": {"clusterIP": "10.0.0.9"}}
    assert "delete the Service t, which has its name" in only(failed(1, 1, unknown), services=[other]).what_next[0]
    no_service = only(failed(1, 1, "gaierror: Name or service not known"), services=[])
    assert "headless Service of the ranks is missing" in no_service.what_next[0]


def test_a_container_that_runs_again_has_recovered() -> None:
    state = {"running": {"startedAt": "2026-11-23T11:51:00Z"}}
    last = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-23T11:50:30Z"}}
    status = {"name": "node", "restartCount": 1, "state": state, "lastState": last}
    assert not list(failed_containers(view(pod(phase="Running", containerStatuses=[status]))))
    status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    assert only(pod(phase="Running", containerStatuses=[status])).cause is Cause.CONTAINER_FAILED


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"},
    ],
)
def test_a_pod_that_was_taken_away_has_not_failed_by_itself(status: JsonObject) -> None:
    assert not list(failed_containers(view(pod(phase="Failed", **ended(137), **status))))


LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.4]:13706."


def test_how_a_rank_and_its_peers_ended_is_told() -> None:
    # A rank that had done its work when another one lost it is told.
    finding = only(failed(0, 1, LOST), pod(1, phase="Succeeded"))
    assert (finding.cause, finding.certainty) == (Cause.CONTAINER_FAILED, Certainty.POSSIBLE)
    assert [each.text for each in finding.evidence] == [
        "rank 1 ended first, with exit code 0",
        "rank 0: container node failed with exit code 1",
        f"it said last: {LOST}",
    ]
    assert "trainmaster logs t --all -n ns" in finding.what_next[0]
    assert "the same number of steps" in finding.what_next[1]
    # Of what failed in one second the logs tell who lost whom where pods keep no words.
    logs = {("t-node-0-0", "node"): (LOST,), ("t-node-0-1", "node"): ("KeyError: 'input_ids'",)}
    finding = only(failed(0, 1), failed(1, 1), logs=logs)
    assert finding.evidence[0].text == "rank 1 and 1 other: container node failed with exit code 1"
    assert finding.evidence[1].text == "it said last: KeyError: 'input_ids'"


def test_a_probe_that_ended_a_container_is_told() -> None:
    for probe in ("liveness", "startup"):
        note = f"Container node failed {probe} probe, will be restarted"
        finding = only(failed(0, 143), events=[event("Pod", "t-node-0-0", "Killing", note, warning=False)])
        assert finding.certainty is Certainty.CERTAIN
        assert finding.evidence[1].text == f"Killing: {note}"
        assert finding.what_next[0].startswith("give the probe more time, or leave it out")


def test_of_a_kill_that_nobody_explains_nothing_is_guessed() -> None:
    assert only(failed(0, 137, "epoch 3")).what_next[0].startswith("nobody says who killed it")
    for code in (134, 135, 139):
        assert only(failed(0, code, "epoch 3")).what_next == ["read its log: trainmaster logs t -n ns"]


TWO_RANKS = {
    "containers": [{"name": "node", "command": ["torchrun"], "env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}]
}


def test_a_node_is_told_with_its_ranks_and_the_rank_that_failed_first() -> None:
    own = "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: bad batch\n"
    finding = only(failed(1, 1, own, spec=TWO_RANKS))
    assert [each.text for each in finding.evidence] == [
        "node 1 (ranks 2-3): container node failed with exit code 1, rank 3 first",
        "it said last: ValueError: bad batch",
    ]
    assert finding.what_next == ["read its log: trainmaster logs t --rank 3 -n ns"]


def test_a_rank_that_lost_another_one_of_which_no_failure_is_known_is_no_cause() -> None:
    finding = only(failed(0, 1, LOST))
    assert finding.certainty is Certainty.POSSIBLE
    assert finding.evidence[-1].text.startswith("it lost another rank, of which no failure is known")
    # What is printed of attempts to connect before an exception is overcome.
    retries = (
        "[W socket.cpp:700] The client socket has failed to connect to [t]:29500 (errno: 111 - Connection refused)."
    )
    finding = only(failed(0, 1, f"{retries}\nTraceback (most recent call last):\nValueError: bad batch"))
    assert (finding.certainty, len(finding.evidence)) == (Certainty.CERTAIN, 2)
    # The other one had done its work: an embedded cluster tells of pods that are gone, torchrun of its processes.
    barrier = "W1128 21:50:48.123000 7 torch/distributed/elastic/agent/server/api.py:704] Got termination signal: 15"
    said = {("t-node-0-1", "node"): ["rank 1 leaves", barrier]}
    succeeded, stopped = pod(1, phase="Succeeded", **ended(0)), failed(1, 1, f"rank 1 leaves\n{barrier}")
    stopped["metadata"]["deletionTimestamp"] = "2026-11-23T11:49:59Z"
    for gone, logs in ((succeeded, {}), (stopped, {}), (pod(1, phase="Running"), said)):
        finding = only(failed(0, 1, LOST), former_pods=[gone], logs=logs)
        assert finding.evidence[0].text == "rank 1 ended first, with exit code 0"
        assert str(finding.evidence[0].object) == "Pod t-node-0-1"


def test_of_a_place_that_was_taken_anew_the_last_pod_counts() -> None:
    """The others end with it, and one was stopped when the job failed: that its pod before had failed is history."""
    overcome = [failed(0, 1, "ConnectionError: transient: S3 is down"), failed(1, 1, LOST)]
    last = [failed(0, 1, "ValueError: the real bug"), failed(1, 137)]
    for number, each in enumerate(last):
        each["metadata"] |= {
            "name": f"again-{number}",
            "uid": f"again-{number}",
            "creationTimestamp": "2026-11-23T11:51:00Z",
        }
    last[1]["metadata"] |= {"deletionTimestamp": THEN, "deletionGracePeriodSeconds": 0}
    finding = only(*overcome, *last)
    assert [each.text for each in finding.evidence] == [
        "rank 0: container node failed with exit code 1, restart 1",
        "it said last: ValueError: the real bug",
    ]


def test_a_run_that_was_stopped_when_the_job_failed_has_overcome_nothing() -> None:
    """The backoff limit deletes a pod whose container runs again; an embedded cluster still tells of it."""
    gone = pod(phase="Running", containerStatuses=[{
        "name": "node", "restartCount": 1, "state": {"running": {"startedAt": THEN}},
        "lastState": {"terminated": {"exitCode": 7, "reason": "Error", "message": "oh no", "finishedAt": THEN}},
    }])  # fmt: skip
    gone["metadata"]["deletionTimestamp"] = THEN
    finding = only(former_pods=[gone], conditions=[{"type": "Failed", "status": "True"}])
    assert [each.text for each in finding.evidence] == [
        "rank 0: container node failed with exit code 7",
        "it said last: oh no",
    ]
    assert finding.what_next == ["read its log: trainmaster logs t --previous -n ns"]
    assert not list(failed_containers(view(gone)))


def test_a_pod_that_a_node_refuses_tells_why_its_container_could_not_be_started() -> None:
    """As a kubelet does of devices that are not healthy, and an embedded cluster of what has no command."""
    refused: Any = {
        "reason": "UnexpectedAdmissionError",
        "message": "Allocate failed due to no healthy devices present",
    }
    finding = only(pod(0, phase="Failed", **refused))
    assert (finding.cause, finding.certainty) == (Cause.CONTAINER_FAILED, Certainty.CERTAIN)
    assert finding.evidence[0].text == ("rank 0: container node failed with exit code 128, UnexpectedAdmissionError")
    assert finding.evidence[1].text == "it said last: Allocate failed due to no healthy devices present"
