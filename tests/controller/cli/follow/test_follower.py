"""Following jobs, by `trainmaster run` on an embedded cluster, and by itself where nobody works on the jobs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT, eventually, started, trainmaster
from support.embedded import embedded
from support.running_jobs import job as v1_job
from support.running_jobs import runtime, trainjob, write
from support.team import Team

from trainmaster.controller.cli.follow.follower import Follower
from trainmaster.controller.cli.follow.job_informers import Ownership
from trainmaster.controller.cli.follow.job_logs import LogChoice
from trainmaster.controller.cli.follow.job_status import followed_job
from trainmaster.controller.cli.follow.pod_logs import LogOptions
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import EVENTS, PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject


class Report(Reporter):
    """Keeps what is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.printed: list[str] = []
        self.tracked: set[str] = set()

    def report(self, text: str, *, bad: bool = False) -> None:
        del bad
        self.told.append(text)

    def log(self, lines: Sequence[str], *, job: str = "") -> None:
        self.printed += lines
        self.tracked |= {job}


RANK_ONE_RAISES = """
if [ $JOB_COMPLETION_INDEX = 1 ]; then
  echo loading; echo "ValueError: my loss is NaN"; exit 1
fi
while ! [ -e {gate} ]; do sleep 0.05; done
echo "Traceback (most recent call last):"
echo '  File "train.py", line 11, in <module>'
echo "RuntimeError: connection closed by peer $RANDOM"
exit 1
"""


@pytest.mark.nightly
async def test_the_first_failure_is_told_while_others_wait_for_it(mine: Team, tmp_path: Path) -> None:
    """Its container is restarted at once, and rank 0 waits in a barrier; what it ends with later says nothing."""
    gate = tmp_path / "gate"
    job = trainjob("nan", RANK_ONE_RAISES.format(gate=gate), runtime="restarts")
    file = write(tmp_path, runtime("restarts", nodes=2, restart_policy="OnFailure", backoff_limit=3), job)
    async with mine.started("run", file) as running:
        await eventually(lambda: "  it ended with the same lines as rank 1 in attempt 0\n" in running.err)
        gate.touch()
        done = await running.finish(code=1)
    told = done.err.splitlines()
    first = next(index for index, line in enumerate(told) if line.startswith("rank "))
    pod = r"pod nan-node-0-1-\w+"
    assert re.fullmatch(rf"rank 1 failed: exit code 1; attempt 0, {pod}", told[first])
    lines = ["  its last lines:", "  | loading", "  | ValueError: my loss is NaN"]
    assert told[first + 1 : first + 4] == lines
    assert re.search(rf"\nrank 1 failed: exit code 1; attempt 0, restart 1, {pod}\n", done.err)
    assert done.err.count("ValueError: my loss is NaN") == 1, "as soon as it is seen, and not again at the end"
    assert f"TrainJob {mine.name}/nan: started again (restart 1)" in told
    # What follows from that is not told as well.
    assert not re.search("BackOff|ContainerFailed|BackoffLimit|warning: ", done.err)
    assert len(re.findall(r"rank 0 (?:failed: exit code 1;|\(exit code 1\))", done.err)) >= 1


@pytest.mark.nightly
async def test_each_attempt_tells_its_first_failure(mine: Team, tmp_path: Path) -> None:
    """The pods of the first attempt are gone when the second one fails."""
    gate = tmp_path / "gate"
    restarted = runtime("recreates")
    restarted["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 1}
    script = f"echo out of memory soon; while ! rm {gate} 2>/dev/null; do sleep 0.05; done; sh -c 'kill -9 $PPID'; :"
    file = write(tmp_path, restarted, trainjob("twice", script, runtime="recreates"))
    async with mine.started("run", file) as running:
        for attempt in (0, 1):
            await eventually(lambda attempt=attempt: len(running.out) == attempt + 1)  # type: ignore[misc]
            gate.touch()
        done = await running.finish()
    assert (done.code, done.out) == (1, "out of memory soon\n" * 2)
    told = r"rank 0 failed: exit code 137 \(killed: SIGKILL[^)]*\); attempt {}, pod twice-node-0-0-\w+\n"
    for attempt in (0, 1):
        assert re.search(told.format(attempt), done.err)
    end = done.err[done.err.index(f"TrainJob {mine.name}/twice: Failed") :]
    assert re.search(r"attempt 1, .*\n  its last lines:\n  \| out of memory soon\n", end)


RANK_ONE_FAILS_AT_ONCE = """
if [ $JOB_COMPLETION_INDEX = 1 ]; then
  while ! [ -e {gate} ]; do sleep 0.01; done; exit 3
fi
seq 5; touch {gate}; exec sleep 1000
"""


@pytest.mark.nightly
async def test_the_log_of_rank_0_is_there_though_another_rank_fails_at_once(mine: Team, tmp_path: Path) -> None:
    """Its pod is deleted while its log is opened."""
    job = trainjob("cut", RANK_ONE_FAILS_AT_ONCE.format(gate=tmp_path / "gate"), runtime="pair")
    file = write(tmp_path, runtime("pair", nodes=2), job)
    done = await mine.cli("run", file)
    assert (done.code, done.out) == (1, "1\n2\n3\n4\n5\n")
    assert re.search(r"\n  rank 1 failed: exit code 3; attempt 0, pod cut-node-0-1-\w+\n", done.err)


@pytest.mark.nightly
async def test_a_cluster_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """Afterwards the log is that of another run of the container: no line is missing or told twice."""
    gate = tmp_path / "gate"
    script = f"echo begins; seq 5; while ! [ -e {gate} ]; do sleep 0.05; done; echo ends; exit 0"
    again = runtime("again", restart_policy="OnFailure", backoff_limit=3)
    file = write(tmp_path, again, trainjob("patient", script, runtime="again"))
    # Not the port that other clusters try first: one of them might have it when this one comes back.
    with embedded(tmp_path, "--port", str(free_port())):
        async with started("run", file, cwd=tmp_path) as running:
            await eventually(lambda: running.out[1:] == [f"{number}\n" for number in range(1, 6)])
            await trainmaster("cluster", "down", cwd=tmp_path)
            await eventually(lambda: any(line.startswith("the cluster cannot be reached: ") for line in running.err))
            assert (await trainmaster("cluster", "up", "--detach", cwd=tmp_path)).code == 0
            await eventually(lambda: running.err.count("the cluster can be reached again\n") == 1)
            gate.touch()
            done = await running.finish()
    assert done.code == 0, done.err
    run = "begins\n1\n2\n3\n4\n5\n"
    assert done.out == f"{run}{run}ends\n"
    [away] = [line for line in done.err.splitlines() if "cannot be reached" in line]
    assert re.fullmatch(r"the cluster cannot be reached: https://127\.0\.0\.1:\d+ [^;]+; waiting for it", away)
    assert "[warn" not in done.err


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("worker", "code", "end"),
    [("exit 1", 1, "Failed after 0:0., 1 restart: "), ("while echo more; do sleep 0.1; done", 0, "Succeeded after ")],
)
async def test_pods_that_go_on_after_the_end_of_their_job_are_not_waited_for(
    mine: Team, tmp_path: Path, worker: str, code: int, end: str
) -> None:
    begun = tmp_path / "begun"
    master = "sleep 1000" if code else f"until [ -e {begun} ]; do sleep 0.05; done"
    replicas = {"Master": (1, ["sh", "-c", master]), "Worker": (1, ["sh", "-c", f"touch {begun}; {worker}"])}
    stays = v1_job("PyTorchJob", "stays", replicas, runPolicy={"backoffLimit": 1, "cleanPodPolicy": "None"})
    stays["metadata"]["namespace"] = mine.name
    for each in stays["spec"]["pytorchReplicaSpecs"].values():
        each["restartPolicy"] = "OnFailure"
    for command in (("run", "--timeout", "40", write(tmp_path, stays)), ("attach", "pytorchjob/stays")):
        async with asyncio.timeout(TIMEOUT):
            done = await mine.cli(*command)
        assert done.code == code, done.out + done.err
        assert re.search(f"PyTorchJob {mine.name}/stays: {end}", done.err)


@pytest.mark.nightly
async def test_a_job_that_has_ended_is_told_with_its_logs(mine: Team) -> None:
    script = "seq -f $JOB_COMPLETION_INDEX%g 4; exit $JOB_COMPLETION_INDEX"
    job = await mine.submit("ended", script, nodes=2)
    await mine.condition("ended", "Failed")

    async def follow(**options: Any) -> tuple[Follower, Report]:
        reporter = Report()
        follower = Follower(mine.client, [followed_job(job)], reporter, **options)
        async with asyncio.timeout(TIMEOUT):
            await follower.run()
        return follower, reporter

    follower, reporter = await follow()
    # Of the ranks that another one took with it nothing may be left.
    assert reporter.printed in (["01", "02", "03", "04"], [])
    assert reporter.tracked <= {f"{mine.name}/ended"}
    [status] = follower.jobs
    assert (status.outcome, status.nodes, status.restarts) == ("Failed", 2, 0)
    first = status.last_failures[0]
    assert (first.failure.rank, first.failure.exit_code, first.lines) == (1, 1, ["11", "12", "13", "14"])
    assert status.job.created == status.began <= str(status.ended)
    _, reporter = await follow(choice=LogChoice(rank=1, options=LogOptions(tail=2)))
    assert (reporter.printed, reporter.tracked) == (["13", "14"], {""})
    _, reporter = await follow(choice=LogChoice(is_all=True))
    assert {"rank 1 | 11", "rank 1 | 14"} <= set(reporter.printed)
    assert not [line for line in reporter.told if line.startswith("  |")]


async def test_what_happened_is_told_unless_it_was_to_a_predecessor_of_the_same_name(
    team: Team,
) -> None:
    """Its events and pods may be there for a while, and even be made after the new job was."""
    client = team.client
    old = await team.submit("again", "true")
    await client.delete(TRAINJOBS, team.name, "again")
    job = await team.submit("again", "true")
    reporter = Report()
    following = asyncio.create_task(Follower(client, [followed_job(job)], reporter).run())
    labels = {"jobset.sigs.k8s.io/jobset-name": "again", "jobset.sigs.k8s.io/jobset-uid": "old"}
    spec: JsonObject = {"containers": [{"name": "node", "image": "none"}]}
    metadata = {"name": "again-node-0-0-xxxxx", "labels": labels}
    await client.create(PODS, {"metadata": metadata, "spec": spec}, namespace="research")
    await event(client, "again-node-0", kind="Job", uid="gone", note="the old one")
    await event(client, "again", kind="TrainJob", uid=old["metadata"]["uid"], note="the old one")
    uid = job["metadata"]["uid"]
    await event(client, "again", kind="TrainJob", uid=uid, note="the new one")
    await eventually(lambda: bool(reporter.told))
    # What keeps several pods waiting is told once, and what follows from failures by these alone.
    await event(client, "again", kind="TrainJob", uid=uid, note="the new one")
    await event(client, "again", kind="TrainJob", uid=uid, note="pods are gone", reason="BackoffLimitExceeded")
    # What kept a pod waiting that has a node by now is past.
    bound: JsonObject = {"metadata": {"name": "again-node-0-1-yyyyy"}, "spec": {**spec, "nodeName": "a-node"}}
    bound = await client.create(PODS, bound, namespace="research")
    about = {"kind": "Pod", "uid": bound["metadata"]["uid"], "reason": "FailedScheduling"}
    await event(client, "again-node-0-1-yyyyy", note="no room", **about)
    # What a condition says is told once.
    await team.tell("again", "Blocked", message="no quota")
    await eventually(lambda: len(reporter.told) > 2)
    await event(client, "again", kind="TrainJob", uid=uid, note="reconciliation failed: no quota")
    await event(client, "again", kind="TrainJob", uid=uid, note="the end")
    await eventually(lambda: len(reporter.told) > 3)
    await client.delete(TRAINJOBS, team.name, "again")
    await following
    new, blocked, _, end = reporter.told
    assert [new, end] == [f"warning: TrainJob again: Odd: the {what}" for what in ("new one", "end")]
    assert blocked == "TrainJob research/again: Blocked: no quota"


async def event(client: KubeClient, name: str, *, kind: str, uid: str, note: str, reason: str = "Odd") -> None:
    regarding = {"kind": kind, "name": name, "namespace": "research", "uid": uid}
    reporting = {"action": "Look", "reportingController": "test", "reportingInstance": "test", "type": "Warning"}
    told = {"eventTime": "2026-01-01T00:00:00.000000Z", "reason": reason, "note": note, "regarding": regarding}
    await client.create(EVENTS, {"metadata": {"generateName": "odd-"}, **reporting, **told}, namespace="research")


async def test_nothing_ends_in_the_background_without_a_word(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Ownership, "of_event", fail)
    client = team.client
    job = await team.submit("mistaken", "true")
    await event(client, "mistaken", kind="TrainJob", uid=job["metadata"]["uid"], note="odd")
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await Follower(client, [followed_job(job)], Report()).run()


class Hasty(SystemClock):
    """Lets no time pass."""

    async def sleep(self, seconds: float) -> None:
        del seconds
        await asyncio.sleep(0)


@pytest.mark.nightly
async def test_a_job_that_no_controller_looks_at_is_told(team: Team) -> None:
    client = team.client
    job = await team.submit("lonely", "true")
    looked_at = await team.submit("looked-at", "true")
    await team.tell("looked-at", "Suspended")
    reporter = Report()
    jobs = [followed_job(each) for each in (job, looked_at)]
    following = asyncio.create_task(Follower(client, jobs, reporter, clock=Hasty()).run())
    await eventually(lambda: len(reporter.told) == 3)
    for each in jobs:
        await client.delete(TRAINJOBS, team.name, each.name)
    await following
    why = "`trainmaster explain lonely -n research` says why"
    assert f"TrainJob research/lonely has no status and no pods after 5 s; {why}" in reporter.told
    assert not any("looked-at has no" in line for line in reporter.told)
    assert "  what next: trainmaster resume looked-at -n research; Ctrl-C ends the waiting" in reporter.told
