"""What pods say about containers that failed, which failure was the first, and what is told of the end of a log."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failing_pods import BACKING_OFF, FAILURE, RUNNING, SECOND, container_status, pod, terminated

from trainmaster.controller.container_failures import (
    REPLICATED_JOB_LABEL,
    ContainerFailure,
    container_failures,
    meaning_of,
)
from trainmaster.controller.last_words import LENGTH, failed_rank, last_words
from trainmaster.runtime.jsontree import JsonObject


def only(of: JsonObject) -> ContainerFailure:
    (found,) = container_failures(of)
    return found


def test_a_container_that_failed_is_told_with_all_that_is_known_of_it() -> None:
    failed = pod(1, terminated(1, message="NaN"), attempt=2)
    assert only(failed) == replace(FAILURE, pod_uid="uid-of-demo-node-0-1-abcde-2", attempt=2, message="NaN")


@pytest.mark.parametrize(
    ("state", "restarts", "run", "superseded"),
    [
        (BACKING_OFF, 0, 0, False),
        (BACKING_OFF, 3, 3, False),
        ({"waiting": {"reason": "CreateContainerConfigError"}}, 3, 3, False),
        ({"waiting": {"reason": "ContainerCreating"}}, 1, 0, False),
        (RUNNING, 1, 0, True),
        (terminated(0), 1, 0, True),
    ],
    ids=["waits first", "waits again", "waits for a ConfigMap", "is being created", "runs", "succeeded"],
)
def test_which_run_the_last_state_is_of_follows_from_what_the_container_does(
    state: JsonObject, restarts: int, run: int, superseded: bool
) -> None:
    """A restart is counted when the container is created: one that waits for its first restart has none."""
    failure = only(pod(0, containers=[container_status(state, last=terminated(), restarts=restarts)]))
    assert (failure.run, failure.superseded) == (run, superseded)


def test_both_runs_that_a_pod_tells_of_are_found() -> None:
    both = container_failures(
        pod(0, containers=[container_status(terminated(at=9), last=terminated(at=5), restarts=3)])
    )
    assert [(each.run, each.at) for each in both] == [(2, SECOND.format(5)), (3, SECOND.format(9))]


def test_initializers_and_launchers_have_no_rank() -> None:
    assert only(pod(0, job="launcher", state=terminated())).rank is None
    fetches = container_status(terminated(), name="dataset-initializer")
    failure = only(pod(0, job="dataset-initializer", containers=[fetches]))
    assert (failure.rank, failure.container, failure.replicated_job) == (
        None,
        "dataset-initializer",
        "dataset-initializer",
    )


def test_of_an_evicted_pod_the_reason_is_that_of_the_pod() -> None:
    evicted = pod(0, terminated(137), reason="Evicted", message="The node was low on resource: memory.")
    assert only(evicted).message == "Evicted: The node was low on resource: memory."
    own = pod(0, terminated(137, message="my words"), reason="Evicted", message="The node was low on memory.")
    assert only(own).message == "my words"


DELETED: JsonObject = {"deletionTimestamp": SECOND.format(36), "deletionGracePeriodSeconds": 30}
"""At second 6."""


@pytest.mark.parametrize(
    ("code", "at", "stopped"), [(1, 5, False), (1, 6, False), (143, 6, True), (1, 7, True), (137, 36, True)]
)
def test_who_ends_because_the_pod_is_deleted_was_stopped(code: int, at: int, stopped: bool) -> None:
    """A pod that has failed is deleted in the same second where a JobSet starts anew: its own failure counts."""
    assert only(pod(0, terminated(code, at=at), deleted=DELETED)).stopped is stopped
    own = "Traceback (most recent call last):\nValueError: my loss is NaN\n"
    assert not only(pod(0, terminated(1, at=7, message=own), deleted=DELETED)).stopped, (
        "its launcher ends a moment later"
    )
    assert only(pod(0, terminated(1, at=7, message="SignalException: got signal: 15"), deleted=DELETED)).stopped
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "room needed"}
    preempted = only(pod(0, terminated(143, at=8), deleted=DELETED, conditions=[target]))
    assert (preempted.stopped, preempted.message) == (False, "PreemptionByScheduler: room needed")


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (terminated(137, at=5), 1),
        (terminated(143, at=5), 1),
        (
            terminated(1, at=5, message="RuntimeError: [gloo/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3"),
            1,
        ),
        (terminated(1, at=5, message="DistBackendError: NCCL error: remote process exited or there was an error"), 1),
        (terminated(1, at=5, message="torch.distributed.elastic...SignalException: Process 7 got signal: 15"), 1),
        (terminated(1, at=6), 1),
        (terminated(1, at=4, message="RuntimeError: [gloo/tcp/pair.cc:534] Connection closed by peer"), 1),
        (terminated(137, at=5, reason="OOMKilled"), 0),
    ],
    ids=["killed", "ended", "gloo", "nccl", "torchrun", "a second later", "gloo before", "too little memory"],
)
def test_the_cause_of_failures_at_about_the_same_time_is_whoever_lost_nobody(other: JsonObject, cause: int) -> None:
    failures = [*container_failures(pod(0, other)), *container_failures(pod(1, terminated(1, at=5)))]
    assert min(failures, key=lambda each: each.precedence).rank == cause


def test_codes_of_signals_have_a_meaning() -> None:
    for code, meaning in ((137, "SIGKILL"), (139, "SIGSEGV"), (135, "SIGBUS")):
        assert meaning in meaning_of(code)
    assert (meaning_of(1), meaning_of(-9)) == ("", "")
    assert meaning_of(137, "OOMKilled") == "it needed more memory than its limit"


_texts = st.sampled_from(["", "Error", "CrashLoopBackOff", "ContainerCreating", "\0\u2028", "x" * 5000])
_ends = st.fixed_dictionaries(
    {"exitCode": st.integers(-(2**31), 2**31 - 1)},
    optional={"reason": _texts, "message": _texts, "finishedAt": st.just(SECOND.format(7)) | st.none()},
)
_states = st.fixed_dictionaries(
    {},
    optional={
        "terminated": _ends | st.none(),
        "running": st.fixed_dictionaries({}) | st.none(),
        "waiting": st.fixed_dictionaries({}, optional={"reason": _texts}) | st.none(),
    },
)
_containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["node", "proxy"])},
        optional={"restartCount": st.integers(0, 9), "state": _states | st.none(), "lastState": _states | st.none()},
    ),
    max_size=3,
)
_statuses = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "containerStatuses": _containers | st.none(),
        "initContainerStatuses": _containers | st.none(),
        "reason": _texts,
        "conditions": st.none() | st.lists(st.fixed_dictionaries({"type": st.just("DisruptionTarget")})),
    },
)


_graces = st.sampled_from([30, 10**12, 2**63 - 1])
_processes = st.sampled_from(["1", "auto", "9" * 5000])


@given(status=_statuses, labels=st.none() | st.just({}), grace=st.none() | _graces, processes=_processes)
def test_no_pod_that_an_api_server_may_show_is_too_odd(status: Any, labels: Any, grace: Any, processes: str) -> None:
    metadata = {"name": "p", "uid": "u", "labels": labels}
    if grace is not None:
        metadata |= DELETED | {"deletionGracePeriodSeconds": grace}
    variables = [{"name": "PET_NPROC_PER_NODE", "value": processes}]
    spec = {"containers": [{"name": "node", "command": ["torchrun"], "env": variables}]}
    ranked = {REPLICATED_JOB_LABEL: "node"}
    container_failures({"metadata": metadata | {"labels": ranked}, "spec": spec, "status": status})
    for failure in container_failures({"metadata": metadata, "status": status}):
        assert failure.exit_code != 0
        assert failure.run >= 0
        assert sorted([failure.order, failure.order])


TRACEBACK = """\
epoch 3
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    raise ValueError("my loss is NaN")
ValueError: my loss is NaN
"""

TORCHRUN = """\
E1123 08:00:00.000000 12345 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 \
(pid: 12346) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
"""

REPORT = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_08:00:00
  host      : demo-node-0-1.demo
  rank      : 1 (local_rank: 0)
  exitcode  : 1 (pid: 12346)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""

RECORDED = REPORT.replace("To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html", TRACEBACK)

PREFIXED = "".join(f"[rank1]: {line}\n" for line in TRACEBACK.splitlines())
AGAIN = "During handling of the above exception, another exception occurred:\n\n"
LOST = "[rank0]: Traceback (most recent call last):\n[rank0]: torch.distributed.DistBackendError: NCCL error\n"


@pytest.mark.parametrize(
    "message",
    [
        TRACEBACK,
        TRACEBACK[30:],
        PREFIXED,
        TRACEBACK + TORCHRUN + REPORT,
        PREFIXED + TORCHRUN + REPORT,
        TORCHRUN + RECORDED,
        RECORDED[300:],
        PREFIXED + LOST + TORCHRUN + REPORT,
        "\x1b[31mValueError: my loss is NaN\x1b[0m\n",
        f"Traceback (most recent call last):\nKeyError: 'x'\n\n{AGAIN}{TRACEBACK}",
    ],
    ids=["alone", "cut", "ranks", "torchrun", "both", "record", "cut record", "another rank", "colours", "the last"],
)
def test_of_a_traceback_the_exception_is_told(message: str) -> None:
    assert last_words(message) == "ValueError: my loss is NaN"


def test_an_exception_of_several_lines_is_told_with_them() -> None:
    message = "Traceback (most recent call last):\nRuntimeError: CUDA error\nLast error:\n\nout of memory\n" + TORCHRUN
    assert last_words(message) == "RuntimeError: CUDA error | Last error: | out of memory"


def test_where_only_the_table_of_torchrun_is_left_it_says_what_is_in_it() -> None:
    line = (
        "26:05.480000 29557 /site-packages/torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 5\n"
    )
    for cut in (TORCHRUN[100:], line + TORCHRUN):
        assert last_words(cut + REPORT) == (
            "torchrun says that a process of it failed: rank 1, exitcode 1; its own words are in the log before that"
        )


def test_the_rank_that_failed_first_is_named_by_its_exception_or_by_torchrun() -> None:
    other = "Failures:\n[1]:\n  rank      : 0 (local_rank: 1)\n  exitcode  : -15 (pid: 12347)\n"
    for message in (PREFIXED + TORCHRUN + REPORT, TRACEBACK + TORCHRUN + other + REPORT, PREFIXED + LOST):
        assert failed_rank(message) == 1
    assert last_words(TORCHRUN[100:] + other + REPORT).startswith("torchrun says that a process of it failed: rank 1,")
    assert failed_rank(TRACEBACK) is None


def test_without_an_exception_the_last_lines_are_told_that_fit() -> None:
    message = "\n".join(["x" * LENGTH, "epoch 1", "=====", "", "cannot open /data/train.bin", "giving up"])
    assert last_words(message) == "epoch 1 | cannot open /data/train.bin | giving up"
    before_torchrun = "cannot open /data/train.bin\n" + TORCHRUN + REPORT
    assert last_words(before_torchrun) == "cannot open /data/train.bin"
    assert [last_words(each) for each in ("", "\n\n", "-----\n====\n", "\x1b[0m")] == [""] * 4


OPEN_MPI = """\
[t-node-0-0:00000] ***    and MPI will try to terminate your MPI job as well)
--------------------------------------------------------------------------
prterun noticed that process rank 3 with PID 21922 on node t-node-0-1 exited on
signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPEN_MPI_DAEMON = """\
Connection to t-node-0-1.t closed by remote host.
------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable:

  Local host:    t-launcher-0-0
  Remote host:   t-node-0-1
  Daemon exit status: 255

This may also be caused by a firewall on the remote host.
"""
MPICH = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 24327 RUNNING AT t-node-0-1.t
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
[mpiexec@t-launcher-0-0] main (mpiexec.c:270): process manager error waiting for completion
"""
MPICH_NODE = """\
Connection to t-node-0-1.t closed by remote host.
[mpiexec@t-launcher-0-0] control_cb (pmiserv_cb.c:280): assert (!closed) failed
"""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (OPEN_MPI, "signal 9 ended rank 3 on node t-node-0-1"),
        (OPEN_MPI_DAEMON, "its daemon on node t-node-0-1 did not start, or was lost"),
        (MPICH, "process 24327 on node t-node-0-1.t ended with exit code or signal 9"),
        (MPICH_NODE, "it has lost node t-node-0-1.t"),
        (f"{OPEN_MPI}ValueError: my loss is NaN", None),
    ],
    ids=["rank", "node", "rank of MPICH", "node of MPICH", "own words"],
)
def test_mpirun_says_which_rank_or_node_it_lost(message: str, words: str | None) -> None:
    assert last_words(message) == (f"mpirun says: {words}" if words else "ValueError: my loss is NaN")


@pytest.mark.guarantee("M-11")
def test_credentials_are_left_out_also_where_the_text_is_cut() -> None:
    secret = "s3cr3t-0123456789-" * 20
    assert "s3cr3t" not in last_words(f"RuntimeError: 401 for Authorization: Bearer {secret}")
    assert "s3cr3t" not in last_words(f"OSError: https://me:{secret}@example.com/data")


@given(
    st.lists(
        st.sampled_from([TRACEBACK, TORCHRUN, REPORT, LOST, "[rank1]: ", "\r", "\x00", "\u2028", "\t", "- ", "\n"])
    ).map("".join)
)
def test_it_is_one_line_of_bounded_length_whatever_was_printed(message: str) -> None:
    words = last_words(message)
    assert len(words) <= LENGTH
    assert words.isprintable() or "\t" in words
    assert len(words.splitlines()) <= 1
