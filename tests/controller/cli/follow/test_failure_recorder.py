"""Failures: each is told once and with what its container said last, in few lines and nothing twice."""

from collections.abc import Mapping, Sequence
from typing import cast

import pytest
from support.failing_pods import BACKING_OFF, RUNNING, container_status, pod, terminated

from trainmaster.controller.cli.follow.failure_recorder import FailureRecorder
from trainmaster.controller.cli.follow.failures import excerpt, without_report
from trainmaster.controller.cli.follow.job_logs import JobLogs
from trainmaster.controller.cli.follow.job_status import FollowedJob, JobStatus, followed_job
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

CREATED = "2026-01-01T00:00:00Z"


class Logs:
    """What the server has of the logs of pods, and what was kept of them."""

    is_prefixed = False

    def __init__(self) -> None:
        self.served: dict[str, str] = {}
        self.kept: list[str] = []
        self.asked: list[Mapping[str, str]] = []
        self.passed_on = False

    async def raw(self, _verb: str, path: str, *, params: Mapping[str, str], accept: str) -> tuple[int, None, bytes]:
        del accept
        self.asked.append(params)
        text = self.served.get(path.split("/")[-2])
        lines = "".join(f"2026-01-01T00:00:05.1Z {line}\n" for line in (text or "").splitlines())
        return (404 if text is None else 200), None, lines.encode()

    def passes_on(self, _failure: ContainerFailure) -> bool:
        return self.passed_on

    async def last_lines(self, _failure: ContainerFailure, *, since: str, until: str) -> list[str]:
        assert since <= until
        return self.kept


class Report(Reporter):
    is_mixed = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def report(self, text: str, *, bad: bool = False) -> None:
        del bad
        self.told.append(text)


class Recording:
    """A recorder, and what it is about."""

    goes_on = True

    def __init__(self) -> None:
        self.logs, self.report = Logs(), Report()
        self.status = JobStatus(FollowedJob("team", "demo", "uid", CREATED))
        self._recorder = FailureRecorder(cast("KubeClient", self.logs), self.report, cast("JobLogs", self.logs))

    async def observe(self, *pods: JsonObject) -> None:
        for each in pods:
            self.status.observe_pod(each)
            for kept in self._recorder.observe_pod(self.status, each):
                await self._recorder.read(self.status, kept)
                if self.goes_on:
                    self._recorder.report(self.status, kept)

    @property
    def lines(self) -> list[Sequence[str]]:
        return [each.lines for each in self.status.failures]


@pytest.fixture
async def recording() -> Recording:
    return Recording()


async def test_a_failure_is_told_once_whatever_its_pod_says_later(recording: Recording) -> None:
    """It ended, waits for its restart, runs again; and all that comes once more after an outage."""
    recording.logs.served["demo-node-0-1-abcde"] = "loading\nValueError: NaN"
    states = [
        pod(1, terminated()),
        pod(1, containers=[container_status(BACKING_OFF, last=terminated())]),
        pod(1, containers=[container_status(RUNNING, last=terminated(), restarts=1)]),
    ]
    await recording.observe(*states, *states)
    assert recording.report.told == [
        "rank 1 failed: exit code 1; attempt 0, pod demo-node-0-1-abcde",
        "  its last lines:",
        "  | loading",
        "  | ValueError: NaN",
    ]
    assert recording.lines == [["loading", "ValueError: NaN"]]


async def test_a_pod_of_a_v1_job_is_named_as_explain_names_it(recording: Recording) -> None:
    resource = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
    spec: JsonObject = {"pytorchReplicaSpecs": {"Master": {}, "Worker": {}}}
    recording.status = JobStatus(followed_job({"metadata": pod(1)["metadata"], "spec": spec}, resource))
    worker = pod(1, containers=[container_status(terminated(), name="pytorch")])
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "1"}
    worker |= {"metadata": worker["metadata"] | {"labels": labels}, "spec": {"containers": [{"name": "pytorch"}]}}
    await recording.observe(worker)
    assert recording.report.told == ["worker 1 failed: exit code 1; attempt 0, pod demo-node-0-1-abcde"]


async def test_the_summary_tells_what_nobody_has_seen(recording: Recording) -> None:
    """A failure that ends the job is told by it alone, and lines only where they were not printed before."""
    recording.logs.kept = ["ValueError: NaN"]
    await recording.observe(pod(2, terminated()))
    recording.goes_on = False
    await recording.observe(pod(1, terminated()))
    assert [line for line in recording.report.told if "rank 1" in line] == []
    recording.logs.passed_on = True
    await recording.observe(pod(3, terminated()))
    recording.logs.kept = ["ValueError: NaN", VERDICT, "a report of torchrun"]
    await recording.observe(pod(4, terminated()))
    recording.report.is_mixed = False
    recording.logs.kept = ["ValueError: NaN"]
    await recording.observe(pod(5, terminated()))
    seen = {each.failure.rank: each.seen for each in recording.status.failures}
    assert seen == {1: False, 2: True, 3: True, 4: False, 5: False}


async def test_the_log_of_the_run_before_is_asked_for_when_another_runs_already(recording: Recording) -> None:
    await recording.observe(pod(1, containers=[container_status(RUNNING, last=terminated(), restarts=1)]))
    await recording.observe(pod(0, containers=[container_status(BACKING_OFF, last=terminated())]))
    assert [asked.get("previous") for asked in recording.logs.asked] == ["true", None]


async def test_what_was_kept_is_told_of_a_pod_that_is_gone(recording: Recording) -> None:
    recording.logs.kept = ["kept"]
    await recording.observe(pod(1, terminated()))
    assert recording.lines == [["kept"]]
    recording.logs.kept = []
    await recording.observe(pod(2, terminated(128, reason="StartError", message="no such command: trian.py")))
    assert recording.lines[1] == ["no such command: trian.py"]
    assert recording.report.told[-1] == "  | no such command: trian.py"
    await recording.observe(pod(3, terminated()))
    assert recording.lines[2] == []


async def test_lines_that_were_told_are_not_told_again(recording: Recording) -> None:
    recording.logs.kept = ["gloo: connection 4711 closed by peer"]
    await recording.observe(pod(1, terminated()))
    recording.logs.kept = ["gloo: connection 4712 closed by peer"]
    await recording.observe(pod(2, terminated()))
    assert recording.report.told[3:] == [
        "rank 2 failed: exit code 1; attempt 0, pod demo-node-0-2-abcde",
        "  it ended with the same lines as rank 1 in attempt 0",
    ]
    recording.logs.kept, recording.logs.passed_on = ["something else, which everybody has seen"], True
    await recording.observe(pod(0, terminated()))
    assert recording.report.told[5:] == ["rank 0 failed: exit code 1; attempt 0, pod demo-node-0-0-abcde"]
    assert recording.lines[0] == ["something else, which everybody has seen"]


async def test_of_many_failures_the_first_ones_are_told_and_all_are_counted(recording: Recording) -> None:
    await recording.observe(*(pod(rank, terminated()) for rank in range(100)))
    await recording.observe(pod(7, terminated(), attempt=1, suffix="fghij"))
    assert len(recording.status.failures) == 101
    assert recording.report.told[9:] == [
        "rank 9 failed: exit code 1; attempt 0, pod demo-node-0-9-abcde",
        "more failures of attempt 0 follow",
        "rank 7 failed: exit code 1; attempt 1, pod demo-node-0-7-fghij",
    ]
    assert len(recording.logs.asked) == 11


async def test_who_is_stopped_with_its_pod_has_not_failed(recording: Recording) -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:00:34Z", "deletionGracePeriodSeconds": 30}
    await recording.observe(pod(1, terminated(143, at=5), deleted=deleted))
    assert (recording.report.told, recording.status.failures) == ([], [])
    await recording.observe(pod(2, terminated(1, at=3), deleted=deleted))
    assert len(recording.status.failures) == 1


async def test_an_exit_code_and_a_reason_are_told_with_what_they_mean(recording: Recording) -> None:
    await recording.observe(
        pod(1, terminated(137, reason="OOMKilled")),
        pod(2, terminated(139)),
        pod(3, containers=[container_status(terminated(2), name="dataset-initializer")], job="dataset-initializer"),
    )
    assert [line.partition("; attempt 0, pod demo-")[0] for line in recording.report.told] == [
        "rank 1 failed: exit code 137, OOMKilled (it needed more memory than its limit)",
        "rank 2 failed: exit code 139 (crashed: SIGSEGV, a bad memory access in native code)",
        "container dataset-initializer failed: exit code 2",
    ]


async def test_of_two_in_one_second_the_one_that_lost_its_peer_is_not_the_first(recording: Recording) -> None:
    recording.logs.served = {
        "demo-node-0-0-abcde": "RuntimeError: Connection closed by peer",
        "demo-node-0-1-abcde": "ValueError: my loss is NaN",
    }
    await recording.observe(pod(0, terminated()), pod(1, terminated()))
    first = recording.status.last_failures[0]
    assert first.lines == ["ValueError: my loss is NaN"]


async def test_a_node_is_named_with_its_ranks(recording: Recording) -> None:
    failed = pod(1, terminated())
    environment = [{"name": "PET_NPROC_PER_NODE", "value": "2"}]
    failed["spec"]["containers"] = [{"name": "node", "command": ["torchrun", "train.py"], "env": environment}]
    await recording.observe(failed)
    assert recording.report.told == ["node 1 (ranks 2-3) failed: exit code 1; attempt 0, pod demo-node-0-1-abcde"]


async def test_what_ended_the_job_is_no_failure_of_a_pod_that_was_replaced(recording: Recording) -> None:
    """A pod of the Job was replaced and failed again; or its container was restarted, and another rank failed."""
    status = recording.status
    for each in (pod(1, terminated(3, at=5)), pod(1, terminated(4, at=9), suffix="fghij", created=6)):
        await recording.observe(each)
        status.forget_pod(each["metadata"]["uid"])
    assert [each.text for each in status.last_failures] == [
        "rank 1 failed: exit code 4; attempt 0, restart 1, pod demo-node-0-1-fghij"
    ]
    assert recording.report.told[-1] == status.last_failures[0].text
    recording.status = status = JobStatus(status.job)
    crashed = pod(0, containers=[container_status(BACKING_OFF, last=terminated(3, at=5))])
    goes_on = pod(0, containers=[container_status(RUNNING, last=terminated(3, at=5), restarts=1)])
    await recording.observe(crashed, goes_on, pod(1, terminated(4, at=9)))
    assert [each.who for each in status.last_failures] == ["rank 1"]


async def test_torchrun_hides_how_the_program_ended(recording: Recording) -> None:
    """The exit code of its container is always 1."""
    verdict = VERDICT.replace("exitcode: 1)", "exitcode: {})")
    codes = {1: -11, 2: 3, 3: 1, 4: -10, 5: -99, 6: 127}
    recording.logs.served = {f"demo-node-0-{rank}-abcde": verdict.format(code) for rank, code in codes.items()}
    await recording.observe(*(pod(rank, terminated()) for rank in codes))
    told = [line for line in recording.report.told if line.startswith("rank ")]
    says = "torchrun says that its process ended"
    assert [line.partition("; attempt 0, pod demo-")[0] for line in told] == [
        f"rank 1 failed: exit code 1; {says} by SIGSEGV (crashed: SIGSEGV, a bad memory access in native code)",
        f"rank 2 failed: exit code 1; {says} with exit code 3",
        "rank 3 failed: exit code 1",
        f"rank 4 failed: exit code 1; {says} by SIGUSR1",
        f"rank 5 failed: exit code 1; {says} by signal 99",
        f"rank 6 failed: exit code 1; {says} with exit code 127 (the command was not found)",
    ]


BEGINNING = "Traceback (most recent call last):"
DIRECT = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"
VERDICT = (
    "E1123 09:22:45.690000 27321 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
    "local_rank: 0 (pid: 27540) of binary: /venv/bin/python"
)


def user(line: int, function: str = "<module>") -> list[str]:
    return [f'  File "/home/me/train.py", line {line}, in {function}', "    step(model)", "    ^^^^^^^^^^^"]


def ranked(lines: Sequence[str], prefix: str = "[rank1]: ") -> list[str]:
    return [prefix + line for line in lines]


@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "[default0]:[rank1]: "])
def test_a_traceback_is_shown_with_those_that_it_is_chained_to(prefix: str) -> None:
    first = [BEGINNING, *user(7, "load"), "KeyError: 'weight'", ""]
    second = [DIRECT, "", BEGINNING, *user(8, "load"), "ValueError: no such model", ""]
    third = [DURING, "", BEGINNING, *user(9), "RuntimeError: nothing to train"]
    before = [BEGINNING, *user(1), "OSError: this one was handled", "going on"]
    shown = ranked([*first, *second, *third], prefix)
    assert excerpt([*ranked(before, prefix), *shown, VERDICT]) == [*shown, VERDICT]
    # Of a worker of a loader of data, and of a group of exceptions, the outer one is the beginning.
    outer = [BEGINNING, *user(20), "ValueError: Caught ValueError in DataLoader worker process 0."]
    worker = ranked([*outer, f"Original {BEGINNING}", *user(5, "__getitem__"), "ValueError: no such image"], prefix)
    group = ranked(
        [f"  + Exception Group {BEGINNING}", "  | two", f"    | {BEGINNING}", "    | ValueError: one"], prefix
    )
    assert [excerpt(["before", *each]) for each in (worker, group)] == [worker, group]
    # It may begin behind what is drawn over.
    bar = [f"\r 10%|#   | 1/10\r 20%|##  | 2/10{BEGINNING}", *user(3), "ValueError: NaN"]
    assert excerpt(["before", *bar]) == bar


def test_without_a_traceback_the_last_lines_are_shown() -> None:
    lines = [f"epoch {number}" for number in range(100)]
    assert (excerpt([]), excerpt(lines)) == ([], lines[80:])


def test_of_what_is_too_long_both_ends_are_shown() -> None:
    """Long messages, and what a program prints after an error that it has handled."""
    lines = [BEGINNING, *user(3), "RuntimeError: Error(s) in loading state_dict:", *map(str, range(100))]
    shown = excerpt(lines)
    assert shown == [*lines[:29], "[46 lines are left out here]", *lines[-30:]]
    assert len(shown) == 60


PROGRAM = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 7, in <module>',
    "ValueError: my loss is NaN",
]
STOPPING = f"W{VERDICT[1:].partition(' failed')[0]} Sending process 27541 closing signal SIGTERM"
REPORT = [
    "Traceback (most recent call last):",
    '  File "/venv/bin/torchrun", line 6, in <module>',
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "train.py FAILED",
]


def test_the_last_lines_are_those_of_the_program() -> None:
    """Without a report of torchrun nothing is left out, not even what it prints when somebody else stops it."""
    assert without_report([*PROGRAM, STOPPING, VERDICT, *REPORT]) == [*PROGRAM, VERDICT]
    for lines in ([], PROGRAM, [*PROGRAM, STOPPING], [*PROGRAM, *REPORT]):
        assert without_report(lines) == lines
