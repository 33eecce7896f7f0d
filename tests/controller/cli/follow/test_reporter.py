"""Where output goes decides what it looks like, whose it is, and what is said when jobs have ended."""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from support.failing_pods import pod
from support.followed_jobs import condition, failure, job_status, numbered, pods, set_conditions, set_failures

from trainmaster.controller.cli.follow.failures import Failure
from trainmaster.controller.cli.follow.follower import make_reporter
from trainmaster.controller.cli.follow.job_informers import Ownership
from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.live_reporter import LiveReporter
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.cli.follow.summary import Commands, closing_summary
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

OF_TERMINALS = ("TERM", "CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG", "MPLBACKEND")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Both streams are an ordinary terminal."""
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    for name in OF_TERMINALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def chosen(*, plain: bool = False) -> type:
    return type(make_reporter(plain=plain, commands=Commands()))


def test_a_terminal_has_a_display_unless_plain_lines_are_wanted(terminal: pytest.MonkeyPatch) -> None:
    assert chosen() is LiveReporter
    assert chosen(plain=True) is Reporter
    terminal.setenv("CI", "false")
    assert chosen() is LiveReporter


@pytest.mark.parametrize(
    "variable",
    [
        *("TERM=dumb", "TERM=", "TERM=unknown", "CI=true", "CI=1", "JPY_PARENT_PID=1", "COLAB_RELEASE_TAG=release-1"),
        *("MPLBACKEND=module://matplotlib_inline.backend_inline", "stdout", "stderr"),
    ],
)
def test_terminals_on_which_nothing_can_be_drawn_over_have_none(terminal: pytest.MonkeyPatch, variable: str) -> None:
    """Dumb ones, logs of CI, and notebooks, whose `!` gives its command a terminal of which lines are kept; files."""
    if variable in ("stdout", "stderr"):
        terminal.setattr(getattr(sys, variable), "isatty", lambda: False)
    else:
        terminal.setenv(*variable.split("=", 1))
    assert chosen() is Reporter


def test_plain_lines_are_logs_on_standard_output_and_all_else_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = complete()
    with Reporter(Commands()) as reporter:
        reporter.show([status])
        reporter.report("pod mnist-node-0-0: Running")
        reporter.log(["\x1b[32mone\x1b[0m", "10%\r100%"], job="default/mnist")
        reporter.log([])
        reporter.partial("not ended", job="default/mnist")
        reporter.close([status])
    told = capsys.readouterr()
    assert told.out == "\x1b[32mone\x1b[0m\n10%\r100%\n"
    lines = [line.text for line in closing_summary([status], Commands())]
    assert told.err.splitlines() == ["pod mnist-node-0-0: Running", *lines]


ENDED = "2024-01-01T00:01:23Z"


def told(*jobs: JobStatus, commands: Commands | None = None) -> list[str]:
    return [line.text for line in closing_summary(jobs, commands or Commands())]


def complete(name: str = "mnist") -> JobStatus:
    return job_status(name, conditions=condition("Complete", at=ENDED))


def failed(name: str = "mnist") -> JobStatus:
    ended = condition("Failed", at=ENDED, reason="JobSetFailed", message="jobset failed")
    return job_status(
        name,
        conditions=ended,
        failures=[failure("Traceback (most recent call last):", "ValueError: \x1b[31mmy loss is NaN\x1b[0m")],
    )


def test_a_job_that_is_complete_or_failed_says_who_why_and_what_to_do_next() -> None:
    assert told(complete()) == [
        "TrainJob default/mnist: Complete after 1:23",
        "  logs:   trainmaster logs mnist --all",
        "  delete: trainmaster delete mnist",
    ]
    # A job that failed says who why and what to do next.
    status = failed()
    later = "2024-01-01T00:00:09Z"
    others = [failure("gloo: connection reset", rank=0, at=later), failure(rank=None, exit_code=137, at=later)]
    set_failures(status, *status.failures, *others)
    assert told(status) == [
        "TrainJob default/mnist: Failed after 1:23: JobSetFailed: jobset failed",
        "  rank 1 failed: exit code 1; attempt 0, pod mnist-node-0-1-x7k2p",
        "  its last lines:",
        "  | Traceback (most recent call last):",
        "  | ValueError: my loss is NaN",
        "  after it failed: container dataset-initializer (exit code 137), rank 0 (exit code 1)",
        "  logs:   trainmaster logs mnist --all",
        "  again:  trainmaster restart mnist",
        "  delete: trainmaster delete mnist",
    ]


def test_what_a_condition_tells_of_the_failure_is_told_once() -> None:
    status = failed()
    message = (
        "jobset failed; attempt 0, restart 1: rank 1 (pod a, container node) failed with exit code 1: my loss is NaN"
    )
    set_conditions(status, condition("Failed", at=ENDED, reason="FailedJobs", message=message))
    assert told(status)[0] == "TrainJob default/mnist: Failed after 1:23: FailedJobs: jobset failed"
    set_failures(status)
    assert told(status)[0] == f"TrainJob default/mnist: Failed after 1:23: FailedJobs: {message}"
    # Lines that were printed are not printed again.
    set_failures(status, replace(failure("ValueError"), seen=True))
    rank_1 = "  rank 1 failed: exit code 1; attempt 0, pod mnist-node-0-1-x7k2p"
    assert told(status)[1:3] == [rank_1, "  logs:   trainmaster logs mnist --all"]
    # Without a failure that was seen the condition tells.
    set_failures(status)
    assert told(status)[1] == "  why:    trainmaster explain mnist"


def test_attempts_are_counted_and_who_failed_again_and_again_is_named_once() -> None:
    status = failed()
    status._restarts = 2
    set_failures(status, failure("one", attempt=0), failure("three", attempt=2, at="2024-01-01T00:00:09Z"))
    lines = told(status)
    assert lines[0].startswith("TrainJob default/mnist: Failed after 1:23, 2 restarts: ")
    assert lines[1] == "  rank 1 failed: exit code 1; attempt 2, pod mnist-node-0-1-x7k2p"
    assert lines[3] == "  | three"
    # A rank that failed in place again and again is named once.
    status = failed()
    set_failures(status, *(failure(run=run, at=f"2024-01-01T00:00:0{run}Z") for run in range(3)))
    assert not [line for line in told(status) if "after it failed" in line]
    # Many that failed are counted.
    status = failed()
    later = [failure(rank=rank, at="2024-01-01T00:00:09Z") for rank in range(2, 40)]
    set_failures(status, *status.failures, *later)
    (line,) = [line for line in told(status) if "after it failed" in line]
    assert line.endswith("rank 6 (exit code 1) and 33 more")


def test_what_can_be_done_depends_on_the_state() -> None:
    # A job that goes on can be followed again.
    status = job_status(pods=pods("Running", "Pending"), nodes=2)
    assert told(status) == [
        "TrainJob default/mnist: still Waiting, 1/2 running, 1 pending",
        "  logs:   trainmaster logs mnist --all",
        "  follow: trainmaster attach mnist",
        "  why:    trainmaster explain mnist",
        "  delete: trainmaster delete mnist",
    ]
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room for it"}
    status = job_status(pods=pods("Pending"))
    status.pods["node-0"]["status"]["conditions"] = [unscheduled]
    assert told(status)[1] == "  Unschedulable: rank 0: no room for it"
    # A job that is suspended can be resumed.
    status = job_status(conditions=condition("Suspended", reason="Suspended", message="TrainJob is suspended"))
    lines = told(status)
    assert lines[0] == "TrainJob default/mnist: still Suspended: Suspended: TrainJob is suspended"
    assert "  resume: trainmaster resume mnist" in lines
    # Nothing can be done with a job that is gone.
    assert told(job_status(deleted=True)) == ["TrainJob default/mnist: Deleted"]
    assert told(complete(), commands=Commands(deletes=True)) == ["TrainJob default/mnist: Complete after 1:23"]


def test_commands_name_what_they_need() -> None:
    elsewhere = job_status(namespace="team a", conditions=condition("Complete"))
    commands = Commands(namespace="default", kubeconfig="my config")
    assert "  delete: trainmaster delete mnist -n 'team a' --kubeconfig 'my config'" in told(
        elsewhere, commands=commands
    )
    assert "  delete: trainmaster delete mnist -n default" in told(complete(), commands=Commands(namespace="team"))
    assert "  delete: trainmaster delete JOB -n NAMESPACE" in told(complete(), elsewhere)


def test_of_several_jobs_those_that_failed_come_last() -> None:
    assert told(failed("b"), complete("a"), job_status("c", pods=pods("Running"))) == [
        "TrainJob default/a: Complete after 1:23",
        "TrainJob default/c: still Running, 1/1 running",
        "TrainJob default/b: Failed after 1:23: JobSetFailed: jobset failed",
        "  rank 1 failed: exit code 1; attempt 0, pod mnist-node-0-1-x7k2p",
        "  its last lines:",
        "  | Traceback (most recent call last):",
        "  | ValueError: my loss is NaN",
        "  logs:   trainmaster logs JOB --all",
        "  follow: trainmaster attach c",
        "  why:    trainmaster explain c",
        "  again:  trainmaster restart b",
        "  delete: trainmaster delete JOB",
    ]


def test_of_a_job_that_goes_on_it_is_told_who_is_silent_and_since_when() -> None:
    status = job_status(pods=pods("Running", "Running", "Running"), nodes=3)
    now = datetime.now(UTC)
    started = (now - timedelta(minutes=9)).isoformat()
    for each in status.pods.values():
        each["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": started}}
    ages = {"node-0": 50, "node-1": 250}
    status.last_output = {uid: now - timedelta(seconds=age) for uid, age in ages.items()} | {"node-2": None, "old": now}
    assert told(status)[1:4] == [
        "  rank 0 wrote its last line 50s ago",
        "  rank 2 wrote nothing so far, in 9m",
        "  rank 1 wrote nothing since: the last line is from 4m10s ago",
    ]


def test_of_a_job_whose_pods_have_all_ended_nobody_is_silent() -> None:
    status = job_status(pods=pods("Succeeded"), nodes=1)
    status.last_output = {"node-0": datetime.now(UTC)}
    assert "  all of its pods have ended" in told(status)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_the_log_is_named_of_jobs_of_which_a_container_has_started(phase: str) -> None:
    ended = condition("Failed", at=ENDED, reason="DeadlineExceeded")
    status = job_status(conditions=ended, past_pods=pods(phase), nodes=1)
    assert ("  logs:   trainmaster logs mnist --all" in told(status)) == (phase == "Running")
    assert "  why:    trainmaster explain mnist" in told(status)


@pytest.mark.parametrize(
    ("failed_by", "more"),
    [
        (failure("ValueError: my loss is NaN"), False),
        (failure("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (failure("a line", exit_code=137), True),
        (failure("socket.gaierror: [Errno -2] Name or service not known"), True),
    ],
)
def test_explain_is_named_where_it_says_more_of_a_failure(failed_by: Failure, more: bool) -> None:
    status = failed()
    set_failures(status, failed_by)
    assert ("  why:    trainmaster explain mnist" in told(status)) == more


def test_of_many_jobs_little_is_told() -> None:
    # A hundred jobs do not fill the terminal with what went well.
    lines = told(
        *[complete(name) for name in numbered("job", 50)], *[job_status(name) for name in numbered("late", 50)]
    )
    assert lines[0] == "50 of 100 jobs: Complete"
    assert lines[11] == "and 40 more jobs: 40 Waiting"
    # Of many failures three are explained.
    lines = told(*[failed(name) for name in numbered("job", 5)])
    assert lines.count("  its last lines:") == 3
    assert lines.count("  rank 1 failed: exit code 1; attempt 0, pod mnist-node-0-1-x7k2p") == 5


JOB = job_status("demo", namespace="team")


class Objects:
    """A client of a server with some objects."""

    def __init__(self, *objects: JsonObject, refusal: KubeError | None = None) -> None:
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in objects}
        self.refusal = refusal
        self.asked: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> JsonObject:
        assert namespace == "team"
        self.asked.append(f"{resource.kind} {name}")
        if self.refusal is not None:
            raise self.refusal
        if (resource.kind, name) not in self.objects:
            raise NotFound(status=404)
        return self.objects[resource.kind, name]


def owned(kind: str, name: str, uid: str, *, by: tuple[str, str, str]) -> JsonObject:
    owner = dict(zip(("kind", "name", "uid"), by, strict=True)) | {"controller": True}
    metadata = {"name": name, "uid": uid, "creationTimestamp": "2024-01-01T00:00:00Z", "ownerReferences": [owner]}
    replicated = {"name": "node", "replicas": 2, "template": {"spec": {"completions": 3, "parallelism": 3}}}
    return {"kind": kind, "metadata": metadata, "spec": {"replicatedJobs": [replicated]}}


def event(kind: str, name: str, uid: str, *, created: str = "2024-01-01T00:00:00Z") -> JsonObject:
    return {"metadata": {"creationTimestamp": created}, "regarding": {"kind": kind, "name": name, "uid": uid}}


JOBSET = owned("JobSet", "demo", "JobSet-of-uid-1", by=("TrainJob", "demo", "uid-of-demo"))
CHILD = owned("Job", "demo-node-0", "job-1", by=("JobSet", "demo", "JobSet-of-uid-1"))


def ownership(server: Objects) -> Ownership:
    return Ownership(cast("KubeClient", server))


async def test_pods_belong_to_the_job_that_owns_their_jobset() -> None:
    server = Objects(JOBSET)
    of = ownership(server)
    JOB.nodes = None
    assert await of.of_pod(pod(0), JOB)
    assert await of.of_pod(pod(1), JOB)
    assert server.asked == ["JobSet demo"]
    assert JOB.nodes == 6
    # Those that others keep with its labels do not belong to it.
    for owners in ([], [{"kind": "ReplicaSet", "name": "of-others", "uid": "2"}]):
        others = pod(2)
        others["metadata"]["ownerReferences"] = owners
        assert not await of.of_pod(others, JOB)
    # Pods of another jobset of that name do not belong to it.
    assert not await ownership(Objects(JOBSET)).of_pod(pod(0, jobset_uid="older"), JOB)
    assert not await ownership(Objects()).of_pod(pod(0), JOB)
    foreign = owned("JobSet", "demo", "JobSet-of-uid-1", by=("TrainJob", "demo", "older"))
    server = Objects(foreign, owned("TrainJob", "demo", "uid-of-demo", by=("x", "x", "x")))
    assert not await ownership(server).of_pod(pod(0), JOB)


async def test_events_belong_to_the_job_that_owns_what_they_are_about() -> None:
    server = Objects(JOBSET, CHILD)
    of = ownership(server)
    assert await of.of_event(event("TrainJob", "demo", "uid-of-demo"), JOB)
    assert await of.of_event(event("Job", "demo-node-0", "job-1"), JOB)
    assert not await of.of_event(event("Job", "demo-node-0", "job-0"), JOB)
    assert not await of.of_event(event("TrainJob", "demo", "older"), JOB)
    asked = len(server.asked)
    assert await of.of_event(event("Job", "demo-node-0", "job-1"), JOB)
    assert len(server.asked) == asked


@pytest.mark.parametrize(("created", "belongs"), [("2023-12-31T23:59:59Z", False), ("2024-01-01T00:00:00Z", True)])
async def test_time_decides_where_owners_may_not_be_read(created: str, belongs: bool) -> None:
    of = ownership(Objects(refusal=Forbidden(status=403)))
    each = pod(0)
    each["metadata"]["creationTimestamp"] = created
    assert await of.of_pod(each, JOB) is belongs
    assert await of.of_event(event("Job", "demo-node-0", "job-1", created=created), JOB) is belongs
    assert await of.of_event(event("PodGroup", "demo", "group", created=created), JOB) is belongs
